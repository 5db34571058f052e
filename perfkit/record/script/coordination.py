"""How the ranks of a script that does not import perfkit agree on a run folder, and wait for each other.

They issue no collective in the script's process group: it could be matched with one of the script's own, and would be
in the trace. They use the store that the group was created with; without a process group, a file in the trace folder.
Every wait is short, because any rank may never reach it: one that trains nothing, or is not under perfkit at all.
"""

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import torch.distributed as dist
from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

from perfkit.base.atomic_write import atomic_write
from perfkit.base.polling import wait_until
from perfkit.errors import RunError
from perfkit.record.distributed.known_launchers import Launcher, find_launcher
from perfkit.record.distributed.launch_id import launch_id
from perfkit.record.distributed.launcher_env import RankInfo
from perfkit.record.messages import print_warning
from perfkit.record.script.rank_environment import launcher_environment, launcher_rank
from perfkit.record.script.rank_marks import ended_ranks, mark_joined
from perfkit.storage.run_folder import read_failure

T = TypeVar("T")

_PREFIX: Final = "perfkit/script"
_JOIN_S: Final = 0.5
"""How long to wait for ranks that have not stepped yet: a rank that takes part has done so several steps before."""
_ARRIVAL_S: Final = 2.0
"""How long to wait for ranks to come to a barrier, or to begin to write the trace before it."""
_POLL_S_PER_RANK: Final = 0.0001
"""Limits the load on the process that hosts the store."""
_CHECK_S: Final = 1.0
"""How often a rank that waits checks whether another one has ended."""
_CHECK_S_PER_RANK: Final = 0.03
"""Each check reads a small file of every rank."""


class FolderExchange(ABC):
    """Passes the path of the run's folder from the first rank that gets here to the others."""

    @abstractmethod
    def claim(self) -> bool:
        """Return whether this rank is the first."""

    @abstractmethod
    def publish(self, text: str) -> None:
        """Make `text` available to the others."""

    @abstractmethod
    def is_published(self) -> bool:
        """Return whether the first rank has published anything."""

    @abstractmethod
    def published(self) -> str: ...

    def read(self, timeout: timedelta) -> str:
        """Return what the first rank has published; other threads can use a store meanwhile.

        Raises:
            RunError: It has not published anything within `timeout`.
        """
        if not wait_until(self.is_published, timeout.total_seconds()):
            raise RunError(f"no rank has created the run's folder within --timeout {timeout.total_seconds():g}s")
        return self.published()

    def clear(self) -> None:  # noqa: B027  a store ends with the script
        """Remove any file of the exchange; called once all ranks have read it."""


class StoreFolderExchange(FolderExchange):
    """Uses the store of the script's process group."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def claim(self) -> bool:
        return bool(self._store.add("claim", 1) == 1)

    def publish(self, text: str) -> None:
        self._store.set("folder", text)

    def is_published(self) -> bool:
        return bool(self._store.check(["folder"]))

    def published(self) -> str:
        return bytes(self._store.get("folder")).decode()


class FileFolderExchange(FolderExchange):
    """Uses a folder whose name is unique to this launch."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._note = folder / "folder"

    def claim(self) -> bool:
        self._folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._folder.mkdir()
        except FileExistsError:
            return False
        return True

    def publish(self, text: str) -> None:
        with atomic_write(self._note) as stream:
            stream.write(text.encode())

    def is_published(self) -> bool:
        return self._note.exists()

    def published(self) -> str:
        return self._note.read_text(encoding="utf-8")

    def clear(self) -> None:
        self._note.unlink(missing_ok=True)
        if self._folder.is_dir():
            self._folder.rmdir()


