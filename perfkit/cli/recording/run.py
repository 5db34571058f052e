"""`perfkit run WORKLOAD`: train a workload and record one trace per rank. `perfkit.cli.recording.script` runs scripts.

The names of the workloads are listed without importing any. torch is imported by ranks only.
"""

import re
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer
from typer.main import get_command

from perfkit.base.formatting import shell_word
from perfkit.base.process import exit_on_sigint
from perfkit.cli.config_options import parameter, rank_option
from perfkit.cli.help_screen import Group
from perfkit.cli.recording import script, script_options
from perfkit.cli.recording.run_options import application, check_packages, load_workload, make_job
from perfkit.cli.recording.script import with_hint
from perfkit.cli.recording.script_options import is_script, module_in, split
from perfkit.cli.typer_app import App, print_line
from perfkit.errors import RunError, UsageError
from perfkit.record.lifecycle.end_answer import hangs_in_words, has_small_traces, print_answer
from perfkit.record.lifecycle.local_launch import is_child, launch, leave_error_to_rank_0, refuse_inside_launcher
from perfkit.record.script.module_run import ModuleName
from perfkit_workloads import WORKLOADS

if TYPE_CHECKING:
    from perfkit.cli import Call
    from perfkit.cli.recording.run_options import WorkloadType


_STDOUT: Final = 1


def print_report(folder: Path) -> None:
    """Print the report of a run as JSON, however long that takes.

    Raises:
        RunError: The run is complete, and cannot be analysed.
    """
    sys.stdout.flush()
    if not print_answer(folder, _STDOUT, "--json", limit_s=None):
        raise RunError(f"{folder}: recorded, but not analysed; to see why: perfkit analyze {shell_word(folder)}")


def print_end(folder: Path, *, with_answer: bool) -> None:
    """Print that a run is done, with the answer of its analysis if wanted and quick; else the command that shows it."""
    how = f"to see where the time went: perfkit analyze {shell_word(folder)}"
    if not (with_answer and has_small_traces(folder)):
        print_line("\n".join([f"{folder}: done; {how}", *hangs_in_words(folder)]))
        return
    print_line(f"{folder}: done\n")
    sys.stdout.flush()
    if not print_answer(folder, _STDOUT):
        print_line(how)


_RANKS: Final = rank_option("the ranks of mpiexec, torchrun or srun, else one")
_REPORT: Final = parameter(
    "report",
    bool,
    typer.Option(
        "--report/--no-report",
        rich_help_panel="Run",
        help="Print the summary of perfkit analyze at the end [default: --report].",
    ),
)
_JSON: Final = parameter(
    "json",
    bool,
    typer.Option(
        "--json", rich_help_panel="Run", help="Print the report at the end as JSON, as perfkit analyze --json does."
    ),
)

_PLAIN: Final = re.compile(r"[\w.+-]+")
"""Names of scripts that a shell completes: some shells evaluate what they are given."""


class Workloads(Group):
    """Imports a workload when it is used. Of several ranks only one reports a usage error."""

    _script: str | None = None

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; `-m NAME` stands for a script, and `-n N` may come first, as mpiexec has it.

        Raises:
            UsageError: The name is missing.
        """
        ranks = args[:2] if args[:1] == ["-n"] else []
        given = module_in(args[len(ranks) :])
        if ranks and not given:
            raise UsageError("run -n: the workload or script is missing: perfkit run gpt -n 2")
        _refuse_options_first(given)
        return super().parse_args(ctx, [*given[:1], *ranks, *given[1:]])

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the workloads; for a shell that completes a line, also the scripts of this folder."""
        scripts = (path.name for path in Path().glob("*.py")) if ctx.resilient_parsing else ()
        return [*super().list_commands(ctx), *sorted(name for name in scripts if _PLAIN.fullmatch(name))]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the stand-in of a workload; for a shell that completes a line, also of a script."""
        if ctx.resilient_parsing and cmd_name.endswith(".py"):
            return _SCRIPT
        return super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the command of the requested workload or script, in place of its stand-in.

        Raises:
            PluginError: A workload or source of another package that cannot be loaded.
            UsageError: A script that does not exist.
        """
        if isinstance(args[0], ModuleName) or (args[0] not in WORKLOADS and is_script(args[0])):
            self._script = args[0]
            own, arguments = split(args[1:])
            start = partial(script.start, args[0], arguments)
            return args[0], get_command(script_options.application(args[0], start, [_RANKS])), own
        name, _, rest = super().resolve_command(ctx, args)
        with exit_on_sigint():  # a plug-in may import torch
            workload = load_workload(str(name))
            more = [_RANKS, _REPORT, _JSON]
            return name, get_command(application(workload, rest, partial(_start, workload), more)), rest

    def invoke(self, ctx: Any) -> Any:
        """Run the workload's command.

        Raises:
            UsageError: An option is unknown, which may be one of the script's.
        """
        try:
            return super().invoke(ctx)
        except (typer.TyperException, UsageError) as error:
            if error.exit_code == UsageError.exit_code:
                leave_error_to_rank_0()
            if isinstance(error, typer.TyperException) and self._script is not None:
                clearer = with_hint(error, self._script)
                if clearer is not None:
                    raise clearer from error
            raise


def _refuse_options_first(args: list[str]) -> None:
    """Refuse options before the workload or script: which there are depends on it.

    Raises:
        UsageError: There are some.
    """
    later = next((word for word in args[1:] if word == "-m" or word in WORKLOADS or Path(word).is_file()), None)
    if later is not None and args[0].startswith("-"):
        what = "-m MODULE" if later == "-m" else later
        raise UsageError(f"{args[0]}: options come after the workload or script: perfkit run {what} {args[0]} …")


_scripts = App()
_scripts.command(help="Run this script.")(lambda: None)
_SCRIPT: Final = get_command(_scripts)

app = App(cls=Workloads, subcommand_metavar="WORKLOAD|SCRIPT.py|-m MODULE [OPTIONS] [-- ARGUMENTS]")
for _name in WORKLOADS.names():
    app.command(_name, help=f"`perfkit run {_name} --help` lists its options.")(lambda: None)


@app.callback()
def run() -> None:
    """Train a workload, or run your own training script or module unchanged, and record one trace per rank.

    Arguments after `--` are passed to the script. `perfkit run train.py --help` lists the options.

    mpiexec, torchrun or srun start the ranks; `-n N`, after WORKLOAD, SCRIPT.py or MODULE, starts N on
    this host. Without any of them there is one rank.

    \b
    perfkit run gpt -n 2                               a workload, on two ranks
    perfkit run train.py -n 2 -- --epochs 1            your script
    mpiexec -n 8 perfkit run train.py -- --epochs 1    under a launcher
    perfkit run -m package.train -n 2                  a module
    """  # noqa: D301  \b marks a paragraph that keeps its lines


def _start(workload: "WorkloadType", call: "Call", given: dict[str, Any]) -> None:
    ranks, with_report = given.pop("ranks", None), given.pop("report", True)
    json = given.pop("json", False)
    if json and not with_report:
        raise UsageError("--json prints the report, which --no-report leaves out: remove one of them")
    job = make_job(workload, given, ranks)
    check_packages(job)
    if ranks is None or is_child():
        with exit_on_sigint():  # torch is imported
            from perfkit.record.training.worker import run_rank
        folder = run_rank(job, call.debug)
        if folder is not None and json:
            print_report(folder)
        elif folder is not None:
            print_end(folder, with_answer=with_report and job.run.profile)
    else:
        refuse_inside_launcher()
        job.check_world(ranks)
        launch(call.arguments, ranks)
