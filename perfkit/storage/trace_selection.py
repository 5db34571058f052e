"""One trace out of what a path holds, for what shows a single one."""

from pathlib import Path

from perfkit.errors import TraceError, UsageError
from perfkit.storage.discovery import find_run
from perfkit.storage.filenames import rank_in_name


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
    run = find_run(path)
    return _of_rank(run.path, run.traces, rank)


def _of_rank(folder: Path, traces: list[Path], rank: int | None) -> Path:
    """Return the first trace in order of rank, by the number in its name; nameless ones last."""
    numbered = [(rank_in_name(trace.name), trace) for trace in traces]
    if rank is None:
        return min(numbered, key=lambda item: (item[0] is None, item[0] or 0))[1]
    for number, trace in numbered:
        if number == rank:
            return trace
    known = sorted({number for number, _ in numbered if number is not None})
    has = f"ranks {known[0]} to {known[-1]}" if known else "no trace with a rank in its name"
    raise TraceError(f"{folder}: no trace of rank {rank}; it has {has}")
