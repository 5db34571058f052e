"""Follows the step logs of a run: keeps the newest steps of every rank, and reads only what was appended."""

import os
import time
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from perfkit.errors import StoreError
from perfkit.records.manifest import RunManifest
from perfkit.records.monitor import STEP_DTYPE
from perfkit.storage.run_folder import MANIFEST_NAME, read_manifest
from perfkit.storage.step_log.reader import StepLogReader, find_step_logs

Records = NDArray[np.void]

_MOST_KEPT: Final = 200_000
"""Records of all ranks of a run that are kept, about 40 MB."""
_SHORTEST, _LONGEST = 64, 20_000
"""Records of a rank that are kept."""
_RESCAN_S: Final = 5.0
"""How often the folder is searched for logs of further ranks, and its manifest read if it has changed."""


def latest_run(folder: Path) -> Path:
    """Return `folder`, or if it is a folder of runs, the run in it whose logs were written to last."""
    if (folder / MANIFEST_NAME).exists() or find_step_logs(folder):
        return folder
    logs = [(written, log) for log in folder.glob("*/rank*.steps") if (written := _written_s(log)) is not None]
    return max(logs)[1].parent if logs else folder


def _written_s(path: Path) -> float | None:
    """Return when a file was last written to; None if it has been removed."""
    try:
        return path.stat().st_mtime
    except OSError:
        return None


class RankLog:
    """The newest steps of one rank."""

    def __init__(self, path: Path, kept: int) -> None:
        self.records: Records = np.zeros(0, STEP_DTYPE)
        self.world_size = 1
        self.device = "cpu"
        self.host = ""
        self.problem: str | None = None
        """Why the log cannot be read; None if it can."""
        self.damaged = 0
        """Records that were left out."""
        self._path, self._kept = path, kept
        self._reader = StepLogReader(path)
        self._seen = (-1, -1)

    def read(self) -> bool:
        """Read what is new, and return whether there was anything."""
        try:
            state = os.stat(self._path)
            seen = (state.st_ino, state.st_size)
            if seen == self._seen:
                return False
            found = self._reader.read_new(newest=self._kept)
        except (OSError, StoreError) as error:
            self.problem = str(error)
            return False
        self._seen, self.problem = seen, None
        if self._reader.header is not None:
            header = self._reader.header
            self.world_size, self.device, self.host = header.world_size, header.device, header.host
        self.damaged = found.damaged + (0 if found.restarted else self.damaged)
        # By their bytes: numpy takes long to join records of many columns.
        before = b"" if found.restarted else self.records.tobytes()
        self.records = np.frombuffer(before + found.records.tobytes(), STEP_DTYPE)[-self._kept :]
        return bool(len(found.records))


class RunFollower:
    """The newest steps of all ranks of a run.

    Args:
        folder: The run's folder; logs may appear in it later.
        longest: Records of a rank that are kept, at most; None: as many as memory allows.
        host: Host whose ranks are followed, of others only what their logs have at first is read; None: all ranks.
    """

    def __init__(self, folder: Path, longest: int | None = None, host: str | None = None) -> None:
        self.folder = folder
        self._longest = longest
        self._host = host
        self.logs: dict[int, RankLog] = {}
        self.manifest: RunManifest | None = None
        self.problem: str | None = None
        """Why the folder cannot be read; None if it can."""
        self._scanned = -_RESCAN_S
        self._manifest_time = -1
        self._last_growth: float | None = None

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @property
    def world_size(self) -> int:
        """As recorded in the logs, or at least as many ranks as have one."""
        return max((log.world_size for log in self.logs.values()), default=0)

    def silent_s(self) -> float | None:
        """Return for how long no log has grown; None without any step."""
        return None if self._last_growth is None else max(0.0, time.monotonic() - self._last_growth)

    def unread(self) -> list[str]:
        """Return what of the logs could not be read, in sentences: the first problem, and damaged records."""
        problems = [log.problem for log in self.logs.values() if log.problem]
        sentences = (
            [problems[0] + (f" (and {len(problems) - 1} more logs)" if len(problems) > 1 else "")] if problems else []
        )
        count = sum(log.damaged for log in self.logs.values())
        if count:
            sentences.append(f"{count:,} damaged record{'s were' if count > 1 else ' was'} left out")
        return [one.replace(f"{self.folder}/", "") for one in sentences]

    def read(self) -> bool:
        """Read what is new, and return whether any log has grown."""
        now = time.monotonic()
        if now - self._scanned >= _RESCAN_S:
            self._scanned = now
            self._scan()
        first = self._last_growth is None
        followed = [log for log in self.logs.values() if self._host is None or log.host in ("", self._host)]
        grown = sum(log.read() for log in followed) > 0
        if grown:
            self._last_growth = now - (self._age_s() if first else 0.0)
        return grown

    def _scan(self) -> None:
        try:
            paths = find_step_logs(self.folder)
            self.problem = None
        except StoreError as error:
            self.problem = str(error)
            return
        kept = min(self._longest or _LONGEST, max(_SHORTEST, _MOST_KEPT // max(1, len(paths))))
        for rank, path in paths.items():
            if rank not in self.logs:
                self.logs[rank] = RankLog(path, kept)
        self.logs = dict(sorted(self.logs.items()))
        self._read_manifest()

    def _read_manifest(self) -> None:
        """Read the manifest if it has changed; a run without one, or with one of another version, has none."""
        try:
            changed = (self.folder / MANIFEST_NAME).stat().st_mtime_ns
            if changed != self._manifest_time:
                self.manifest = read_manifest(self.folder)
                self._manifest_time = changed
        except (OSError, StoreError):
            return

    def _age_s(self) -> float:
        """Return how long ago a log was last written, by the clock of the file system; not below 0."""
        times = [_written_s(self.folder / f"rank{rank}.steps") for rank in self.logs]
        newest = max((time_s for time_s in times if time_s is not None), default=time.time())
        return max(0.0, time.time() - newest)
