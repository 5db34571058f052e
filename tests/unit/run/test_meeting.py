"""Ranks that wait for each other by the store: threads here, a store of their own kind each."""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from perfkit.errors import RunError, UsageError
from perfkit.run.meeting import Meeting, PeerFailedError

LIMIT = timedelta(seconds=1)


@pytest.fixture
def meetings() -> list[Meeting]:
    server = TCPStore("127.0.0.1", 0, 3, True, wait_for_workers=False)
    clients = [TCPStore("127.0.0.1", server.port, 3, False, wait_for_workers=False) for _ in range(2)]
    return [Meeting(store, rank, 3, LIMIT) for rank, store in enumerate([server, *clients])]


def meet(meetings: list[Meeting], actions: list[Callable[[], Any] | None]) -> list[Future[Any]]:
    """Let every rank that has an action come, and wait until they have parted."""
    with ThreadPoolExecutor(3) as ranks:
        return [
            ranks.submit(meeting.together, action)
            for meeting, action in zip(meetings, actions, strict=True)
            if action is not None
        ]


def test_work_may_take_longer_than_the_limit_of_a_collective(meetings: list[Meeting]) -> None:
    def work() -> str:
        time.sleep(2.5)
        return "done"

    assert [future.result() for future in meet(meetings, [lambda: 0, work, lambda: 2])] == [0, "done", 2]
    assert [future.result() for future in meet(meetings, [int, int, int])] == [0, 0, 0]


def test_the_first_that_fails_says_why_and_the_others_are_quiet(meetings: list[Meeting]) -> None:
    def fail() -> None:
        raise UsageError("no")

    errors = [future.exception() for future in meet(meetings, [int, int, fail])]
    assert [type(error) for error in errors] == [PeerFailedError, PeerFailedError, UsageError]
    assert "rank 2" in str(errors[0])


def test_an_error_of_any_kind_lets_nobody_wait(meetings: list[Meeting]) -> None:
    def fail() -> None:
        raise MemoryError

    began = time.monotonic()
    errors = [future.exception() for future in meet(meetings, [fail, int, int])]
    assert [type(error) for error in errors] == [MemoryError, PeerFailedError, PeerFailedError]
    assert time.monotonic() - began < LIMIT.total_seconds()


def test_a_silent_rank_is_named_by_one_of_the_others(meetings: list[Meeting]) -> None:
    errors = [future.exception() for future in meet(meetings, [int, None, int])]
    assert isinstance(errors[1], PeerFailedError)
    assert type(errors[0]) is RunError
    assert str(errors[0]).startswith("rank 1 of 3 has not started or is stuck: nothing heard of it for --timeout 1s")


def test_a_collective_that_fails_names_the_rank_that_is_missing(meetings: list[Meeting]) -> None:
    errors = {0: "unbound_buffer.cc:78] Timed out waiting 1000ms for recv", 2: "pair.cc:547] Connection closed by peer"}
    with ThreadPoolExecutor(3) as ranks:
        told = [ranks.submit(meetings[rank].explain, RuntimeError(text), "step 7") for rank, text in errors.items()]
    first, other = (future.result() for future in told)
    assert isinstance(other, PeerFailedError)
    assert "waited --timeout 1s for a collective in step 7, and rank 1 did not come" in str(first)
    assert meetings[0].explain(RuntimeError("mat1 and mat2 shapes cannot be multiplied"), "step 7") is None
