"""A barrier in the process group's store, which also reports which rank failed and which is missing.

A collective's timeout begins when the first rank enters it. Work that one rank does while the others wait (writing a
data set, a trace) has no limit: at this barrier the others wait for as long as any rank still sends heartbeats.
"""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Final, TypeVar

from torch.distributed import Store  # type: ignore[attr-defined]

from perfkit.errors import PerfkitError, RunError
from perfkit.record.distributed.launcher_env import FAILURE_GRACE_S
from perfkit.record.endings import is_due_to_another_rank
from perfkit.record.own_threads import start_own_thread

T = TypeVar("T")

_HEARTBEAT_S: Final = 1.0
_REPLY_TIMEOUT_S: Final = 5.0
"""How long the store may take to reply once something has gone wrong."""
_WAIT_PARTS: Final = 10
"""A timeout is waited for in this many parts: while this whole process is stopped, at most one of them elapses."""
_SHORTEST_POLL_S: Final = 0.005
_LONGEST_POLL_S: Final = 0.2


class PeerFailedError(RunError):
    """Another rank failed and reports it; this one exits without a message."""


class StoreBarrier:
    """A barrier of all ranks of a run.

    Args:
        store: Shared by the ranks; hosted by rank 0's process or torchrun's agent.
        limit: Timeout of a collective, and the longest time without any heartbeat.
    """

    def __init__(self, store: Store, rank: int, world_size: int, limit: timedelta) -> None:
        self._store = store
        self._rank = rank
        self._world_size = world_size
        self._limit_s = limit.total_seconds()
        self._count = 0
        # Requests are made in another thread: the store never replies if the process that hosts it is stopped, and a
        # signal must not cut a request short.
        self._requests = ThreadPoolExecutor(1)

    def run_on_all(self, action: Callable[[], T]) -> T:
        """Run `action` on every rank, however long it takes; return only if it succeeded on all.

        Raises:
            PerfkitError: This rank's own error.
            PeerFailedError: `action` failed on another rank.
            RunError: A rank has not arrived, and no heartbeat was received within the limit.
        """
        if self._world_size == 1:
            return action()
        self._count += 1
        name = f"barrier/{self._count}"
        own: PerfkitError | None = None
        result: T | None = None
        try:
            with self._heartbeat():
                result = action()
        except BaseException as error:  # whatever it is, the others must learn of it before it is raised
            with suppress(RunError):  # the store may be gone; this error is still the one to report
                self._ask(lambda: self._store.compare_set(f"{name}/failed", "", str(self._rank)))
                self._ask(lambda: self._arrive(name))
            if not isinstance(error, PerfkitError):
                raise
            own = error
        else:
            self._ask(lambda: self._arrive(name))
        self._await_outcome(name, own)
        return result  # type: ignore[return-value]  # no rank failed

    def explain_collective_error(self, error: RuntimeError, activity: str) -> PerfkitError | None:
        """Return a collective's error as one line that names the missing ranks; None for any other error.

        All ranks that are alive call this within moments: the first one that times out closes its connections.
        """
        text = str(error).lower()
        kind = "late" if "timed out" in text or "timeout" in text else "lost"
        if self._world_size == 1 or (kind == "lost" and not is_due_to_another_rank(text)):
            return None
        responding = self._responding_ranks(kind)
        late = [rank for rank, other in responding.items() if other == "late"]
        if responding and self._rank != min(late or responding):
            return PeerFailedError(f"rank {min(late or responding)} reports the error")
        missing = _list_ranks([rank for rank in range(self._world_size) if rank not in responding])
        if not late:
            return RunError(f"lost the connection to {missing or 'another rank'} in {activity}: was it killed?")
        who = f"{missing} did not join it" if missing else "the ranks did not issue the same one"
        return RunError(
            f"waited {self._limit} for a collective in {activity}, and {who}: find out what blocks it, "
            "or raise --timeout"
        )

    @property
    def _limit(self) -> str:
        return f"--timeout {self._limit_s:g}s"

    def _arrive(self, name: str) -> None:
        self._store.set(f"{name}/{self._rank}", "here")
        self._store.add(f"{name}/arrived", 1)

    def _await_outcome(self, name: str, own: PerfkitError | None) -> None:
        """Wait for all ranks, then raise the first failure if there is one."""
        try:
            self._wait_for_all(name)
            if self._ask(lambda: self._store.check([f"{name}/failed"])):
                self._raise_first_failure(name, own)
        except RunError as error:
            if own is None or isinstance(error, PeerFailedError):
                raise
            raise own  # noqa: B904  # the error of the barrier is not its cause

    def _wait_for_all(self, name: str) -> None:
        before, silent_s, polled, pause = (-1, -1), 0.0, time.monotonic(), _SHORTEST_POLL_S
        while True:
            progress = self._ask(lambda: (self._store.add(f"{name}/arrived", 0), self._store.add("heartbeats", 0)))
            if progress[0] == self._world_size:
                return
            # Time during which this process itself was stopped does not count as silence of the others.
            since, polled = time.monotonic() - polled, time.monotonic()
            silent_s = silent_s + min(since, _HEARTBEAT_S) if progress == before else 0.0
            before = progress
            if silent_s > self._limit_s:
                self._raise_missing_ranks(name)
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_POLL_S)

    def _raise_missing_ranks(self, name: str) -> None:
        """Raise an error that names the missing ranks; return if the last one has just arrived."""
        arrived = self._ask(lambda: [rank for rank in range(self._world_size) if self._store.check([f"{name}/{rank}"])])
        missing = [rank for rank in range(self._world_size) if rank not in arrived]
        if missing and self._rank == min(arrived):
            raise self._timeout_error(_list_ranks(missing))
        if missing:
            raise PeerFailedError(f"rank {min(arrived)} reports the missing ranks")

    def _timeout_error(self, who: str) -> RunError:
        return RunError(
            f"{who} of {self._world_size} has not started or is stuck: no sign of it within {self._limit}: "
            "find out what happened to it, or raise --timeout"
        )

    def _raise_first_failure(self, name: str, own: PerfkitError | None) -> None:
        """Raise the error of the first rank that failed; rank 0, whose process may host the store, leaves last."""
        first = int(self._ask(lambda: self._store.get(f"{name}/failed")))
        self._ask(lambda: self._store.add(f"{name}/informed", 1))
        if self._rank == 0:
            deadline = time.monotonic() + FAILURE_GRACE_S
            informed = 0
            while informed < self._world_size and time.monotonic() < deadline:
                informed = self._ask(lambda: self._store.add(f"{name}/informed", 0))
                time.sleep(_SHORTEST_POLL_S)
        if own is not None and first == self._rank:
            raise own
        raise PeerFailedError(f"rank {first} failed")

    def _responding_ranks(self, kind: str) -> dict[int, str]:
        """Publish how this rank failed; return how each rank that is alive did, and a guess if the store is stuck."""

        def gather() -> dict[int, str]:
            self._store.set(f"failure/{self._rank}", kind)
            time.sleep(FAILURE_GRACE_S / 2)
            ranks = [rank for rank in range(self._world_size) if self._store.check([f"failure/{rank}"])]
            return {rank: bytes(self._store.get(f"failure/{rank}")).decode() for rank in ranks}

        try:
            return self._requests.submit(gather).result(_REPLY_TIMEOUT_S)
        except TimeoutError:
            # Rank 0 hosts the store: it is the one that hangs, and any of the others may report it.
            return dict.fromkeys(range(1, self._world_size), kind)
        except RuntimeError:
            return dict.fromkeys(range(1, self._world_size), "lost")

    def _ask(self, request: Callable[[], T]) -> T:
        reply = self._requests.submit(request)
        for _ in range(_WAIT_PARTS):
            if wait([reply], self._limit_s / _WAIT_PARTS).done:
                break
        else:
            raise self._timeout_error("rank 0")
        try:
            return reply.result()
        except RuntimeError as error:
            raise RunError("lost the connection to rank 0: find out what happened to it") from error

    @contextmanager
    def _heartbeat(self) -> Iterator[None]:
        stop = threading.Event()

        def beat() -> None:
            while not stop.wait(min(_HEARTBEAT_S, self._limit_s / 4)):
                try:
                    self._store.add("heartbeats", 1)
                except RuntimeError:  # the store is gone: the main thread finds that out by itself
                    return

        start_own_thread("heartbeat", beat)
        try:
            yield
        finally:
            stop.set()


def _list_ranks(ranks: list[int]) -> str:
    if not ranks:
        return ""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
