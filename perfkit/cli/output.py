"""Where a command's report goes: standard output or files, each in its format."""

import io
import os
import sys
from collections.abc import Sequence
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, Final, TextIO

import typer
from msgspec import Struct

from perfkit.base.formatting import size
from perfkit.base.standard_streams import write_stderr
from perfkit.cli.config_options import parameter
from perfkit.cli.help_screen import Common
from perfkit.cli.typer_app import chosen_from
from perfkit.errors import UsageError
from perfkit.records.report import Report
from perfkit.report import FORMATS, Reporter, builtin_suffixes, format_names, reporter, reporter_for
from perfkit.report.output_files import refuse_links
from perfkit.tools.trackers import send, split_address

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
        help=f"Also write to FILE, in the format of its suffix: {suffixes}; may be repeated.",
    )


def format_option(record: type, panel: str | None = None) -> Any:
    """Return the description of `-f` for a record type."""
    return typer.Option(
        "-f",
        "--format",
        metavar=f"<{'|'.join(format_names(record))}>",
        rich_help_panel=panel,
        **chosen_from(lambda: format_names(record)),
        help="Format on stdout.  [default: rich]",
    )


def output_parameters(record: type, panel: str, json_panel: str) -> list[Parameter]:
    """Return `-o`, `-f` and `--json`, of commands whose options are records; `take_outputs` takes them."""
    json = typer.Option("--json", rich_help_panel=json_panel, help=JSON_HELP)
    return [
        parameter("output", list[Path], output_option(record, Common(panel))),
        parameter("format", str, format_option(record, panel)),
        parameter("json", bool, json),
    ]


def take_outputs(record: type, given: dict[str, Any]) -> list[tuple[Path, Reporter]]:
    """Return where a record goes, as `shown_and_written`, and take out of `given` what says so."""
    output, name, json = (given.pop(option, None) for option in ("output", "format", "json"))
    return shown_and_written(record, name, output, bool(json))


def shown_and_written(
    record: type, name: str | None, output: Sequence[Path] | None, json: bool
) -> list[tuple[Path, Reporter]]:
    """Return where a record goes, each path with its reporter: files by their suffixes, and stdout in a format.

    Raises:
        UsageError: no format has a file's suffix, or `--json` and `-f` contradict each other.
    """
    files = [(path, reporter_for(record, path)) for path in output or []]
    return [*files, (STDOUT, reporter(record, format_on_stdout(name, json) or "rich"))]


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


def write_files(record: Any, files: Sequence[tuple[Path, Reporter]], top: int) -> None:
    """Write a record to each file with its reporter; `-` is stdout, which comes last because its reader may be gone."""
    from perfkit.report.output_files import writing, writing_bytes

    for path, chosen in sorted(files, key=lambda file: file[0] == STDOUT):
        if path == STDOUT:
            chosen.write(record, sys.stdout.buffer if chosen.binary else standard_output(chosen), top=top)
            continue
        with writing_bytes(path) if chosen.binary else writing(path) as stream:
            chosen.write(record, stream, top=top)
        report_written(path, _which_figure(record, chosen))


def _which_figure(record: Any, chosen: Reporter) -> str:
    """Return which of several charts of a name has been written; empty of anything else."""
    name = getattr(chosen, "figure", None)
    if name is None:
        return ""
    from perfkit.report.charts.run import which_figure

    return which_figure(record, name)


def report_written(path: Path, detail: str = "") -> None:
    """Say on stderr which file or folder was written, for example `Wrote page.html (307 kB)`; nothing of a pipe."""
    files = [path] if path.is_file() else [one for one in path.rglob("*") if one.is_file() and not one.is_symlink()]
    if files:
        total = size(sum(one.stat().st_size for one in files))
        write_stderr(f"Wrote {path} ({total}){': ' if detail else ''}{detail}")


def standard_output(reporter: Reporter) -> TextIO:
    """Return stdout, set so that no name in a trace can break it: data is UTF-8, text keeps the locale's encoding."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        if ".txt" in reporter.suffixes:
            sys.stdout.reconfigure(errors="replace")
        else:
            sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    return sys.stdout


PAGES: Final = "reports"
"""Folder for HTML pages, in the working directory."""


class Targets(Struct, frozen=True):
    """Where a report goes."""

    files: Sequence[tuple[Path, Reporter]]
    """Each path with its format; `STDOUT` is standard output."""
    trackers: Sequence[tuple[str, str]]

    @property
    def has_page(self) -> bool:
        """Whether one of the files is an HTML page."""
        return any(_is_page(chosen) for _, chosen in self.files)

    @property
    def is_answer(self) -> bool:
        """Whether nothing but the short answer is written."""
        summary = FORMATS[Report]["summary"]
        return not self.trackers and all(chosen is summary for _, chosen in self.files)


def _is_page(chosen: Reporter) -> bool:
    return chosen is FORMATS[Report]["html"]


def targets_of(output: Sequence[str], name: str | None, json: bool) -> Targets:
    """Return where the values of `-o` send a report, in the format `name` or that of each suffix.

    Raises:
        UsageError: The options contradict each other, or a format is unknown.
    """
    trackers = [split for target in output if (split := split_address(target))]
    paths = [Path(target) for target in output if not split_address(target)]
    shown: list[tuple[Path, Reporter]] = []
    if json:
        shown, name = [(STDOUT, reporter(Report, format_on_stdout(name, json) or ""))], None
    elif name is not None and len(paths) > 1:
        raise UsageError(f"-f {name} is the format of one FILE: for {len(paths)} files, leave -f out and use suffixes")
    files = [
        (path, reporter_for(Report, path) if name is None and path.suffix else reporter(Report, name or "summary"))
        for path in paths or ([] if json else [STDOUT])
    ]
    return Targets([*files, *shown], trackers)


def write_report(report: Report, drawn: Report, targets: Targets, top: int) -> None:
    """Write the files and send to the trackers; pages contain the timelines of `drawn`, the same report with them."""
    write_files(drawn, [file for file in targets.files if _is_page(file[1])], top)
    write_files(report, [file for file in targets.files if not _is_page(file[1])], top)
    for tracker, address in targets.trackers:
        for place in send(report, tracker, address):
            write_stderr(f"perfkit: {tracker}: {place}")


def write_sections(report: Report, names: list[str], top: int) -> None:
    """Print the tables about the named subjects."""
    from perfkit.report.renderers.console import write_subjects

    write_subjects(report, standard_output(reporter(Report, "rich")), top=top, subjects=names)


def write_page(report: Report, paths: list[str], top: int) -> None:
    """Write the HTML page, named after the input."""
    name = report.runs[0].run if len(report.runs) == 1 else Path(os.path.commonpath(map(os.path.abspath, paths))).name
    page = Path(PAGES, f"{name.replace('/', '-') or 'report'}.html")
    refuse_links(page.parent, page, instead="to write through it, give the file with -o")
    write_files(report, [(page, reporter(Report, "html"))], top)
