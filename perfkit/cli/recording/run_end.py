"""What `perfkit run` prints about a run that has ended: where it is, and where the time went."""

import sys
from pathlib import Path
from typing import Final

from perfkit.capture.lifecycle.end_answer import has_small_traces, print_answer
from perfkit.cli.typer_app import print_line
from perfkit.errors import RunError
from perfkit.util.formatting import shell_word

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
        print_line(f"{folder}: done; {how}")
        return
    print_line(f"{folder}: done\n")
    sys.stdout.flush()
    if not print_answer(folder, _STDOUT):
        print_line(how)
