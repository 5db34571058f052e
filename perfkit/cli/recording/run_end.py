"""What `perfkit run` prints about a run that has ended: where it is, and where the time went."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from perfkit.cli.typer_app import print_line
from perfkit.errors import PerfkitError

if TYPE_CHECKING:
    from perfkit.schema.report import Report

_MOST_BYTES: Final = 100_000_000
"""Larger traces (compressed, of all ranks) are not read at once: the devices of a job would wait for it."""


def print_end(folder: Path, *, with_answer: bool) -> None:
    """Print that a run is done, with the answer of its analysis if wanted and quick; else the command that shows it.

    A run is complete without its analysis: an error of that is no error of the run.
    """
    report = _analyse(folder) if with_answer else None
    if report is None:
        print_line(f"{folder}: done; to see where the time went: perfkit analyze {folder}")
        return
    from perfkit.cli.output import standard_output
    from perfkit.report import DEFAULT_TOP, reporter

    print_line(f"{folder}: done\n")
    summary = reporter(type(report), "summary")
    summary.write(report, standard_output(summary), top=DEFAULT_TOP)
    sys.stdout.flush()


def _analyse(folder: Path) -> "Report | None":
    from perfkit.pipeline.analyze import analyze
    from perfkit.storage.run_folder import list_files

    traces = [file for file in list_files(folder) if file.kind == "trace"]
    if not traces or sum((folder / file.path).stat().st_size for file in traces) > _MOST_BYTES:
        return None
    try:
        return analyze(str(folder), executor="serial")
    except PerfkitError:
        return None
