"""From the paths a user gives to the runs that lie there.

A file is a run of one trace. A folder with a manifest is a run that perfkit wrote. Any other folder that holds traces
is a run that some other program wrote. Folders are searched all the way down, so a folder of run folders is all of
them.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from perfkit.errors import TraceError
from perfkit.trace.formats import SUFFIXES
from perfkit.trace.store import MANIFEST_NAME

_NOT_TRACES = frozenset({MANIFEST_NAME, "report.json", "failure.json"})


class RunLocation(NamedTuple):
    """Where a run lies."""

    name: str
    path: Path
    traces: list[Path]
    """In order of their names."""
    has_manifest: bool


def discover(paths: Iterable[Path]) -> list[RunLocation]:
    """Return the runs under the paths, in the order given and then by name, each once.

    Raises:
        TraceError: a path does not exist or holds no trace.
    """
    found: dict[Path, RunLocation] = {}
    for path in paths:
        here = list(_runs(path))
        if not here:
            kinds = " or ".join(f"*{suffix}" for suffix in SUFFIXES)
            raise TraceError(f"{path}: no trace ({kinds}) and no run folder here; record one with `perfkit run`")
        for location in here:
            found.setdefault(location.path.resolve(), location)
    return list(found.values())


def _runs(path: Path) -> Iterator[RunLocation]:
    if path.is_dir():
        yield from _runs_below(path)
    elif path.exists():
        yield RunLocation(_stem(path), path, [path], has_manifest=False)
    else:
        raise TraceError(f"{path}: no such file or folder")


def _runs_below(root: Path) -> Iterator[RunLocation]:
    for folder, below, files in os.walk(root, onerror=_unreadable):
        # Hidden folders hold caches and other programs' things. Sorted in place, the walk goes in order.
        below[:] = sorted(name for name in below if not name.startswith("."))
        traces = [Path(folder, name) for name in sorted(files) if _is_trace(name)]
        has_manifest = MANIFEST_NAME in files
        if traces or has_manifest:
            yield RunLocation(Path(folder).resolve().name, Path(folder), traces, has_manifest)


def _is_trace(name: str) -> bool:
    return name.endswith(SUFFIXES) and name not in _NOT_TRACES and not name.startswith(".")


def _stem(path: Path) -> str:
    return path.name.removesuffix(".gz").removesuffix(".json")


def _unreadable(error: OSError) -> None:
    raise TraceError(f"{error.filename}: cannot be read: {error.strerror}") from error
