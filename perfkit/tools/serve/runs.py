"""The runs below some folders, as a list that is cheap to read again: only run.json of each, and only if it changed."""

import hashlib
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from perfkit.base.formatting import escape_unprintable
from perfkit.errors import StoreError, TraceError
from perfkit.record.on_demand.mailbox import DIED, has_died
from perfkit.records.aggregate import clock_step_times, real_steps_ns
from perfkit.records.manifest import RunManifest
from perfkit.storage.discovery import RunLocation, find_runs
from perfkit.storage.filenames import rank_in_name
from perfkit.storage.run_folder import FAILURE_NAME, MANIFEST_NAME, read_manifest
from perfkit.storage.step_log.reader import StepLogReader, find_step_logs
from perfkit.trace.nsys.paths import on_disk

_KEY_LENGTH: Final = 16
_NEWEST: Final = 32
"""Steps of a log that the time per step is the mean of; of a run, those whose times are listed."""

Signature = tuple[tuple[str, int, int], ...]
"""Names, times of the last change in ns, and sizes in bytes of a run's files."""


class ListedRun(Struct, frozen=True, kw_only=True):
    """A run in the list."""

    key: str
    """Its name in addresses: a hash of its folder."""
    name: str
    state: str
    """`running`, `completed` or `failed`; empty for traces of another program."""
    what: str
    """What was trained, or why that is not known."""
    ranks: int
    """Of the run, or else with a trace."""
    steps: int
    """Completed steps, by the rank that completed the most; 0 if unknown."""
    step_ns: int | None
    """Time per step, by the run's own clock."""
    newest_ns: list[int]
    """Times of its newest steps, of those that `step_ns` is of."""
    started: str
    """In ISO 8601; empty if unknown."""
    changed_s: float
    """Unix time of the last change of a file."""
    traces: int


class _Entry(NamedTuple):
    location: RunLocation
    signature: Signature
    listed: ListedRun


class RunList:
    """The runs below some folders; may be used by several threads."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}

    def read(self) -> list[ListedRun]:
        """Return the runs that are there now, the latest first.

        Raises:
            TraceError: A folder is gone, or cannot be read.
        """
        with self._lock:
            entries = {}
            for location in self._locations():
                key = key_of(location.path)
                seen = signature_of(location)
                known = self._entries.get(key)
                same = known is not None and (known.signature, known.location.name) == (seen, location.name)
                entries[key] = known if known and same else _Entry(location, seen, _listed(key, location, seen))
            self._entries = entries
            runs = [_as_it_is_now(entry) for entry in entries.values()]
        return sorted(runs, key=lambda run: (run.started or "", run.changed_s), reverse=True)

    def _locations(self) -> Iterator[RunLocation]:
        for folder in self._folders:
            try:
                yield from find_runs([folder])
            except TraceError:
                if not folder.is_dir():
                    raise  # an empty one may get its first run

    def find(self, key: str) -> RunLocation | None:
        """Return where a run is, by its key; None if no such run is there."""
        self.read()
        entry = self._entries.get(key)
        return None if entry is None else entry.location


def key_of(folder: Path) -> str:
    """Return a run's name in addresses, which does not reveal its location."""
    return hashlib.sha256(str(folder.resolve()).encode("utf-8", "surrogateescape")).hexdigest()[:_KEY_LENGTH]


def signature_of(location: RunLocation) -> Signature:
    """Return what tells whether a run's files have changed."""
    rows = []
    for path in [location.path / MANIFEST_NAME, location.path / FAILURE_NAME, *location.traces, *_logs(location)]:
        try:
            status = on_disk(path).stat()
        except OSError:
            continue
        rows.append((path.name, status.st_mtime_ns, status.st_size))
    return tuple(rows)


def has_data(location: RunLocation) -> bool:
    """Return whether there is anything to analyse yet: a trace, or a log of the monitor."""
    return bool(location.traces or _logs(location))


def _logs(location: RunLocation) -> list[Path]:
    return list(find_step_logs(location.path).values()) if location.path.is_dir() else []


def _as_it_is_now(entry: _Entry) -> ListedRun:
    """Return a run as failed if it was killed: no file shows that."""
    listed = entry.listed
    if listed.state != "running" or not has_died(entry.location.path):
        return listed
    return replace(listed, state="failed", what=f"{listed.what}; {DIED}")


def _listed(key: str, location: RunLocation, signature: Signature) -> ListedRun:
    manifest, problem = None, ""
    if location.has_manifest:
        try:
            manifest = read_manifest(location.path)
        except StoreError as error:
            problem = str(error)
    numbers = {rank_in_name(trace.name) for trace in location.traces}
    steps, step_ns, newest_ns = _progress(location, manifest)
    return ListedRun(
        key=key,
        name=escape_unprintable(location.name),
        state=manifest.state if manifest else "",
        what=escape_unprintable(problem or (_what(manifest) if manifest else "recorded by another program")),
        ranks=manifest.world.world_size if manifest else len(numbers) or len(_logs(location)),
        steps=steps,
        step_ns=step_ns,
        newest_ns=newest_ns,
        started=manifest.started_at if manifest else "",
        changed_s=max((changed for _, changed, _ in signature), default=0) / 1e9,
        traces=len(location.traces),
    )


def _progress(location: RunLocation, manifest: RunManifest | None) -> tuple[int, int | None, list[int]]:
    """Return the number of steps, and the time per step by the manifest, else of the newest in the monitor's log.

    The manifest has the first steps of a script, or of a loop without a schedule, only. The last value are the times
    of the newest steps.
    """
    steps = max((len(rank.step_wall_ns) for rank in manifest.ranks), default=0) if manifest else 0
    walls_ns = _walls_ns(manifest) if manifest else []
    step_ns = round(fmean(walls_ns)) if walls_ns else None
    with suppress(StoreError):
        for log in _logs(location)[:1]:
            newest = StepLogReader(log).read_new(newest=_NEWEST).records
            if len(newest):
                steps = max(steps, int(newest["step"][-1] + newest["steps"][-1]))
                walls_ns = newest["step_ns"].tolist()
                step_ns = step_ns or round(fmean(walls_ns))
    return steps, step_ns, [round(ns) for ns in walls_ns[-_NEWEST:]]


def _walls_ns(manifest: RunManifest) -> list[int]:
    times = clock_step_times(manifest.ranks, manifest.step_kinds)
    return real_steps_ns(times) or times.recorded_ns


def _what(manifest: RunManifest) -> str:
    failure = f"; rank {manifest.failure.rank} failed: {manifest.failure.message}" if manifest.failure else ""
    return f"{manifest.workload}, {manifest.device}{failure}"


def links(location: RunLocation) -> list[tuple[str, str]]:
    """Return a label and the file name of each trace: its rank, unless several would have the same or it has none."""
    ranks = [rank_in_name(trace.name) for trace in location.traces]
    rows = sorted(zip(ranks, location.traces, strict=True), key=lambda row: (row[0] is None, row[0] or 0, row[1].name))
    return [
        (trace.name if rank is None or ranks.count(rank) > 1 else f"rank {rank}", trace.name) for rank, trace in rows
    ]


def find_trace(location: RunLocation, name: str) -> Path | None:
    """Return a run's trace by its file name; None if it has none of that name."""
    return next((trace for trace in location.traces if trace.name == name), None)
