"""The command line: a table of commands, imported on use, and the only place that catches every error."""

import errno
import logging
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any, Final, NamedTuple

import typer
from typer.main import get_command

from perfkit._version import __version__
from perfkit.base.formatting import text_of
from perfkit.base.log import configure
from perfkit.base.process import EXIT_INTERRUPTED, clear_pending_interrupt, prepare_for_reading
from perfkit.base.standard_streams import discard, settle_stderr, write_stderr
from perfkit.base.validation import plain_message
from perfkit.cli.help_screen import Group
from perfkit.cli.typer_app import COMPLETION_VARIABLE, App, answer_shell, converting_lazily
from perfkit.errors import PerfkitError


class Row(NamedTuple):
    """A command: its section in the help, the path of its `typer.Typer`, and its line in the help."""

    group: str
    target: str
    help: str


COMMANDS: Final[dict[str, Row]] = {
    "run": Row("Record", "perfkit.cli.recording.run:app", "Train a workload or a script; record one trace per rank."),
    "sweep": Row("Record", "perfkit.cli.recording.sweep:app", "Train at several world sizes, with several options."),
    "capture": Row("Record", "perfkit.cli.recording.capture:app", "Record the next steps of a run in progress."),
    "analyze": Row("Analyse", "perfkit.cli.analyze:app", "Show where the time of each step went."),
    "whatif": Row("Analyse", "perfkit.cli.whatif:app", "Predict how long a step would take after a change."),
    "diagnose": Row("Analyse", "perfkit.cli.diagnose:app", "Show which rank keeps the others waiting, and where."),
    "hta": Row("Analyse", "perfkit.cli.hta:app", "Run Holistic Trace Analysis on the same traces."),
    "schema": Row("Analyse", "perfkit.cli.schema:app", "Print the JSON Schema of a file that perfkit writes."),
    "compare": Row("Compare", "perfkit.cli.compare:app", "Report what changed between runs, and fail on regressions."),
    "history": Row("Compare", "perfkit.cli.compare:history_app", "Show step time and efficiency over runs or commits."),
    "watch": Row("View", "perfkit.cli.watch:app", "Watch runs while they train."),
    "view": Row("View", "perfkit.cli.view:app", "Open a trace in the Perfetto UI."),
    "serve": Row("View", "perfkit.cli.view:serve_app", "Show a folder of runs in the browser, live."),
    "mcp": Row("View", "perfkit.cli.mcp:app", "Answer the questions of agents about runs."),
    "merge": Row("View", "perfkit.cli.merge:app", "Merge all ranks of a run into one Perfetto timeline."),
    "stacks": Row("View", "perfkit.cli.stacks:app", "Export timed call stacks for flame graphs."),
    "doctor": Row("Prepare", "perfkit.cli.doctor:app", "Check what perfkit can use on this machine."),
    "plan": Row("Prepare", "perfkit.cli.plan:app", "Predict memory and step time of a run."),
    "peaks": Row("Prepare", "perfkit.cli.peaks:app", "Measure the peak FLOP/s and bandwidth of a device."),
    "collectives": Row("Prepare", "perfkit.cli.collectives:app", "Measure collectives; find slow pairs."),
    "input": Row("Prepare", "perfkit.cli.input:app", "Measure how fast samples are read, by source."),
    "data": Row("Prepare", "perfkit.cli.data:app", "Prepare input data for the workloads."),
}

_READING: Final = {"Analyse", "Compare", "View"}
"""Groups of commands that neither train nor measure."""

EXIT_BUG: Final = 70  # EX_SOFTWARE of sysexits.h
EXIT_FAILED: Final = 1
_OWN_PACKAGES: Final = {"perfkit", "perfkit_workloads"}
_FULL: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}
"""Errors of a stream that cannot be written to."""


@dataclass
class Call:
    """One use of the command line; `typer.Context.obj` of every command."""

    arguments: list[str]
    debug: bool = False


class Commands(Group):
    """Imports a command when it is used; until then a stand-in has its name and help."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, _, rest = super().resolve_command(ctx, args)
        row = COMMANDS[str(name)]
        if row.group in _READING:
            prepare_for_reading()
        module, _, attribute = row.target.partition(":")
        return name, converting_lazily(get_command(getattr(import_module(module), attribute))), rest

    # typer does not publish the type of a formatter.
    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands by group."""
        del ctx
        for group in dict.fromkeys(row.group for row in COMMANDS.values()):
            with formatter.section(group):
                formatter.write_dl([(name, row.help) for name, row in COMMANDS.items() if row.group == group])


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"perfkit, version {__version__}")
        raise typer.Exit


