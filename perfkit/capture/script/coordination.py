"""How the ranks of a script that knows nothing of perfkit agree on a folder, and line up.

They say nothing over the script's process group: a collective that the script does not expect could be matched with
one of its own, and would be in the trace. They leave word in the store the group was made with; ranks that have no
process group leave it in the trace folder. Nobody waits long for anybody, for no rank need ever come.
"""

import contextlib
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Final, Protocol, TypeVar

import torch.distributed as dist
from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]

from perfkit.capture.distributed.launch_id import launch_id
from perfkit.capture.distributed.launcher_env import Launcher, RankInfo, find_launcher
from perfkit.capture.distributed.rank_group import RankGroup
from perfkit.capture.script.rank_environment import launcher_environment, launcher_rank
from perfkit.errors import RunError
from perfkit.util.atomic_write import atomic_write

T = TypeVar("T")

_POLL_S: Final = 0.02
_PREFIX: Final = "perfkit/script"


class FolderExchange(Protocol):
    """Where the first rank that comes leaves the run's folder for the others."""

    def claim(self) -> bool:
        """Say whether this rank is the first."""

    def publish(self, text: str) -> None:
        """Leave `text` for the others."""

    def read(self, timeout: timedelta) -> str:
        """Return what the first rank has left.

        Raises:
            RunError: It has left nothing in time.
        """

    def clear(self) -> None:
        """Remove what would be left behind; called once all ranks have read it."""


class StoreFolderExchange:
    """In the store of the script's process group."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def claim(self) -> bool:
        """Say whether this rank is the first."""
        return bool(self._store.add("claim", 1) == 1)

    def publish(self, text: str) -> None:
        """Leave `text` for the others."""
        self._store.set("folder", text)

    def read(self, timeout: timedelta) -> str:
        """Return what the first rank has left."""
        try:
            self._store.wait(["folder"], timeout)
        except dist.DistStoreError as error:
            raise _rank_0_left(timeout) from error
        return bytes(self._store.get("folder")).decode()

    def clear(self) -> None:
        """Do nothing: the store ends with the script."""


class FileFolderExchange:
    """In a folder that no other run has the name of."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._note = folder / "folder"

    def claim(self) -> bool:
        """Say whether this rank is the first."""
        self._folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._folder.mkdir()
        except FileExistsError:
            return False
        return True

    def publish(self, text: str) -> None:
        """Leave `text` for the others."""
        with atomic_write(self._note) as temporary:
            temporary.write_text(text, encoding="utf-8")

    def read(self, timeout: timedelta) -> str:
        """Return what the first rank has left."""
        deadline = time.monotonic() + timeout.total_seconds()
        while time.monotonic() < deadline:
            try:
                return self._note.read_text(encoding="utf-8")
            except FileNotFoundError:
                time.sleep(_POLL_S)
        raise _rank_0_left(timeout)

    def clear(self) -> None:
        """Remove the folder."""
        self._note.unlink(missing_ok=True)
        if self._folder.is_dir():
            self._folder.rmdir()


def _rank_0_left(timeout: timedelta) -> RunError:
    return RunError(f"no rank has made the run's folder within --timeout {timeout.total_seconds():g}s")


