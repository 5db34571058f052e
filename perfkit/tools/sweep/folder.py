"""The folder of a sweep: its run folders, its `sweep.json`, and failed runs that are moved aside.

::

    traces/sweep-gpt/sweep.json      every point and its outcome (Sweep)
                     <point>/        the run folder of a point
                     logs/           output of the processes of each point
                     jobs/           scripts of --emit
                     .earlier/       run folders of failed attempts, which the analysis ignores
"""

import fcntl
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

from msgspec.structs import replace

from perfkit.base.polling import SHARED_POLL_S
from perfkit.errors import StoreError
from perfkit.record.on_demand.mailbox import has_died
from perfkit.records.manifest import RunManifest
from perfkit.records.sweep import SweepPoint
from perfkit.storage.run_folder import MANIFEST_NAME, read_manifest, read_sweep, write_sweep
from perfkit.tools.sweep.point import Point

_LOCK: Final = ".lock"
_PATIENCE_S: Final = 3.0
"""How long to wait for the last processes of an earlier sweep to release its folder."""

RunState = Literal["absent", "completed", "failed", "running"]


class SweepFolder:
    """One sweep's folder.

    Raises:
        StoreError: Its `sweep.json` exists and cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read()

    @property
    def records(self) -> Sequence[SweepPoint]:
        """Every point of this and of earlier calls."""
        return list(self._records.values())

    @property
    def earlier(self) -> Path:
        return self.path / ".earlier"  # hidden: the analysis ignores it

    @property
    def jobs(self) -> Path:
        return self.path / "jobs"

    def find(self, point: Point) -> Path:
        """Return the run folder of a point: the existing one, else the one it would get."""
        named = self.path / point.name
        if named.exists():
            return named
        # A new axis changes the readable part of the name only.
        return next(iter(sorted(self.path.glob(f"*{point.suffix}"))), named)

    def state(self, point: Point) -> RunState:
        """Return the state of a point according to its run folder."""
        folder = self.find(point)
        if not folder.exists():
            return "absent"
        manifest = _manifest(folder)
        if manifest is None:
            return "failed"
        if manifest.state == "completed" and not point.matches(manifest):
            return "failed"  # of another program, or edited: not this point's
        if manifest.state == "running" and has_died(folder):
            return "failed"
        return manifest.state

    def reason(self, point: Point) -> str | None:
        """Return why a run failed according to its manifest; None if unknown."""
        folder = self.find(point)
        manifest = _manifest(folder) if folder.exists() else None
        if manifest is None or manifest.failure is None:
            return None
        return f"rank {manifest.failure.rank}: {manifest.failure.message}"

    def log(self, point: Point) -> Path:
        """Return the log file of a point's processes; every attempt appends to it.

        Raises:
            StoreError: Its folder cannot be created.
        """
        return _make(self.path / "logs") / f"{point.name}.log"

    def move_aside(self, point: Point) -> Path | None:
        """Move the run folder of an earlier attempt aside; return its new path, None if there was none.

        Raises:
            StoreError: It cannot be moved.
        """
        folder = self.find(point)
        if not folder.exists():
            return None
        earlier = _make(self.earlier)
        number = 1
        while (target := earlier / f"{folder.name}.{number}").exists():
            number += 1
        try:
            folder.rename(target)
        except OSError as error:
            raise StoreError(f"cannot move {folder} to {target}: {error.strerror}: move it away manually") from error
        return target

    def write_records(self, points: Iterable[SweepPoint]) -> None:
        """Write points into `sweep.json`, replacing earlier records of the same points and keeping all others.

        Raises:
            StoreError: It cannot be written.
        """
        self._records |= {(point.key, point.repeat): point for point in points}
        _make(self.path)
        write_sweep(self.path, list(self._records.values()))

    def record_of(self, point: Point) -> SweepPoint:
        """Return the record of a point: from `sweep.json`, but with the state of its run folder."""
        run, state = self.find(point).name, self.state(point)
        record = SweepPoint(
            run=run,
            key=point.key,
            ranks=point.ranks,
            repeat=point.repeat,
            scaling=list(point.scaling),
            arguments=list(point.arguments),
        )
        before = self._records.get((point.key, point.repeat))
        if before is not None:
            scaling = list(dict.fromkeys((*before.scaling, *point.scaling)))
            record = replace(record, scaling=scaling, state=before.state, reason=before.reason, wall_ns=before.wall_ns)
        if state == "completed":
            return replace(record, state="completed", reason=None)
        return replace(record, state="planned") if record.state == "completed" else record

    def _read(self) -> None:
        self._records = {(point.key, point.repeat): point for point in read_sweep(self.path)}

    @contextmanager
    def locked(self) -> Iterator[int | None]:
        """Lock the folder while points run, and yield the descriptor of the lock.

        A process that inherits the descriptor holds the lock too: a launcher that outlives a killed sweep prevents
        others from moving its run folder. None if the file system does not support locks.

        Raises:
            StoreError: Another process holds the lock, or the folder cannot be written.
        """
        _make(self.path)
        path = self.path / _LOCK
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise StoreError(f"cannot write {path}: {error.strerror}") from error
        try:
            held = _lock(descriptor, self.path)
            self._read()  # another sweep may have written it since
            yield descriptor if held else None
        finally:
            os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> bool:
    """Lock a file; return False if its file system does not support locks."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() > deadline:
                raise StoreError(
                    f"{folder}: another sweep, or a point of one that was killed, is running there: wait for it, or "
                    "end it"
                ) from error
            time.sleep(SHARED_POLL_S)
        except OSError:  # some network file systems do not support locks
            return False
        else:
            return True


def _make(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot create {folder}: {error.strerror}: choose another --trace-dir") from error
    return folder


def _manifest(folder: Path) -> RunManifest | None:
    """Return a run folder's manifest; None if it has none, or an unreadable one."""
    if not (folder / MANIFEST_NAME).is_file():
        return None
    try:
        return read_manifest(folder)
    except StoreError:
        return None
