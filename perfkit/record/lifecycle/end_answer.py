"""Print where the time of a run went as it ends: the answer of `perfkit analyze`."""

import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Final

from perfkit.base.process import child_python
from perfkit.storage.hang_log import observe_hangs
from perfkit.storage.run_folder import list_files

_MOST_BYTES: Final = 30_000_000
"""Larger traces (compressed, of all ranks) take longer than the devices of a job may wait for its end."""
_LIMIT_S: Final = 60.0


def has_small_traces(folder: Path) -> bool:
    sizes = [file.bytes for file in list_files(folder) if file.kind == "trace"]
    return bool(sizes) and sum(sizes) <= _MOST_BYTES


def hangs_in_words(folder: Path) -> list[str]:
    """Return the hangs of a run, a sentence each: for the end of one whose answer is not printed."""
    observed = list(observe_hangs(folder))
    if not observed:
        return []
    from perfkit.report.wording.findings import word_all  # not before it is needed: a script waits for its end

    return [finding.message for finding in word_all(observed)]


def print_answer(folder: Path, descriptor: int, *options: str, limit_s: float | None = _LIMIT_S) -> bool:
    """Print the answer on an open file, such as 1 for stdout, and return whether it worked; an error prints nothing.

    `options` are further ones of `perfkit analyze`.

    In a separate process, because a script's modules and memory are not perfkit's to use. It writes to the file
    itself, so that a terminal's width and colours are known. A run is complete without its analysis: an error of that
    is no error of the run.
    """
    command = [*child_python("perfkit.cli", "main"), "analyze", str(folder), "--executor", "serial", *options]
    nowhere = subprocess.DEVNULL
    with suppress(OSError, subprocess.SubprocessError):
        subprocess.run(command, stdin=nowhere, stdout=descriptor, stderr=nowhere, timeout=limit_s, check=True)
        return True
    return False