class ScriptRankGroup(RankGroup):
    """The ranks of a script, which may come and go as they like.

    Args:
        info: This rank's place.
        board: Where they leave word; None if there is but one.
        store: Of the process group, by which they line up; None where there is none.
        meetings: How often they will line up, at most.
        timeout: Limit of each wait.
    """

    def __init__(
        self, info: RankInfo, board: FolderExchange | None, store: Store | None, meetings: int, timeout: timedelta
    ) -> None:
        # Not the base's own: it would talk over the process group.
        self.current_activity = ""
        self._meeting = None
        self.info = info
        self.rank = info.rank
        self.world_size = info.world_size
        self._grouped = False
        self._own = False
        self._board = board
        self._store = store
        self._meetings = meetings
        self._timeout = timeout
        self._met = 0

    def agree_on_folder(self, create: Callable[[], Path]) -> Path:
        """Return the run's folder, which the first rank that comes here creates.

        Raises:
            StoreError: It cannot be created.
            RunError: The rank that was first has not created it.
        """
        if self._board is None:
            return create()
        if not self._board.claim():
            folder = self._board.read(self._timeout)
            if not folder:
                raise RunError("another rank could not create the run's folder")
            return Path(folder)
        made = ""
        try:
            made = str(create())
        finally:
            self._board.publish(made)
        return Path(made)

    def barrier(self) -> None:
        """Wait for the other ranks; after the limit never again."""
        if self._store is None or self._met == self._meetings:
            return
        self._met += 1
        try:
            self._arrive(self._met)
            self._store.wait([f"go/{self._met}"], self._timeout)
        except RuntimeError:  # too late, or the rank that holds the store has ended
            sys.stderr.write(
                f"perfkit: warning: rank {self.rank}: the ranks do not step together: "
                "the first collective of a trace may hold the time that one waits for another\n"
            )
            self.stop_waiting()

    def run_on_all(self, action: Callable[[], T]) -> T:
        """Run `action` on this rank: the others may be anywhere."""
        return action()

    def stop_waiting(self) -> None:
        """Let nobody wait for this rank again."""
        missed = range(self._met + 1, self._meetings + 1)
        self._met = self._meetings
        with contextlib.suppress(RuntimeError):  # the rank that holds the store has ended: nobody waits any more
            for meeting in missed:
                self._arrive(meeting)

    def clear(self) -> None:
        """Remove what would be left behind."""
        if self._board is not None:
            self._board.clear()

    def _arrive(self, meeting: int) -> None:
        if self._store is not None and self._store.add(f"come/{meeting}", 1) == self.world_size:
            self._store.set(f"go/{meeting}", "")


def open_script_group(trace_dir: Path, label: str, meetings: int, timeout: timedelta) -> ScriptRankGroup:
    """Find out who the ranks are: those of the script's process group by now, else those of the launcher.

    Args:
        trace_dir: A folder that they share.
        label: Tells the scripts of one launch apart.
        meetings: How often they will line up, at most.
        timeout: Limit of each wait.
    """
    launcher = find_launcher(launcher_environment())
    if dist.is_available() and dist.is_initialized():
        info = _grouped(launcher)
        store = _group_store() if info.world_size > 1 else None
        board = None if store is None else StoreFolderExchange(store)
        return ScriptRankGroup(info, board, store, meetings, timeout)
    info = launcher_rank()
    folder = None if launcher is None or info.world_size == 1 else _board_folder(trace_dir, label, launcher, info)
    if folder is None:  # nobody to agree with, or no way to: a run of its own
        return ScriptRankGroup(RankInfo(launcher=info.launcher), None, None, meetings, timeout)
    return ScriptRankGroup(info, FileFolderExchange(folder), None, meetings, timeout)


def _grouped(launcher: Launcher | None) -> RankInfo:
    rank, size = dist.get_rank(), dist.get_world_size()
    info = launcher_rank()
    if (info.rank, info.world_size) == (rank, size):
        return info
    # How they lie on hosts turns out when all have left their record.
    name = launcher.name if launcher else "none"
    return RankInfo(rank=rank, world_size=size, local_rank=rank, local_world_size=size, launcher=name)


def _group_store() -> Store | None:
    """Return the store of the process group; None where it has none, as with the backend mpi."""
    store = dist.distributed_c10d._get_default_store()  # torch has no public way to it
    return PrefixStore(_PREFIX, store) if isinstance(store, Store) else None


def _board_folder(trace_dir: Path, label: str, launcher: Launcher, info: RankInfo) -> Path | None:
    """Return a folder whose name the ranks of this launch share; None if there is no such name."""
    key = launch_id(launcher, info)
    return None if key is None else trace_dir / f".{label}-{launcher.name}-{key}"
