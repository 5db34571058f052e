"""One trace out of what a path holds, for what shows a single one."""

import re
from pathlib import Path
from typing import Final

from perfkit.errors import TraceError, UsageError
from perfkit.trace.discover import discover

_RANK: Final = re.compile(r"rank[-_.]?(\d{1,9})(?!\d)", re.IGNORECASE)


def choose_trace(path: Path, rank: int | None) -> Path:
    """Return the trace at `path`, or of the run in that folder the first trace of `rank` (of the lowest, if None).

    Raises:
        TraceError: there is no such file, no trace, or none of that rank.
        UsageError: a file and a rank are given, or the folder holds several runs.
    """
    if path.is_file():
        if rank is not None:
            raise UsageError(f"--rank {rank} chooses among the traces of a folder, and {path} is a file")
        return path
    runs = [run for run in discover([path]) if run.traces]
    if not runs:
        raise TraceError(f"{path}: the run there wrote no trace")
    if len(runs) > 1:
        names = ", ".join(str(run.path) for run in runs[:3]) + (", ..." if len(runs) > 3 else "")
        raise UsageError(f"{path} holds {len(runs)} runs: give one of them ({names})")
    return _of_rank(runs[0].path, runs[0].traces, rank)


def _of_rank(folder: Path, traces: list[Path], rank: int | None) -> Path:
    """Return the first trace in order of rank, by the number in its name; nameless ones last."""
    numbered = [(int(found[1]) if (found := _RANK.search(trace.name)) else None, trace) for trace in traces]
    if rank is None:
        return min(numbered, key=lambda item: (item[0] is None, item[0] or 0))[1]
    for number, trace in numbered:
        if number == rank:
            return trace
    known = sorted({number for number, _ in numbered if number is not None})
    has = f"ranks {known[0]} to {known[-1]}" if known else "no trace with a rank in its name"
    raise TraceError(f"{folder}: no trace of rank {rank}; it has {has}")
