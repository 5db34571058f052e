"""Where a command's report goes: standard output or files, each in its format."""

import io
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

import typer

from perfkit.report import Reporter, format_names

STDOUT = Path("-")


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

    for path, reporter in sorted(files, key=lambda file: file[0] == STDOUT):
        if path == STDOUT:
            reporter.write(record, sys.stdout.buffer if reporter.binary else standard_output(reporter), top=top)
            continue
        with writing_bytes(path) if reporter.binary else writing(path) as stream:
            reporter.write(record, stream, top=top)


def standard_output(reporter: Reporter) -> TextIO:
    """Return stdout, set so that no name in a trace can break it: data is UTF-8, text keeps the locale's encoding."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        if ".txt" in reporter.suffixes:
            sys.stdout.reconfigure(errors="replace")
        else:
            sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    return sys.stdout
