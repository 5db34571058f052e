"""Print where the time of a recorded script went, after its own output."""

import os
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Final

from perfkit.storage.run_folder import list_files
from perfkit.util.child_python import child_python

_MOST_BYTES: Final = 30_000_000
"""Larger traces (compressed, of all ranks) take longer than a script's end may wait."""
_LIMIT_S: Final = 60.0
_STDERR: Final = 2


def print_answer(folder: Path) -> None:
    """Print the answer of `perfkit analyze` on stderr; nothing if the traces are large, or it fails.

    In a process of its own, because the script's modules and memory are not perfkit's to use.
    """
    if sum((folder / file.path).stat().st_size for file in list_files(folder) if file.kind == "trace") > _MOST_BYTES:
        return
    command = [*child_python("perfkit.cli", "main"), "analyze", str(folder), "--executor", "serial"]
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_LIMIT_S, check=True)
        os.write(_STDERR, done.stdout)
