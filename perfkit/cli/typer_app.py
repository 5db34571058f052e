"""Building blocks of the command line: an application whose help is plain, and options of several commands."""

import logging
import os
import socket
from collections.abc import Callable, Collection, Iterable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from perfkit.base.formatting import escape_unprintable, install_extra
from perfkit.cli.help_screen import Command, Group
from perfkit.errors import LaunchEnvironmentError, PerfkitError, StoreError

if TYPE_CHECKING:
    from perfkit.pipeline.summarize import Options

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


class App(typer.Typer):
    """An application whose commands have a short help and a full one; takes the arguments of `typer.Typer`.

    Rich help truncates long option names and descriptions at 80 columns, and interprets `[...]` in a text as markup.
    """

    def __init__(self, *, cls: type[TyperGroup] = Group, add_completion: bool = False, **settings: Any) -> None:
        super().__init__(cls=cls, add_completion=add_completion, rich_markup_mode=None, **settings)

    def command(
        self, name: str | None = None, *, cls: type[TyperCommand] | None = Command, **settings: Any
    ) -> Callable[[FunctionT], FunctionT]:
        return super().command(name, cls=cls, **settings)


def print_line(text: str) -> None:
    """Print text on stdout; names of files and folders in it may contain anything."""
    typer.echo("\n".join(map(escape_unprintable, text.split("\n"))))


class _Coercion:
    """What typer converts a parameter's values with; what has the right type already is passed on."""

    def __init__(self, converter: Callable[[], Any]) -> None:
        self._converter = converter

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the value; typer publishes neither type."""
        annotation = param.type_descriptor.annotation
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        if type(value) is annotation:
            return value
        if annotation == list[str] and isinstance(value, list | tuple):
            return list(value)
        return self._converter().coerce(value, param=param, ctx=ctx)


def converting_lazily(command: Any) -> Any:
    """Return a command that converts only what has to be: pydantic, which typer does it with, takes 0.1 s and 14 MB."""
    parameters = command.get_params

    def get_params(ctx: Any) -> list[Any]:
        found = parameters(ctx)
        for parameter in found:
            converter = getattr(parameter, "get_runtime_param", None)
            if converter and not isinstance(converter, partial):
                parameter.get_runtime_param = partial(_Coercion, converter)
        return list(found)

    command.get_params = get_params
    return command


def announce(what: str, link: str, port: int, *, browser: bool, until: str = "Serving until Ctrl-C") -> None:
    """Print the link, and open the browser if requested and the user sits at this machine."""
    print_line(f"{what}\n  {link}")
    if browser and not ("SSH_CONNECTION" in os.environ and not os.environ.get("DISPLAY")):
        import webbrowser

        opened = webbrowser.open(link)
    else:
        opened = False
    if not opened:
        print_line(f"From another machine, first run:  ssh -L {port}:127.0.0.1:{port} {socket.gethostname()}")
    print_line(until)


def check_folders(paths: Iterable[Path]) -> None:
    """Check that all paths are folders.

    Raises:
        StoreError: One is not.
    """
    for path in paths:
        if not path.is_dir():
            raise StoreError(f"{path}: {'not a folder' if path.exists() else 'no such folder'}")


def require_packages(command: str, packages: Iterable[tuple[str | None, str | None]]) -> None:
    """Refuse a command if a package is not installed.

    Raises:
        LaunchEnvironmentError: Naming the package.
    """
    for package, extra in packages:
        if package is not None and find_spec(package.partition(".")[0]) is None:
            remedy = f"pip install {package}" if extra is None else install_extra(extra)
            raise LaunchEnvironmentError(f"`{command}` needs {package}, which is not installed: {remedy}")


READING: Final = "Reading traces"
"""Group of the options of how traces are read."""
StepMarker = Annotated[
    str | None,
    typer.Option(
        metavar="REGEX", rich_help_panel=READING, help="Annotations that mark steps, instead of `ProfilerStep#N`."
    ),
]
DataMarker = Annotated[
    str | None,
    typer.Option(
        metavar="REGEX",
        rich_help_panel=READING,
        help="Annotations and Python functions that load data, such as `get_batch`, besides torch's DataLoader.",
    ),
]
KernelRules = Annotated[
    Path | None,
    typer.Option(metavar="FILE", rich_help_panel=READING, help="TOML file with rules for the names of device kernels."),
]
MaxBytes = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="<int>",
        rich_help_panel=READING,
        help="Maximum decompressed size of a trace; also disables the check for decompression bombs.  "
        "[default: 64 GiB, with this check]",
    ),
]
READING_OPTIONS: Final = {
    "step_marker": StepMarker,
    "data_marker": DataMarker,
    "kernel_rules": KernelRules,
    "max_bytes": MaxBytes,
}
"""Options of all commands that read traces; `read_options` takes them."""


def read_options(
    step_marker: str | None, data_marker: str | None, kernel_rules: Path | None, max_bytes: int | None
) -> "Options":
    """Return these options as one record, with the rules read from their file."""
    from perfkit.pipeline.summarize import Options
    from perfkit.storage.kernel_rules_file import load_kernel_rules

    return Options(
        step_marker=step_marker,
        data_marker=data_marker,
        kernel_rules=load_kernel_rules(kernel_rules),
        max_bytes=max_bytes,
    )


RankList = Annotated[
    str | None, typer.Option(metavar="LIST", help="Ranks to include, such as 0,7 or 0-3 [default: all].")
]


COMPLETION_VARIABLE: Final = "_PERFKIT_COMPLETE"
"""Set by a shell that asks what TAB completes (`perfkit --install-completion`); typer has the protocol."""


def answer_shell(command: Any) -> int:
    """Print the completions of a command line that is being typed, and return the exit code.

    What is typed so far may be wrong: nothing is printed about that, because it would appear in the prompt.

    Args:
        command: The whole command line; typer does not publish its type.
    """
    logging.disable(logging.WARNING)
    try:
        command.main(args=[], prog_name="perfkit")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    except (PerfkitError, typer.TyperException):
        return 1
    finally:
        logging.disable(logging.NOTSET)
    return 0


def among(names: Iterable[str]) -> Callable[[str], list[str]]:
    """Return the `autocompletion` of an option or argument whose values are checked elsewhere than by typer."""

    def matching(incomplete: str) -> list[str]:
        return [name for name in names if name.startswith(incomplete)]

    return matching


def chosen_from(names: Callable[[], Collection[str]]) -> dict[str, Any]:
    """Return the arguments of `typer.Option` that complete and check one of some names, or several."""

    def check(given: Any) -> Any:
        for name in given if isinstance(given, list) else [given]:
            if name is not None and name not in names():
                raise typer.BadParameter(f"'{name}' is not one of {', '.join(names())}")
        return given

    return {"callback": check, "autocompletion": among(names())}
