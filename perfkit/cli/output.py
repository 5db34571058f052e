"""Where a command's report goes: standard output or files, each in its format."""

import io
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from perfkit.cli.completion import among
from perfkit.errors import UsageError
from perfkit.report import Reporter, builtin_suffixes, format_names, reporter, reporter_for

STDOUT = Path("-")

JSON_HELP = "Print JSON on stdout."
Json = Annotated[bool, typer.Option("--json", help=JSON_HELP)]
"""The same switch in every command that prints a result."""


def output_option(record: type, panel: str | None = None) -> Any:
    """Return the description of `-o` for a record type: files beside what is shown on stdout."""
    suffixes = ", ".join(builtin_suffixes(record))
    return typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        rich_help_panel=panel,
        help=f"Also write to FILE, format by suffix ({suffixes}); may be repeated.",
    )


def format_option(record: type, panel: str | None = None, default: str = "") -> Any:
    """Return the description of `-f` for a record type; `default` is its text where the command has none itself."""
    return typer.Option(
        "-f",
        "--format",
        metavar=f"<{'|'.join(format_names(record))}>",
        rich_help_panel=panel,
        callback=format_check(record),
        autocompletion=among(format_names(record)),
        help=f"Format on stdout.{default}",
    )


def shown_and_written(
    record: type, name: str | None, output: Sequence[Path] | None, json: bool, default: str = "rich"
) -> list[tuple[Path, Reporter]]:
    """Return where a record goes, each path with its reporter: files by their suffixes, and stdout in a format.

    Args:
        record: Its type.
        name: The format on stdout that was asked for by `-f`, if any.
        output: The files.
        json: Whether `--json` was given.
        default: The format on stdout otherwise.

    Raises:
        UsageError: no format has a file's suffix, or `--json` and `-f` contradict each other.
    """
    files = [(path, reporter_for(record, path)) for path in output or []]
    return [*files, (STDOUT, reporter(record, format_on_stdout(name, json) or default))]


def format_on_stdout(name: str | None, json: bool) -> str | None:
    """Return the format that `-f` or `--json` asks for; None if neither was given.

    Raises:
        UsageError: They contradict each other.
    """
    if not json:
        return name
    if name not in (None, "json"):
        raise UsageError(f"--json and -f {name} are two formats of stdout: give one")
    return "json"


def format_check(record: type) -> Callable[[str | None], str | None]:
    """Return the callback of `-f`: it rejects names that are not a format of the record type."""

    def check(name: str | None) -> str | None:
        if name is not None and name not in format_names(record):
            raise typer.BadParameter(f"'{name}' is not one of {', '.join(format_names(record))}")
        return name

    return check


def write_files(record: Any, files: Sequence[tuple[Path, Reporter]], top: int) -> None:
    """Write a record to each file with its reporter; `-` is stdout, which comes last because its reader may be gone."""
    from perfkit.report.output_files import writing, writing_bytes

    for path, chosen in sorted(files, key=lambda file: file[0] == STDOUT):
        if path == STDOUT:
            chosen.write(record, sys.stdout.buffer if chosen.binary else standard_output(chosen), top=top)
            continue
        with writing_bytes(path) if chosen.binary else writing(path) as stream:
            chosen.write(record, stream, top=top)


def standard_output(reporter: Reporter) -> TextIO:
    """Return stdout, set so that no name in a trace can break it: data is UTF-8, text keeps the locale's encoding."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        if ".txt" in reporter.suffixes:
            sys.stdout.reconfigure(errors="replace")
        else:
            sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    return sys.stdout
