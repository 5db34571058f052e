"""How the ranks agree before and between their collectives, by the store: who has come, who failed, who is missing.

A collective has a limit that begins when the first rank enters it. Work that one rank does while the others wait
(writing a data set, a trace) has none: here the others wait for as long as they hear of somebody.
"""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Final, TypeVar

from torch.distributed import Store  # type: ignore[attr-defined]

from perfkit.capture.distributed.launcher_env import FAILURE_GRACE_S
from perfkit.errors import PerfkitError, RunError

T = TypeVar("T")

_BEAT_S: Final = 1.0
_ANSWER_S: Final = 5.0
"""How long the store may take to answer once something has gone wrong."""
_PARTS: Final = 10
"""A limit is waited for in so many parts: while this whole process is stopped, one of them ends and no more."""
_SHORTEST_POLL_S: Final = 0.005
_LONGEST_POLL_S: Final = 0.2
_BROKEN: Final = ("connection closed", "connection reset", "broken pipe", "connection refused", "remote process exited")
"""What gloo, NCCL and the store say of a peer that is gone."""


class PeerFailedError(RunError):
    """Another rank failed and reports it; this one ends quietly."""


class StoreBarrier:
    """The ranks of a run, connected by its store.

    Args:
        store: Where they leave word; rank 0's process, or torchrun's agent, holds it.
        rank: This rank.
        world_size: Number of ranks.
        limit: Limit of a collective, and of silence.
    """

    def __init__(self, store: Store, rank: int, world_size: int, limit: timedelta) -> None:
        self._store = store
        self._rank = rank
        self._world_size = world_size
        self._limit_s = limit.total_seconds()
        self._held = 0
        # The store may never answer, if the process that holds it was stopped; and a signal must not cut a request
        # short. So another thread asks.
        self._asking = ThreadPoolExecutor(1)

    def run_on_all(self, action: Callable[[], T]) -> T:
        """Run `action` on every rank, however long it takes; go on only if it succeeded on all.

        Raises:
            PerfkitError: This rank's own error.
            PeerFailedError: Another rank has one.
            RunError: Nothing was heard of a rank for as long as the limit.
        """
        if self._world_size == 1:
            return action()
        self._held += 1
        name = f"meeting/{self._held}"
        own: PerfkitError | None = None
        result: T | None = None
        try:
            with self._heartbeat():
                result = action()
        except BaseException as error:  # whatever it is, the others must hear of it before it goes on its way
            with suppress(RunError):  # the store may be gone; this error still is the one to tell
                self._ask(lambda: self._store.compare_set(f"{name}/failed", "", str(self._rank)))
                self._ask(lambda: self._arrive(name))
            if not isinstance(error, PerfkitError):
                raise
            own = error
        else:
            self._ask(lambda: self._arrive(name))
        self._conclude(name, own)
        return result  # type: ignore[return-value]  # nobody failed

    def explain_collective_error(self, error: RuntimeError, doing: str) -> PerfkitError | None:
        """Return a collective's error as one line that names the ranks that are missing; None for any other error.

        Every rank that is alive comes here within moments: the first whose limit is over closes its connections.

        Args:
            error: What torch has raised.
            doing: What the ranks were about.
        """
        text = str(error).lower()
        kind = "late" if "timed out" in text or "timeout" in text else "lost"
        if self._world_size == 1 or (kind == "lost" and not any(sign in text for sign in _BROKEN)):
            return None
        found = self._responding_ranks(kind)
        late = [rank for rank, other in found.items() if other == "late"]
        if found and self._rank != min(late or found):
            return PeerFailedError(f"rank {min(late or found)} says why")
        missing = _named([rank for rank in range(self._world_size) if rank not in found])
        if not late:
            return RunError(f"lost the connection to {missing or 'another rank'} in {doing}: was it killed?")
        who = f"{missing} did not come" if missing else "the ranks did not come to the same one"
        return RunError(
            f"waited {self._limit} for a collective in {doing}, and {who}: see what keeps it, or raise --timeout"
        )

    @property
    def _limit(self) -> str:
        return f"--timeout {self._limit_s:g}s"

    def _arrive(self, name: str) -> None:
        self._store.set(f"{name}/{self._rank}", "here")
        self._store.add(f"{name}/here", 1)

    def _conclude(self, name: str, own: PerfkitError | None) -> None:
        """Wait until all have come, and raise what the first to fail has to say if one has."""
        try:
            self._wait_for_all(name)
            if self._ask(lambda: self._store.check([f"{name}/failed"])):
                self._raise_first_failure(name, own)
        except RunError as error:
            if own is None or isinstance(error, PeerFailedError):
                raise
            raise own  # noqa: B904  # its cause is its own: that nobody could be told comes second

    def _wait_for_all(self, name: str) -> None:
        seen, silent_s, asked, pause = (-1, -1), 0.0, time.monotonic(), _SHORTEST_POLL_S
        while True:
            heard = self._ask(lambda: (self._store.add(f"{name}/here", 0), self._store.add("beats", 0)))
            if heard[0] == self._world_size:
                return
            # Where this process itself was stopped for a while, that is no silence of the others.
            since, asked = time.monotonic() - asked, time.monotonic()
            silent_s = silent_s + min(since, _BEAT_S) if heard == seen else 0.0
            seen = heard
            if silent_s > self._limit_s:
                self._raise_missing_ranks(name)
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_POLL_S)

    def _raise_missing_ranks(self, name: str) -> None:
        """Raise who is missing; return if the last one has come just now."""
        here = self._ask(lambda: [rank for rank in range(self._world_size) if self._store.check([f"{name}/{rank}"])])
        missing = [rank for rank in range(self._world_size) if rank not in here]
        if missing and self._rank == min(here):
            raise self._timeout_error(_named(missing))
        if missing:
            raise PeerFailedError(f"rank {min(here)} says who is missing")

    def _timeout_error(self, who: str) -> RunError:
        return RunError(
            f"{who} of {self._world_size} has not started or is stuck: nothing heard of it for {self._limit}: "
            "see what became of it, or raise --timeout"
        )

    def _raise_first_failure(self, name: str, own: PerfkitError | None) -> None:
        """Raise what the first to fail has to say; rank 0, whose process may hold the store, leaves last."""
        first = int(self._ask(lambda: self._store.get(f"{name}/failed")))
        self._ask(lambda: self._store.add(f"{name}/heard", 1))
        if self._rank == 0:
            deadline = time.monotonic() + FAILURE_GRACE_S
            heard = 0
            while heard < self._world_size and time.monotonic() < deadline:
                heard = self._ask(lambda: self._store.add(f"{name}/heard", 0))
                time.sleep(_SHORTEST_POLL_S)
        if own is not None and first == self._rank:
            raise own
        raise PeerFailedError(f"rank {first} failed")

    def _responding_ranks(self, kind: str) -> dict[int, str]:
        """Say how this rank failed and return how each did that is alive; nothing where the store does not answer."""

        def gather() -> dict[int, str]:
            self._store.set(f"end/{self._rank}", kind)
            time.sleep(FAILURE_GRACE_S / 2)
            ranks = [rank for rank in range(self._world_size) if self._store.check([f"end/{rank}"])]
            return {rank: bytes(self._store.get(f"end/{rank}")).decode() for rank in ranks}

        try:
            return self._asking.submit(gather).result(_ANSWER_S)
        except TimeoutError:
            # Rank 0 holds the store: it is the one that hangs, and each of the others may say so.
            return dict.fromkeys(range(1, self._world_size), kind)
        except RuntimeError:
            return dict.fromkeys(range(1, self._world_size), "lost")

    def _ask(self, request: Callable[[], T]) -> T:
        answer = self._asking.submit(request)
        for _ in range(_PARTS):
            if wait([answer], self._limit_s / _PARTS).done:
                break
        else:
            raise self._timeout_error("rank 0")
        try:
            return answer.result()
        except RuntimeError as error:
            raise RunError("lost the connection to rank 0: see what became of it") from error

    @contextmanager
    def _heartbeat(self) -> Iterator[None]:
        """Let the others hear that this rank is alive."""
        stop = threading.Event()

        def beat() -> None:
            while not stop.wait(min(_BEAT_S, self._limit_s / 4)):
                try:
                    self._store.add("beats", 1)
                except RuntimeError:  # the store is gone: the main thread finds out by itself
                    return

        threading.Thread(target=beat, daemon=True).start()
        try:
            yield
        finally:
            stop.set()


def _named(ranks: list[int]) -> str:
    if not ranks:
        return ""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
