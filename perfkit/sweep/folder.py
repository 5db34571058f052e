"""The folder of a sweep: what is in it already, what its `sweep.json` says, and what makes way for another try.

::

    traces/sweep-gpt/sweep.json      every point, and what became of it (Sweep)
                     <point>/        the run folder of a point
                     logs/           what the processes of each point said
                     jobs/           scripts of --emit
                     .earlier/       run folders of failed tries, out of the way of the analysis
"""

import fcntl
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

from msgspec.structs import replace

from perfkit.errors import StoreError
from perfkit.schema.manifest import RunManifest
from perfkit.schema.sweep import SweepPoint
from perfkit.storage.run_folder import MANIFEST_NAME, read_manifest, read_sweep, write_sweep
from perfkit.sweep.point import Point

_LOCK: Final = ".lock"
_PATIENCE_S: Final = 3.0
"""How long the last processes of a sweep that has just ended have to let go of its folder."""

_POLL_S: Final = 0.1

RunState = Literal["absent", "completed", "failed", "running"]


class SweepFolder:
    """One sweep's folder.

    Args:
        path: Where it is, or is to be.

    Raises:
        StoreError: Its `sweep.json` is there and cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read()

    @property
    def known(self) -> Sequence[SweepPoint]:
        """Every point that was ever asked for here."""
        return list(self._known.values())

    @property
    def earlier(self) -> Path:
        """Holds the run folders of earlier tries."""
        return self.path / ".earlier"  # hidden: the analysis passes it over

    @property
    def jobs(self) -> Path:
        """Holds job scripts."""
        return self.path / "jobs"

    def find(self, point: Point) -> Path:
        """Return the run folder of a point: the one that is there, else the one it would get."""
        named = self.path / point.name
        if named.exists():
            return named
        # An axis that was added changes the readable part of the name, not the rest.
        return next(iter(sorted(self.path.glob(f"*{point.suffix}"))), named)

    def state(self, point: Point) -> RunState:
        """Return what became of a point, by its run folder."""
        folder = self.find(point)
        if not folder.exists():
            return "absent"
        manifest = _manifest(folder)
        if manifest is None:
            return "failed"
        if manifest.state == "completed" and not point.is_run_by(manifest):
            return "failed"  # another program's, or edited: not what is asked for
        return manifest.state

    def reason(self, point: Point) -> str | None:
        """Return why a run failed, by its own manifest."""
        folder = self.find(point)
        manifest = _manifest(folder) if folder.exists() else None
        if manifest is None or manifest.failure is None:
            return None
        return f"rank {manifest.failure.rank}: {manifest.failure.message}"

    def log(self, point: Point) -> Path:
        """Return the file for what a point's processes say; it is added to with every try.

        Raises:
            StoreError: Its folder cannot be made.
        """
        return _make(self.path / "logs") / f"{point.name}.log"

    def set_aside(self, point: Point) -> Path | None:
        """Move the run folder of an earlier try out of the way; return where it is now, None where there was none.

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
            raise StoreError(f"cannot move {folder} to {target}: {error.strerror}: move it away by hand") from error
        return target

    def record(self, points: Iterable[SweepPoint]) -> None:
        """Write points into `sweep.json`, in place of what it said of the same ones; it keeps all others.

        Raises:
            StoreError: It cannot be written.
        """
        self._known |= {(point.key, point.repeat): point for point in points}
        _make(self.path)
        write_sweep(self.path, list(self._known.values()))

    def note(self, point: Point) -> SweepPoint:
        """Return what is known of a point: what `sweep.json` says, but of its state what its run folder says."""
        run, state = self.find(point).name, self.state(point)
        noted = SweepPoint(
            run=run,
            key=point.key,
            ranks=point.ranks,
            repeat=point.repeat,
            scaling=list(point.scaling),
            arguments=list(point.arguments),
        )
        before = self._known.get((point.key, point.repeat))
        if before is not None:
            scaling = list(dict.fromkeys((*before.scaling, *point.scaling)))
            noted = replace(noted, scaling=scaling, state=before.state, reason=before.reason, wall_ns=before.wall_ns)
        if state == "completed":
            return replace(noted, state="completed", reason=None)
        return replace(noted, state="planned") if noted.state == "completed" else noted

    def _read(self) -> None:
        self._known = {(point.key, point.repeat): point for point in read_sweep(self.path)}

    @contextmanager
    def locked(self) -> Iterator[int | None]:
        """Hold the folder while points are run, and give the descriptor that holds it.

        A process that inherits the descriptor holds it too: the launcher of a point that outlives a sweep that was
        killed keeps others from taking its run folder away. None where the file system has no locks.

        Raises:
            StoreError: Somebody else holds it, or it cannot be written.
        """
        _make(self.path)
        path = self.path / _LOCK
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise StoreError(f"cannot write {path}: {error.strerror}") from error
        try:
            held = _lock(descriptor, self.path)
            self._read()  # what another sweep has written since
            yield descriptor if held else None
        finally:
            os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> bool:
    """Lock a file, and say whether its file system can."""
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
            time.sleep(_POLL_S)
        except OSError:  # some network file systems have no locks
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
    """Return a run folder's manifest; None where it has none that can be read."""
    if not (folder / MANIFEST_NAME).is_file():
        return None
    try:
        return read_manifest(folder)
    except StoreError:
        return None
