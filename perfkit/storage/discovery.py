"""Find the runs and traces under the paths that a user gives.

A folder with a manifest is a run that perfkit recorded; the captures in it are runs only if they are given. Any other
folder with traces is a run that another program recorded. Folders are searched recursively, so a folder of run folders
is all of them, without the links in them: a link could lead anywhere. Files and folders that are named one by one are
read whatever they are; files are grouped into one run per folder.
"""

import os
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain, count
from pathlib import Path
from typing import NamedTuple

from perfkit.errors import TraceError, UsageError
from perfkit.storage.filenames import rank_in_name, without_suffix
from perfkit.storage.hang_log import HANGS_NAME
from perfkit.storage.recordings import RECORDING_SUFFIXES, traces_of_files, traces_of_folder
from perfkit.storage.run_folder import FAILURE_NAME, MANIFEST_NAME, SWEEP_NAME, is_capture
from perfkit.storage.step_log.reader import is_step_log
from perfkit.trace.event_decoding import SUFFIXES
from perfkit.trace.nsys.paths import on_disk

_NOT_TRACES = frozenset({MANIFEST_NAME, FAILURE_NAME, SWEEP_NAME, "report.json", "hang.json", HANGS_NAME})
_OTHERS = (".speedscope.json", ".hang.json", ".earlier_steps.json")


class RunLocation(NamedTuple):
    """The files of a run."""

    name: str
    path: Path
    traces: list[Path]
    """In order of their names."""
    has_manifest: bool
    skipped_files: tuple[str, ...] = ()
    """Names of entries that are named like a trace but are not regular files."""
    captures: tuple[str, ...] = ()
    """Names of the folders in it with steps that were recorded on demand, in order."""


def find_runs(paths: Iterable[Path]) -> list[RunLocation]:
    """Return the runs under the paths, in the order given and then by name, each once.

    Raises:
        TraceError: a path does not exist, cannot be read, or contains no trace.
    """
    runs: dict[Path, RunLocation] = {}
    files: dict[Path, list[Path]] = {}
    for path in paths:
        if _is_folder(path):
            for location in _runs_below(path):
                runs.setdefault(location.path.resolve(), location)
        else:
            files.setdefault(path.resolve().parent, []).append(path)
    # A file is not read twice if its folder is given too.
    singles = [_run_of_files(group) for folder, group in files.items() if folder not in runs]
    return _unique_names([*runs.values(), *singles])


def find_run(path: Path) -> RunLocation:
    """Return the only run with traces under a path.

    Raises:
        TraceError: the path does not exist, cannot be read, or contains no trace.
        UsageError: it contains several runs.
    """
    runs = [run for run in find_runs([path]) if run.traces]
    if not runs:
        raise TraceError(f"{path}: the run there has no trace")
    if len(runs) > 1:
        names = ", ".join(str(run.path) for run in runs[:3]) + (", ..." if len(runs) > 3 else "")
        raise UsageError(f"{path} contains {len(runs)} runs: give one of them ({names})")
    return runs[0]


def refuse_pipe(path: Path, command: str) -> None:
    """Refuse a trace that can be read only once, for a command that reads traces several times.

    Raises:
        TraceError: the path is that of a pipe.
    """
    with suppress(OSError):
        if stat.S_ISFIFO(path.stat().st_mode):
            raise TraceError(f"{path}: is a pipe, and {command} reads a trace more than once: write it to a file first")


def choose_trace(path: Path, rank: int | None) -> Path:
    """Return one trace: the file `path`, or the first trace of `rank` (None: the lowest) of the run in that folder.

    Raises:
        TraceError: there is no such file, no trace, or none of that rank.
        UsageError: a file and a rank are given, or the folder contains several runs.
    """
    if on_disk(path).is_file() and find_run(path).traces == [path]:
        if rank is not None:
            raise UsageError(f"--rank {rank} chooses among the traces of a folder, and {path} is a file")
        return path
    run = find_run(path)
    # By the number in its name; names without a number come last.
    folder, traces = run.path, run.traces
    numbered = [
        (rank_in_name(trace.name) if on_disk(trace) == trace else place, trace) for place, trace in enumerate(traces)
    ]
    if rank is None:
        return min(numbered, key=lambda item: (item[0] is None, item[0] or 0))[1]
    for number, trace in numbered:
        if number == rank:
            return trace
    ranks = sorted({number for number, _ in numbered if number is not None})
    has = f"ranks {ranks[0]} to {ranks[-1]}" if ranks else "no trace with a rank in its name"
    raise TraceError(f"{folder}: no trace of rank {rank}; it has {has}")


