"""Where `perfkit analyze` writes a report: files, sections on the terminal, trackers, and the page of `--html`."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from perfkit.base.standard_streams import write_stderr
from perfkit.cli.output import STDOUT, format_on_stdout, standard_output, write_files
from perfkit.errors import UsageError
from perfkit.records.report import Report
from perfkit.report import FORMATS, Reporter, reporter, reporter_for
from perfkit.report.output_files import refuse_links
from perfkit.tools.trackers import send, split_address

PAGES: Final = "reports"
"""Folder for HTML pages, in the working directory."""


class Targets(Struct, frozen=True):
    """Where a report goes."""

    files: Sequence[tuple[Path, Reporter]]
    """Each path with its format; `STDOUT` is standard output."""
    trackers: Sequence[tuple[str, str]]
    """Names and addresses."""

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
    return Targets(_files(paths, name, json), trackers)


def write_report(report: Report, drawn: Report, targets: Targets, top: int) -> None:
    """Write the files and send to the trackers; pages contain the timelines of `drawn`, the same report with them."""
    write_files(drawn, [file for file in targets.files if _is_page(file[1])], top)
    write_files(report, [file for file in targets.files if not _is_page(file[1])], top)
    for tracker, address in targets.trackers:
        for place in send(report, tracker, address):
            write_stderr(f"perfkit: {tracker}: {place}")
    written = ", ".join(str(path) for path, _ in targets.files if path != STDOUT)
    if written and sys.stderr.isatty():
        write_stderr(f"perfkit: report: {written}")


def write_sections(report: Report, names: list[str], top: int) -> None:
    """Print the tables about the named subjects."""
    from perfkit.report.renderers.console import write_subjects

    write_subjects(report, standard_output(reporter(Report, "rich")), top=top, subjects=names)


def write_page(report: Report, paths: list[str], top: int) -> None:
    """Write the HTML page, named after the input, and print its path."""
    name = report.runs[0].run if len(report.runs) == 1 else Path(os.path.commonpath(map(os.path.abspath, paths))).name
    page = Path(PAGES, f"{name.replace('/', '-') or 'report'}.html")
    refuse_links(page.parent, page, instead="to write through it, give the file with -o")
    write_files(report, [(page, reporter(Report, "html"))], top)
    write_stderr(f"perfkit: page: {page}")


def _files(given: list[Path] | None, name: str | None, json: bool) -> list[tuple[Path, Reporter]]:
    """Return where the report goes, each path with its reporter; `-` is standard output."""
    if json:
        format_on_stdout(name, json)
        return [*((path, _reporter(path, None)) for path in given or []), (STDOUT, reporter(Report, "json"))]
    output = given or [STDOUT]
    if name is not None and len(output) > 1:
        raise UsageError(f"-f {name} is the format of one FILE: for {len(output)} files, leave -f out and use suffixes")
    return [(path, _reporter(path, name)) for path in output]


def _reporter(path: Path, name: str | None) -> Reporter:
    """Return the reporter called `name`, else the one that the suffix of `path` selects."""
    if name is None and path.suffix:
        return reporter_for(Report, path)
    return reporter(Report, name or "summary")
