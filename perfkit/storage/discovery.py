"""From the paths a user gives to the runs that lie there.

A folder with a manifest is a run that perfkit wrote. Any other folder that holds traces is a run that some other
program wrote. Folders are searched all the way down, so a folder of run folders is all of them. Files that are named
one by one are a run by folder.
"""

import os
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, compress, count
from pathlib import Path
from typing import NamedTuple

from perfkit.errors import TraceError, UsageError
from perfkit.storage.filenames import without_suffix
from perfkit.storage.run_folder import FAILURE_NAME, MANIFEST_NAME, SWEEP_NAME
from perfkit.trace.event_decoding import SUFFIXES

_NOT_TRACES = frozenset({MANIFEST_NAME, FAILURE_NAME, SWEEP_NAME, "report.json"})
_SPEEDSCOPE = ".speedscope.json"


class RunLocation(NamedTuple):
    """Where a run lies."""

    name: str
    path: Path
    traces: list[Path]
    """In order of their names."""
    has_manifest: bool
    skipped_files: tuple[str, ...] = ()
    """Names of what is called as a trace and is no file."""


def find_runs(paths: Iterable[Path]) -> list[RunLocation]:
    """Return the runs under the paths, in the order given and then by name, each once.

    Raises:
        TraceError: a path does not exist, cannot be looked into, or holds no trace.
    """
    runs: dict[Path, RunLocation] = {}
    files: dict[Path, list[Path]] = {}
    for path in paths:
        if _is_folder(path):
            for location in _trace_files_below(path):
                runs.setdefault(location.path.resolve(), location)
        else:
            files.setdefault(path.resolve().parent, []).append(path)
    # A file that a folder given beside it holds already is not read twice.
    singles = [_of_files(group) for folder, group in files.items() if folder not in runs]
    return _unique_names([*runs.values(), *singles])


def find_run(path: Path) -> RunLocation:
    """Return the one run under a path that wrote traces.

    Raises:
        TraceError: the path does not exist, cannot be looked into, or holds no trace.
        UsageError: it holds several runs.
    """
    runs = [run for run in find_runs([path]) if run.traces]
    if not runs:
        raise TraceError(f"{path}: the run there wrote no trace")
    if len(runs) > 1:
        names = ", ".join(str(run.path) for run in runs[:3]) + (", ..." if len(runs) > 3 else "")
        raise UsageError(f"{path} holds {len(runs)} runs: give one of them ({names})")
    return runs[0]


def _unique_names(runs: list[RunLocation]) -> list[RunLocation]:
    """Make the names unique, by which runs are known from here on: before those that several have goes the folder.

    As many folders as it takes: sweeps of the same points in two folders have runs of the same names.
    """
    parts = _numbered([(*run.path.resolve().parent.parts[1:], run.name) for run in runs])
    depths = [1] * len(runs)
    while True:
        names = ["/".join(several[-depth:]) for several, depth in zip(parts, depths, strict=True)]
        often = Counter(names)
        deeper = [at for at, name in enumerate(names) if often[name] > 1 and depths[at] < len(parts[at])]
        if not deeper:
            return [run._replace(name=name) for run, name in zip(runs, names, strict=True)]
        for at in deeper:
            depths[at] += 1


def _numbered(paths: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Put a number after what is there twice: a trace may lie beside a run folder of its name."""
    taken: dict[tuple[str, ...], None] = {}
    for path in paths:
        numbers = ((*path[:-1], f"{path[-1]}#{number}") for number in count(2))
        taken[next(one for one in chain([path], numbers) if one not in taken)] = None
    return list(taken)


def _is_folder(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except FileNotFoundError as error:
        hint = f"; to write a page: -o {path}" if path.suffix == ".html" else ""
        raise TraceError(f"{path}: no such file or folder{hint}") from error
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from error
    return stat.S_ISDIR(mode)


def _of_files(files: list[Path]) -> RunLocation:
    files = list(dict.fromkeys(files))
    alone = len(files) == 1
    name = without_suffix(files[0].name) if alone else files[0].resolve().parent.name
    return RunLocation(name, files[0] if alone else files[0].parent, sorted(files), has_manifest=False)


def _trace_files_below(root: Path) -> Iterator[RunLocation]:
    found = False
    passed_over: list[str] = []
    seen: set[Path] = set()
    for folder, below, files in os.walk(root, onerror=_unreadable(root), followlinks=True):
        here = Path(folder).resolve()
        # Links may lead in circles. Hidden folders hold other programs' things. Sorted, the walk goes in order.
        below[:] = [] if here in seen else sorted(name for name in below if not name.startswith("."))
        named = [Path(folder, name) for name in sorted(files) if _is_trace(name)]
        are_files = [_is_file(path) for path in named]
        traces = list(compress(named, are_files))
        others = tuple(path.name for path, is_file in zip(named, are_files, strict=True) if not is_file)
        passed_over.extend(others)
        has_manifest = MANIFEST_NAME in files
        if here not in seen and (traces or has_manifest):
            found = True
            yield RunLocation(here.name, Path(folder), traces, has_manifest, others)
        seen.add(here)
    if not found:
        raise _no_traces_error(root, passed_over)


def _no_traces_error(root: Path, passed_over: list[str]) -> TraceError:
    kinds = " or ".join(f"*{suffix}" for suffix in SUFFIXES)
    also = ""
    if passed_over:
        also = f" ({passed_over[0]} is no regular file: a pipe is read only if its own path is given)"
    return TraceError(f"{root}: no trace ({kinds}) and no run folder here{also}; record one with `perfkit run`")


def _is_file(path: Path) -> bool:
    """Say whether a file is there: whoever reads a pipe waits for somebody to write, perhaps for ever."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError:  # a link to nowhere, say: why it cannot be read is said where it is
        return True


def _is_trace(name: str) -> bool:
    other = name in _NOT_TRACES or name.endswith(_SPEEDSCOPE)
    return name.endswith(SUFFIXES) and not other and not name.startswith(".")


def _unreadable(root: Path) -> Callable[[OSError], None]:
    """Return what to do about a folder that cannot be read: an error if it was asked for, else it is passed over."""

    def handle(error: OSError) -> None:
        if Path(error.filename) == root:
            raise TraceError(f"{root}: cannot be read: {error.strerror}") from error

    return handle
