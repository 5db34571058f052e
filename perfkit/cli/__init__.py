"""The command line: a table of commands, imported when used, and the one place where errors end."""

import difflib
import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import Any, Final, NamedTuple

import click

from perfkit._version import __version__
from perfkit.errors import PerfkitError


class Row(NamedTuple):
    """A command: where its `click.Command` is, and its line in the help."""

    target: str
    help: str


COMMANDS: Final[dict[str, Row]] = {
    "run": Row("perfkit.cli.run:command", "Train a workload and record a trace a rank."),
    "analyze": Row("perfkit.cli.analyze:command", "Say where each step's time went."),
    "schema": Row("perfkit.cli.schema:command", "Print the JSON Schema of a report or run.json."),
    "data": Row("perfkit.cli.data:command", "Prepare input data for the workloads."),
}

EXIT_USAGE: Final = 2
EXIT_BUG: Final = 70  # EX_SOFTWARE of sysexits.h
EXIT_INTERRUPTED: Final = 130  # 128 + SIGINT, as a shell has it
EXIT_BROKEN_PIPE: Final = 1  # as click has it

# Raised by click >= 8.2 for a group without a command; its message is the whole help.
_NO_ARGUMENTS: Any = getattr(click.exceptions, "NoArgsIsHelpError", ())


class Lazy(click.Group):
    """A group whose commands stand in `COMMANDS`, so that `--help` imports none of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the commands in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import and return a command; None if there is none of that name."""
        row = COMMANDS.get(cmd_name)
        if row is None:
            return None
        module, _, attribute = row.target.partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that was asked for, or suggest the one that was meant."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            meant = difflib.get_close_matches(name, COMMANDS, n=1)
            hint = f"did you mean '{meant[0]}'?" if meant else f"commands: {', '.join(COMMANDS)}"
            raise click.UsageError(f"no command '{name}'; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the table of commands from `COMMANDS`."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, row.help) for name, row in COMMANDS.items()])


@click.group(
    cls=Lazy,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="`perfkit COMMAND --help` describes a command.",
)
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(__version__, "-V", "--version", prog_name="perfkit")
@click.pass_context
def command(ctx: click.Context, debug: bool) -> None:
    """Find out where the time of a distributed PyTorch training step goes."""
    ctx.ensure_object(dict)["debug"] = debug
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; every error ends here, as one line."""
    state: dict[str, bool] = {}
    try:
        return _invoke(args, state)
    except PerfkitError as error:
        return _fail(str(error), error.exit_code, state)
    except _NO_ARGUMENTS as error:
        click.echo(error.format_message(), err=True)
        return EXIT_USAGE
    except click.ClickException as error:
        return _fail(_with_hint(error), error.exit_code, state)
    except (click.Abort, KeyboardInterrupt):
        return _fail("interrupted", EXIT_INTERRUPTED, state)
    except BrokenPipeError:
        # The reader has what it wanted (`| head`). Python flushes stdout once more on its way out.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    # The one place where everything else ends: a bug is one line too, and says how to see more.
    except Exception as error:  # noqa: BLE001
        what = f"unexpected {type(error).__name__}: {error}"
        again = "" if state.get("debug") else "; run `perfkit --debug ...` to see where, and report it"
        return _fail(what + again, EXIT_BUG, state)


def _invoke(args: Sequence[str] | None, state: dict[str, bool]) -> int:
    given = None if args is None else list(args)
    result = command.main(given, "perfkit", standalone_mode=False, obj=state)
    sys.stdout.flush()
    return result if isinstance(result, int) else 0


def _with_hint(error: click.ClickException) -> str:
    """Return click's message as one line that ends by saying where help is."""
    message = error.format_message().rstrip(".")
    context = error.ctx if isinstance(error, click.UsageError) else None
    return f"{message} (see `{context.command_path} --help`)" if context else message


def _fail(message: str, code: int, state: dict[str, bool]) -> int:
    """Print `message` as one line of plain text on stderr, under the traceback with `--debug`."""
    # Names from traces come up in messages: nothing of them may reach the terminal as control.
    from perfkit.units import plain

    if state.get("debug"):
        traceback.print_exc()
    click.echo(f"perfkit: error: {plain(' '.join(message.split()))}", err=True)
    return code
