"""Paths of recordings: `run.sqlite@1234` is process 1234 of `run.sqlite`, a path that only perfkit knows.

As the processes of a file are paths beside it, everything that takes the trace of a rank takes them.
"""

import re
from pathlib import Path
from typing import Final

SUFFIX: Final = ".sqlite"
REPORT_SUFFIX: Final = ".nsys-rep"
"""What `nsys profile` writes, in a format of its own."""
MAGIC: Final = b"SQLite format 3\0"
_PART: Final = re.compile(r"(.+\.sqlite)@(\d{1,8})", re.DOTALL)


def split_path(path: Path) -> tuple[Path, int | None]:
    """Return the file that a path is in, and the process of it that the path names; None for a file's own path."""
    match = _PART.fullmatch(path.name)
    if match is None or path.exists():
        return path, None
    return path.with_name(match[1]), int(match[2])


def on_disk(path: Path) -> Path:
    """Return the file that a path of a trace is in."""
    return split_path(path)[0]


def is_recording(path: Path) -> bool:
    """Return whether a path is of an SQLite file, of a process in one, or of a report that nsys can export to one."""
    file = on_disk(path)
    if not file.is_file() or file.suffix == REPORT_SUFFIX:
        return file.suffix == REPORT_SUFFIX
    try:
        with file.open("rb") as stream:
            return stream.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def trace_path(run: Path, name: str) -> Path:
    """Return the path of a run's trace, by its name; `run` is a folder, a trace, or a file with several processes."""
    if run.name == name:
        return run
    match = _PART.fullmatch(name)
    return run.with_name(name) if match and match[1] == run.name else run / name