class ScriptRankGroup:
    """The ranks of a script, which may start and end at any time (implements `RankGroup`).

    Each rank adds itself to counters in the store; the last one sets a key that the others poll. Polling, unlike the
    store's own wait, neither blocks the store for other threads nor logs a warning when time is up.

    Args:
        exchange: How the ranks agree on the run's folder; None for a single rank.
        store: The process group's, for `barrier`; None if there is no process group.
        barriers: Number of `barrier` calls to come, at most.
        timeout: Limit of the wait for the folder, and for ranks that write a trace.
    """

    def __init__(
        self, info: RankInfo, exchange: FolderExchange | None, store: Store | None, barriers: int, timeout: timedelta
    ) -> None:
        self.current_activity = ""
        self.info = info
        self.rank = info.rank
        self.world_size = info.world_size
        self._exchange = exchange
        self._store = store
        self._barriers = barriers
        self._timeout = timeout
        self._passed = 0
        self._announced = 0
        self._folder: Path | None = None
        with contextlib.suppress(RuntimeError):  # the rank that hosts the store has ended
            self._count("joined")

    def agree_on_folder(self, create: Callable[[], Path]) -> Path:
        """Return the run's folder, which the first rank to call this creates."""
        folder = self._agreed_folder(create)
        if self.world_size > 1:
            self._folder = folder
            mark_joined(folder, self.rank)
        return folder

    def _agreed_folder(self, create: Callable[[], Path]) -> Path:
        if self._exchange is None:
            return create()
        if not self._exchange.claim():
            folder = self._exchange.read(self._timeout)
            if not folder:
                raise RunError("another rank could not create the run's folder")
            return Path(folder)
        created = ""
        try:
            created = str(create())
        finally:
            self._exchange.publish(created)  # empty after an error: the others then stop waiting
        return Path(created)

    def barrier(self) -> None:
        """Wait for the other ranks if all of them are recorded; once a rank has not come, never wait again."""
        if self._store is None or self._passed == self._barriers:
            return
        self._passed += 1
        try:
            self._announce(self._passed)
            self._count(f"arrived/{self._passed}")
            absent = self._find_absent(self._passed)
        except RuntimeError:  # the rank that hosts the store has ended
            absent = "another rank has ended"
        if absent is not None:
            print_warning(
                f"rank {self.rank}: {absent}: "
                "the first collective of a trace may include the time that one rank waits for another"
            )
            self.stop_waiting()

    def run_on_all(self, action: Callable[[], T]) -> T:
        """Run `action` on this rank only: the others may be anywhere in the script.

        The others wait for it in the next barrier, which they would otherwise give up: a trace can take long to write.
        """
        if self._passed < self._barriers:
            with contextlib.suppress(RuntimeError):
                self._announce(self._passed + 1)
        return action()

    def stop_waiting(self) -> None:
        """Pass all remaining barriers, so that no other rank waits for this one."""
        remaining = range(self._passed + 1, self._barriers + 1)
        self._passed = self._barriers
        with contextlib.suppress(RuntimeError):  # the rank that hosts the store has ended: nobody waits any more
            for barrier in remaining:
                self._announce(barrier)
                self._count(f"arrived/{barrier}")

    def clear(self) -> None:
        if self._exchange is not None:
            self._exchange.clear()

    def _find_absent(self, barrier: int) -> str | None:
        """Wait for the other ranks; returns which have not come, None if all have."""
        if not self._wait_for("joined", _JOIN_S):
            return "not all ranks have stepped under perfkit, and those are not waited for"
        if not self._wait_for(f"coming/{barrier}", _ARRIVAL_S):
            return self._name_ended() or "the ranks do not step together"
        if not self._wait_for(f"arrived/{barrier}", self._timeout.total_seconds()):
            return self._name_ended() or "another rank has not finished writing its trace"
        return None

    def _name_ended(self) -> str | None:
        """Return which rank has failed, or has ended on this host, and will not come any more; None if none has."""
        if self._folder is None:
            return None
        failure = read_failure(self._folder)  # with which all marks are removed
        if failure is not None:
            return f"rank {failure.rank} has failed"
        ended = ended_ranks(self._folder, self.rank)
        return f"rank {ended[0]} has ended" if ended else None

    def _announce(self, barrier: int) -> None:
        """Let the others know that this rank is about to come to a barrier."""
        if self._announced < barrier:
            self._announced = barrier
            self._count(f"coming/{barrier}")

    def _count(self, what: str) -> None:
        if self._store is not None and self._store.add(what, 1) == self.world_size:
            self._store.set(f"all/{what}", "")

    def _wait_for(self, what: str, limit_s: float) -> bool:
        """Wait until all ranks have counted themselves; returns whether they have within the limit.

        It ends early when another rank's process has: that one will never come.
        """
        begin = looked = time.monotonic()
        poll_s = max(0.002, self.world_size * _POLL_S_PER_RANK)
        look_s = max(_CHECK_S, self.world_size * _CHECK_S_PER_RANK)
        while self._store is not None and not self._store.check([f"all/{what}"]):
            now = time.monotonic()
            if now > begin + limit_s:
                return False
            if now > looked + look_s:
                looked = now
                if self._name_ended():
                    return False
            time.sleep(poll_s)
        return True


class RankExchange(NamedTuple):
    """The ranks of a script, and how they find each other."""

    info: RankInfo
    exchange: FolderExchange | None
    """None for a single rank."""
    store: Store | None
    """The process group's; None if there is no process group."""


def find_ranks(trace_dir: Path, label: str, *, own_connection: bool = False) -> RankExchange:
    """Find the ranks: those of the script's process group if it has one by now, else those of the launcher.

    Args:
        own_connection: Use the store also while the script waits in it, as in `new_group`.
    """
    launcher = find_launcher(launcher_environment())
    if dist.is_available() and dist.is_initialized():
        info = _process_group_rank(launcher)
        store = _group_store(own_connection) if info.world_size > 1 else None
        exchange = None if store is None else StoreFolderExchange(store)
        return RankExchange(info, exchange, store)
    info = launcher_rank()
    identifier = None if launcher is None or info.world_size == 1 else launch_id(launcher, info)
    if launcher is None or identifier is None:  # a single rank, or no way to agree: a separate run
        return RankExchange(RankInfo(launcher=info.launcher), None, None)
    return RankExchange(info, FileFolderExchange(trace_dir / f".{label}-{launcher.name}-{identifier}"), None)


def _process_group_rank(launcher: Launcher | None) -> RankInfo:
    rank, size = dist.get_rank(), dist.get_world_size()
    info = launcher_rank()
    if (info.rank, info.world_size) == (rank, size):
        return info
    # How the ranks are distributed over hosts follows from their exit records.
    name = launcher.name if launcher else "none"
    return RankInfo(rank=rank, world_size=size, local_rank=rank, local_world_size=size, launcher=name)


def _group_store(own_connection: bool) -> Store | None:
    """Return the store of the process group; None if it has none, as with the backend mpi."""
    store = dist.distributed_c10d._get_default_store()  # torch has no public API for it
    if own_connection and isinstance(store, Store):
        store = _connected_again(store)
    return PrefixStore(_PREFIX, store) if isinstance(store, Store) else None


@lru_cache(maxsize=1)
def _connected_again(store: Store) -> Store:
    """Return the same store with a separate connection: whoever waits in a `TCPStore` locks out its other users."""
    innermost: Any = store
    while isinstance(innermost, PrefixStore):
        innermost = innermost.underlying_store
    if isinstance(innermost, TCPStore):
        with contextlib.suppress(AttributeError, RuntimeError):  # an older torch, or the store's host has ended
            own: Store = store.clone()  # type: ignore[attr-defined]  # missing in its stubs
            return own
    return store