def _unique_names(runs: list[RunLocation]) -> list[RunLocation]:
    """Make the names of runs unique: shared names are prefixed with their folders.

    As many folders as needed: sweeps of the same points in two folders have runs of the same names.
    """
    # A trace may lie beside a run folder of the same name: a number is appended.
    paths = [(*run.path.resolve().parent.parts[1:], run.name) for run in runs]
    taken: dict[tuple[str, ...], None] = {}
    for path in paths:
        candidates = ((*path[:-1], f"{path[-1]}#{number}") for number in count(2))
        taken[next(one for one in chain([path], candidates) if one not in taken)] = None
    parts = list(taken)
    depths = [1] * len(runs)
    while True:
        names = ["/".join(folders[-depth:]) for folders, depth in zip(parts, depths, strict=True)]
        counts = Counter(names)
        deeper = [at for at, name in enumerate(names) if counts[name] > 1 and depths[at] < len(parts[at])]
        if not deeper:
            return [run._replace(name=name) for run, name in zip(runs, names, strict=True)]
        for at in deeper:
            depths[at] += 1


def _is_folder(path: Path) -> bool:
    try:
        mode = on_disk(path).stat().st_mode
    except FileNotFoundError as error:
        hint = f"; to write a page: -o {path}" if path.suffix == ".html" else ""
        raise TraceError(f"{path}: no such file or folder{hint}") from error
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from error
    if stat.S_ISCHR(mode) or stat.S_ISBLK(mode):  # one such as /dev/zero never ends
        raise TraceError(f"{path}: is a device, not a trace")
    return stat.S_ISDIR(mode)


def _run_of_files(files: list[Path]) -> RunLocation:
    files = list(dict.fromkeys(files))
    is_single = len(files) == 1
    name = without_suffix(files[0].name) if is_single else files[0].resolve().parent.name
    path = files[0] if is_single else files[0].parent
    return RunLocation(name, path, sorted(traces_of_files(files)), has_manifest=False)


def _runs_below(root: Path) -> Iterator[RunLocation]:
    any_found = False
    all_skipped: list[str] = []
    links: list[str] = []
    for folder, subfolders, files in os.walk(root, onerror=_error_handler(root)):
        here = Path(folder)
        # Hidden folders belong to other programs. Sorting makes the order deterministic.
        visible = sorted(name for name in subfolders if not name.startswith("."))
        subfolders[:] = [name for name in visible if not (here / name).is_symlink()]
        links += [name for name in visible if name not in subfolders]
        candidates = [here / name for name in sorted(files) if _is_trace(name)]
        traces = [path for path in candidates if _is_file(path)]
        skipped = sorted(path.name for path in {*candidates}.difference(traces))
        all_skipped.extend(skipped)
        has_manifest = MANIFEST_NAME in files
        captures = (
            tuple(sorted((name for name in subfolders if is_capture(name)), key=_natural)) if has_manifest else ()
        )
        if has_manifest:
            subfolders[:] = [name for name in subfolders if not is_capture(name)]
        if traces or has_manifest or any(map(is_step_log, files)):
            any_found = True
            reported = (*skipped, *links)
            links.clear()  # those of folders above are reported once, with the first run in them
            yield RunLocation(here.resolve().name, here, traces_of_folder(traces), has_manifest, reported, captures)
    if not any_found:
        raise _no_traces_error(root, [*all_skipped, *links])


def _natural(name: str) -> tuple[int, str]:
    """Return what orders names by their length first, so that 10 comes after 9."""
    return len(name), name


def _no_traces_error(root: Path, skipped: list[str]) -> TraceError:
    kinds = " or ".join(f"*{suffix}" for suffix in SUFFIXES)
    also = ""
    if skipped:
        also = f" ({skipped[0]} is a link or a pipe, which is read only if its own path is given)"
    return TraceError(f"{root}: no trace ({kinds}) and no run folder here{also}; record one with `perfkit run`")


def _is_file(path: Path) -> bool:
    """Return whether a path is a regular file: opening a pipe may block for ever, and a link may lead anywhere."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:  # it has just been deleted: reading it reports the reason
        return True


def _is_trace(name: str) -> bool:
    other = name in _NOT_TRACES or name.endswith(_OTHERS)
    return name.endswith((*SUFFIXES, *RECORDING_SUFFIXES)) and not other and not name.startswith(".")


def _error_handler(root: Path) -> Callable[[OSError], None]:
    """Return a handler of unreadable folders: an error for the one that was given, others are skipped."""

    def handle(error: OSError) -> None:
        if Path(error.filename) == root:
            raise TraceError(f"{root}: cannot be read: {error.strerror}") from error

    return handle
