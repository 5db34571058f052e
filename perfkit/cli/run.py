"""`perfkit run WORKLOAD`: train a workload and record a trace a rank.

The names of the workloads are known without importing one; a workload and torch are imported when its name is given.
"""

import difflib
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec
from msgspec import Struct

from perfkit.cli.options import Layer, click_options, given, read_toml, resolve
from perfkit.errors import LaunchEnvironmentError, UsageError
from perfkit.run.config import RunConfig
from perfkit.run.dist import detect, needs_mpi
from perfkit.run.launch import is_child, launch, refuse_inside_launcher
from workloads import WORKLOADS, load
from workloads.data import SOURCES, DataOptions

if TYPE_CHECKING:
    from perfkit.run.worker import Job
    from workloads.base import Workload

    WorkloadType = type[Workload[Any]]

EXIT_USAGE: Final = UsageError.exit_code
LAST_WORD_S: Final = 2.0
_PACKAGES: Final = ("torch", "h5py", "safetensors")


class WorkloadCommand(click.Command):
    """`perfkit run NAME`, with the options of the run, the input source and the workload."""

    def __init__(self, name: str, workload: "WorkloadType") -> None:
        self.sections = {
            "Run": click_options(RunConfig, {"preset": list(workload.PRESETS)}),
            "Input": click_options(DataOptions, {"source": list(SOURCES)}),
            f"Workload (preset {workload.DEFAULT_PRESET})": click_options(workload.Config, {}),
        }
        ranks = click.Option(
            ["-n", "--ranks", "ranks"],
            type=click.IntRange(min=1),
            metavar="N",
            help="Start N ranks on this host; without it, ranks are those of mpiexec, torchrun or srun.",
        )
        self.sections["Run"].insert(0, ranks)
        super().__init__(
            name,
            params=[option for section in self.sections.values() for option in section],
            callback=click.pass_context(lambda context, **_: self._start(context, workload)),
            help=(workload.__doc__ or "").partition("\n\n")[0],
        )

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Keep the arguments for the ranks that `-n` starts; of several ranks only one reports a bad option."""
        arguments = list(args)
        try:
            context = super().make_context(info_name, args, parent, **extra)
        except click.UsageError:
            _leave_it_to_rank_0()
            raise
        context.meta[__name__] = arguments
        return context

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options by section."""
        for title, options in self.sections.items():
            records = [option.get_help_record(ctx) for option in options]
            with formatter.section(title):
                formatter.write_dl([record for record in records if record is not None])

    def _start(self, context: click.Context, workload: "WorkloadType") -> None:
        debug = bool((context.obj or {}).get("debug"))
        values = given(context)
        ranks = values.pop("ranks", None)
        try:
            job = make_job(workload, values)
            if ranks is not None and not is_child():
                refuse_inside_launcher()
                job.run.check_world(ranks)
        except UsageError:
            _leave_it_to_rank_0()
            raise
        if ranks is None or is_child():
            from perfkit.run.worker import run_rank

            run_rank(job, debug)
        else:
            before = ["--debug"] if debug else []
            launch([*before, "run", str(context.info_name), *context.meta[__name__]], ranks)


def make_job(workload: "WorkloadType", values: dict[str, Any]) -> "Job":
    """Make the effective configuration from the defaults, the preset, the TOML file and the command line.

    Raises:
        UsageError: An option, a value or a combination that cannot be.
    """
    from perfkit.run.worker import Job

    file = read_toml(Path(values["config"])) if "config" in values else Layer("", {})
    preset = values.get("preset") or file.values.get("preset") or workload.DEFAULT_PRESET
    if preset not in workload.PRESETS:
        raise UsageError(f"{file.origin}: preset {preset!r}: choose from {', '.join(workload.PRESETS)}")
    layers = [Layer(f"preset {preset}", workload.PRESETS[preset]), file, Layer("", values | {"preset": preset})]
    run, data, config = resolve((RunConfig, DataOptions, workload.Config), layers)
    assert isinstance(run, RunConfig)  # noqa: S101  # resolve keeps the order
    assert isinstance(data, DataOptions)  # noqa: S101
    if data.data_dir is None:
        data = msgspec.structs.replace(data, data_dir=str(Path(run.trace_dir) / ".data"))
    return Job(workload=workload(config), run=run, data=data, effective=_flat((run, data, config)))


def _flat(records: Sequence[Struct]) -> dict[str, Any]:
    return {name: value for record in records for name, value in msgspec.to_builtins(record).items()}


def _leave_it_to_rank_0() -> None:
    """End the ranks that would only repeat what rank 0 says of the same command line."""
    if is_child() or needs_mpi(os.environ) or "RANK" in os.environ:
        try:
            rank = detect(os.environ).rank
        except LaunchEnvironmentError:
            return
        if rank > 0:
            time.sleep(LAST_WORD_S)  # a launcher may kill rank 0 as soon as this one has ended
            raise SystemExit(EXIT_USAGE)


class Workloads(click.Group):
    """The registry of workloads as a group of commands."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names of the workloads."""
        return list(WORKLOADS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import a workload and return its command; None if there is none of that name.

        Raises:
            LaunchEnvironmentError: torch is not installed.
        """
        if cmd_name not in WORKLOADS:
            return None
        try:
            return WorkloadCommand(cmd_name, load(cmd_name))
        except ModuleNotFoundError as error:
            if error.name not in _PACKAGES:
                raise
            raise LaunchEnvironmentError(
                f"`perfkit run` needs {error.name}, which is not installed: pip install 'perfkit[run]'"
            ) from error

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the workload that was asked for, or suggest the one that was meant."""
        name = args[0]
        if name not in WORKLOADS and not name.startswith("-"):
            meant = difflib.get_close_matches(name, WORKLOADS, n=1)
            hint = f"did you mean '{meant[0]}'?" if meant else f"workloads: {', '.join(WORKLOADS)}"
            raise click.UsageError(f"no workload '{name}'; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the names of the workloads; their own help needs torch."""
        with formatter.section("Workloads"):
            formatter.write_dl([(name, f"`perfkit run {name} --help` lists its options.") for name in WORKLOADS])


@click.group("run", cls=Workloads, subcommand_metavar="WORKLOAD [OPTIONS]")
def command() -> None:
    """Train a workload with DDP and record a trace a rank.

    Ranks are those of mpiexec, torchrun or srun; `-n N` starts N on this host; without any there is one.
    """
