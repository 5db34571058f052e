"""Ranks that wait for each other at a barrier in a store: threads here, each with its own client."""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from itertools import count
from threading import Barrier
from types import SimpleNamespace
from typing import Any, cast

import pytest
from torch.distributed import HashStore, Store, TCPStore  # type: ignore[attr-defined]

from perfkit.errors import RunError, StoreError, UsageError
from perfkit.record.distributed.store_barrier import PeerFailedError, StoreBarrier
from tests.support.processes.waiting import MOST_S

LIMIT = timedelta(seconds=MOST_S)
SILENCE = timedelta(seconds=3)
"""For tests that wait until it is over."""


def connected(limit: timedelta) -> list[StoreBarrier]:
    server = TCPStore("127.0.0.1", 0, 3, True, wait_for_workers=False)
    clients = [TCPStore("127.0.0.1", server.port, 3, False, wait_for_workers=False) for _ in range(2)]
    return [StoreBarrier(store, rank, 3, limit) for rank, store in enumerate([server, *clients])]


@pytest.fixture
def barriers() -> list[StoreBarrier]:
    return connected(LIMIT)


class Disturbed:
    """A store of two ranks that runs `meanwhile` before the first request called `name`."""

    def __init__(self, name: str, meanwhile: Callable[["Disturbed"], None]) -> None:
        self._store = HashStore()
        self._name = name
        self._meanwhile: Callable[[Disturbed], None] | None = meanwhile

    def __getattr__(self, name: str) -> Any:
        if name == self._name and self._meanwhile is not None:
            meanwhile, self._meanwhile = self._meanwhile, None
            meanwhile(self)
        return getattr(self._store, name)

    def let_rank_1_arrive(self) -> None:
        self._store.set("barrier/1/1", "here")
        self._store.add("barrier/1/arrived", 1)


def run_on_all(barriers: list[StoreBarrier], actions: list[Callable[[], Any] | None]) -> list[Future[Any]]:
    """Let every rank that has an action run it, and wait for all of them."""
    with ThreadPoolExecutor(3) as ranks:
        return [
            ranks.submit(barrier.run_on_all, action)
            for barrier, action in zip(barriers, actions, strict=True)
            if action is not None
        ]


@pytest.mark.slow  # waits for six seconds
def test_work_may_take_longer_than_the_limit_of_a_collective() -> None:
    barriers = connected(SILENCE)

    def work() -> str:
        time.sleep(2 * SILENCE.total_seconds())
        return "done"

    assert [future.result() for future in run_on_all(barriers, [lambda: 0, work, lambda: 2])] == [0, "done", 2]
    assert [future.result() for future in run_on_all(barriers, [int, int, int])] == [0, 0, 0]


def test_the_first_that_fails_raises_its_error_and_the_others_are_quiet(barriers: list[StoreBarrier]) -> None:
    def fail() -> None:
        raise UsageError("no")

    errors = [future.exception() for future in run_on_all(barriers, [int, int, fail])]
    assert [type(error) for error in errors] == [PeerFailedError, PeerFailedError, UsageError]
    assert "rank 2" in str(errors[0])


def test_an_error_of_any_kind_keeps_no_rank_waiting(barriers: list[StoreBarrier]) -> None:
    def fail() -> None:
        raise MemoryError

    began = time.monotonic()
    errors = [future.exception() for future in run_on_all(barriers, [fail, int, int])]
    assert [type(error) for error in errors] == [MemoryError, PeerFailedError, PeerFailedError]
    assert time.monotonic() - began < LIMIT.total_seconds()


def test_an_own_error_is_raised_though_the_store_is_gone() -> None:
    stores = [TCPStore("127.0.0.1", 0, 2, True, wait_for_workers=False)]
    client = TCPStore("127.0.0.1", stores[0].port, 2, False, wait_for_workers=False)

    def fail() -> None:
        stores.clear()  # as when rank 0 has ended
        raise StoreError("No space left on device")

    with pytest.raises(StoreError, match="No space left on device"):
        StoreBarrier(client, 1, 2, LIMIT).run_on_all(fail)


def test_a_silent_rank_is_named_by_one_of_the_others() -> None:
    errors = [future.exception() for future in run_on_all(connected(SILENCE), [int, None, int])]
    assert isinstance(errors[1], PeerFailedError)
    assert type(errors[0]) is RunError
    assert str(errors[0]).startswith("rank 1 of 3 has not started or is stuck: no sign of it within --timeout 3s")


def test_a_rank_that_arrives_just_after_the_limit_is_not_missing() -> None:
    store = Disturbed("check", Disturbed.let_rank_1_arrive)  # the first request for the missing ranks
    assert StoreBarrier(cast("Store", store), 0, 2, SILENCE).run_on_all(lambda: 7) == 7


def test_a_stall_of_this_process_is_not_silence_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    hours, polls = count(step=3600), count(1)

    def sleep(_: float) -> None:
        if next(polls) == 3:
            store.let_rank_1_arrive()

    monkeypatch.setattr(
        "perfkit.record.distributed.store_barrier.time", SimpleNamespace(monotonic=lambda: next(hours), sleep=sleep)
    )
    store = Disturbed("", Disturbed.let_rank_1_arrive)
    assert StoreBarrier(cast("Store", store), 0, 2, LIMIT).run_on_all(lambda: 7) == 7


def test_a_collective_that_fails_names_the_rank_that_is_missing(
    barriers: list[StoreBarrier], monkeypatch: pytest.MonkeyPatch
) -> None:
    both = Barrier(2)  # in place of the second that each gives the other
    monkeypatch.setattr("perfkit.record.distributed.store_barrier._REPLY_TIMEOUT_S", LIMIT.total_seconds())
    monkeypatch.setattr(
        "perfkit.record.distributed.store_barrier.time",
        SimpleNamespace(sleep=lambda _: both.wait(LIMIT.total_seconds())),
    )
    errors = {0: "unbound_buffer.cc:78] Timed out waiting 1000ms for recv", 2: "pair.cc:547] Connection closed by peer"}
    with ThreadPoolExecutor(3) as ranks:
        results = [
            ranks.submit(barriers[rank].explain_collective_error, RuntimeError(text), "step 7")
            for rank, text in errors.items()
        ]
    first, other = (future.result() for future in results)
    assert isinstance(other, PeerFailedError)
    assert f"waited --timeout {MOST_S:.0f}s for a collective in step 7, and rank 1 did not join it" in str(first)
    assert (
        barriers[0].explain_collective_error(RuntimeError("mat1 and mat2 shapes cannot be multiplied"), "step 7")
        is None
    )
