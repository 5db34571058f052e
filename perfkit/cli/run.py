"""`perfkit run WORKLOAD`: train a workload and record a trace a rank. `perfkit run SCRIPT` is in `perfkit.cli.script`.

The names of the workloads are known without importing one; a workload and torch are imported when its name is given.
"""

import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer
from msgspec import Struct
from typer.core import TyperGroup
from typer.main import get_command

from perfkit.capture.config import RunConfig
from perfkit.capture.distributed.launcher_env import FAILURE_GRACE_S, detect_rank, needs_mpi
from perfkit.capture.lifecycle.local_launch import is_child, launch, refuse_inside_launcher
from perfkit.cli import script
from perfkit.cli.config_options import Layer, command, options, read_toml, resolve
from perfkit.cli.script import is_script, split
from perfkit.cli.typer_app import App
from perfkit.errors import LaunchEnvironmentError, UsageError
from perfkit.util.sigint import exit_on_sigint
from workloads import WORKLOADS, load
from workloads.data import SOURCES, DataOptions

if TYPE_CHECKING:
    from perfkit.capture.training.worker import Job
    from perfkit.cli import Call
    from workloads.base import Workload

    WorkloadType = type[Workload[Any]]

EXIT_USAGE: Final = UsageError.exit_code
_PACKAGES: Final = ("torch", "h5py", "safetensors")

_RANKS: Final = Parameter(
    "ranks",
    Parameter.KEYWORD_ONLY,
    default=None,
    annotation=Annotated[
        int,
        typer.Option(
            "-n",
            "--ranks",
            min=1,
            metavar="N",
            rich_help_panel="Run",
            help="Start N ranks on this host; without it, ranks are those of mpiexec, torchrun or srun.",
        ),
    ],
)


class Workloads(TyperGroup):
    """Imports a workload when it is used, and torch with it; of several ranks only one reports a usage error."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the command of the workload that was asked for, in place of its stand-in.

        Raises:
            LaunchEnvironmentError: torch is not installed.
            UsageError: A script that does not exist.
        """
        if args[0] not in WORKLOADS and is_script(args[0]):
            own, arguments = split(args[1:])
            return args[0], get_command(script.application(args[0], arguments, _RANKS)), own
        name, _, rest = super().resolve_command(ctx, args)
        with exit_on_sigint():
            return name, get_command(application(load_workload(str(name)))), rest

    def invoke(self, ctx: Any) -> Any:
        """Run the workload's command."""
        try:
            return super().invoke(ctx)
        except (typer.TyperException, UsageError) as error:
            if error.exit_code == EXIT_USAGE:
                _leave_it_to_rank_0()
            raise


app = App(cls=Workloads, subcommand_metavar="WORKLOAD|SCRIPT.py [OPTIONS] [-- ARGUMENTS]")
for _name in WORKLOADS:
    app.command(_name, help=f"`perfkit run {_name} --help` lists its options.")(lambda: None)


@app.callback()
def run() -> None:
    """Train a workload with DDP, or run a training script of your own unchanged, and record a trace a rank.

    What stands after `--` is the script's.

    Ranks are those of mpiexec, torchrun or srun; `-n N` starts N on this host; without any there is one.
    """


def load_workload(name: str) -> "WorkloadType":
    """Import a workload, and torch with it.

    Raises:
        LaunchEnvironmentError: torch is not installed.
        UsageError: There is no such workload.
    """
    # Read when torch is imported: its warnings (of the profiler, of sockets) are no user's business.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    try:
        return load(name)
    except ModuleNotFoundError as error:
        if error.name not in _PACKAGES:
            raise
        raise LaunchEnvironmentError(
            f"`perfkit run` needs {error.name}, which is not installed: pip install 'perfkit[run]'"
        ) from error


def application(workload: "WorkloadType", start: Callable[[Any, dict[str, Any]], None] | None = None) -> typer.Typer:
    """Return `perfkit run NAME`, with the options of the run, the input source and the workload.

    Args:
        workload: What to train.
        start: Called with the context's `obj` and what was given; without it the workload is run.
    """
    parameters = [
        _RANKS,
        *options(RunConfig, "Run", {"preset": list(workload.PRESETS)}),
        *options(DataOptions, "Input", {"source": list(SOURCES)}),
        *options(workload.Config, f"Workload (preset {workload.DEFAULT_PRESET})", {}),
    ]
    return command(start or partial(_start, workload), parameters, (workload.__doc__ or "").partition("\n\n")[0])


def _start(workload: "WorkloadType", call: "Call", given: dict[str, Any]) -> None:
    ranks = given.pop("ranks", None)
    with exit_on_sigint():  # torch is imported
        job = make_job(workload, given)
        from perfkit.capture.training.worker import run_rank
    if ranks is None or is_child():
        run_rank(job, call.debug)
    else:
        refuse_inside_launcher()
        job.run.check_world(ranks)
        launch(call.arguments, ranks)


def make_job(workload: "WorkloadType", values: dict[str, Any]) -> "Job":
    """Make the effective configuration from the defaults, the preset, the TOML file and the command line.

    Raises:
        UsageError: An option, a value or a combination that cannot be.
    """
    from perfkit.capture.training.worker import Job

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
            rank = detect_rank(os.environ).rank
        except LaunchEnvironmentError:
            return
        if rank > 0:
            time.sleep(FAILURE_GRACE_S)  # a launcher may kill rank 0 as soon as this one has ended
            raise SystemExit(EXIT_USAGE)