def perfkit(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    verbose: Annotated[
        int,
        typer.Option(
            "-v",
            "--verbose",
            count=True,
            metavar="",
            show_default=False,
            help="Log more to stderr; -vv logs everything.",
        ),
    ] = 0,
    _version: Annotated[
        bool,
        typer.Option("-V", "--version", is_eager=True, callback=_show_version, help="Show the version and exit."),
    ] = False,
) -> None:
    """Find out where the time of a distributed PyTorch training step goes."""
    context.obj.debug = debug
    configure(verbose)
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def application() -> typer.Typer:
    """Return the whole command line, with a stand-in for every command."""
    app = App(
        cls=Commands,
        callback=perfkit,
        add_completion=True,
        invoke_without_command=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog="`perfkit COMMAND --help` describes a command.",
    )
    for name, row in COMMANDS.items():
        app.command(name, help=row.help)(lambda: None)
    return app


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; every error is printed here, as one line."""
    call = Call(list(sys.argv[1:] if args is None else args))
    configure()
    try:
        return _flushed(_run(call), call)
    finally:
        settle_stderr()


def _run(call: Call) -> int:
    if _repeats_another_process():
        logging.getLogger("perfkit.plugins").setLevel(logging.ERROR)
    try:
        return _invoke(call)
    except PerfkitError as error:
        return _fail(str(error), error.exit_code, call)
    except typer.TyperException as error:
        return _fail(_with_hint(error), error.exit_code, call)
    except (typer.Abort, KeyboardInterrupt):
        return _interrupted(call)
    except BrokenPipeError:
        discard(sys.stdout)  # the reader has closed the pipe (`| head`)
        return EXIT_FAILED
    except OSError as error:
        # Files have their own errors; what has no name is stdout.
        if error.filename is None and error.errno in _FULL:
            discard(sys.stdout)
            return _fail(f"cannot write to stdout: {error.strerror}", EXIT_FAILED, call)
        return _fail_unexpectedly(error, call)
    # The outermost boundary: a bug is one line too, with a hint on how to see the traceback.
    except Exception as error:  # noqa: BLE001
        return _fail_unexpectedly(error, call)


def _flushed(code: int, call: Call) -> int:
    """Write what is left of stdout, and return the exit code: that of a command which has failed takes precedence."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        discard(sys.stdout)
        return code or EXIT_FAILED
    except OSError as error:
        discard(sys.stdout)
        return _fail(f"cannot write to stdout: {error.strerror}", code or EXIT_FAILED, call)
    return code


def _fail_unexpectedly(error: Exception, call: Call) -> int:
    if isinstance(error, ImportError) and (error.name or "").partition(".")[0] not in _OWN_PACKAGES:
        # Such as a torch that is installed, but lacks a library.
        return _fail(f"a package cannot be imported: {text_of(error)}; see `perfkit doctor`", EXIT_FAILED, call)
    what = f"unexpected {type(error).__name__}: {text_of(error)}"
    again = "" if call.debug else "; run `perfkit --debug ...` to see where, and report it"
    return _fail(what + again, EXIT_BUG, call)


def _repeats_another_process() -> bool:
    """Return whether `-n` or a launcher started this process beside one that gives the same warnings."""
    from perfkit.record.distributed.known_launchers import RENDEZVOUS_VARIABLE, is_rank_above_0

    return RENDEZVOUS_VARIABLE in os.environ or is_rank_above_0(os.environ)


def _invoke(call: Call) -> int:
    # `main()` of the command would print errors itself and turn an interrupt into an exit code.
    command = converting_lazily(get_command(application()))
    if COMPLETION_VARIABLE in os.environ:
        return answer_shell(command)
    try:
        with command.make_context("perfkit", list(call.arguments), obj=call) as context:
            command.invoke(context)
    except typer.Exit as end:
        return end.exit_code
    return 0


def _interrupted(call: Call) -> int:
    from perfkit.record.lifecycle.local_launch import is_child

    if is_child():
        from perfkit.record.lifecycle.parent_watch import exit_now

        exit_now(-signal.SIGINT)
    clear_pending_interrupt()
    return _fail("interrupted", EXIT_INTERRUPTED, call)


def _with_hint(error: typer.TyperException) -> str:
    """Return the message of a usage error, with the command that prints help."""
    context = getattr(error, "ctx", None)
    message = plain_message(error.format_message().rstrip("."))
    return f"{message} (see `{context.command_path} --help`)" if context else message


def _fail(message: str, code: int, call: Call) -> int:
    """Print `message` as one line of plain text on stderr, under the traceback with `--debug`."""
    if call.debug:
        traceback.print_exc()
    write_stderr(f"perfkit: error: {' '.join(message.split())}")
    return code
