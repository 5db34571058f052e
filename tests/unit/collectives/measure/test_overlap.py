"""How much of a collective is hidden, for collectives that hide completely and not at all."""

import threading
import time
from collections.abc import Iterator
from statistics import median

import pytest
import torch

from perfkit.record.distributed.rank_group import ProcessRankGroup
from perfkit.records.benchmark import Overlap
from perfkit.tools.collectives.measure.calls import Call
from perfkit.tools.collectives.measure.overlap import OverlapTest
from perfkit.tools.collectives.measure.timing import Timer

pytestmark = [pytest.mark.slow, pytest.mark.timing]

CPU = torch.device("cpu")
TIME_S = 0.03


class Waiting:
    """A work that takes `TIME_S` and needs no core."""

    def __init__(self) -> None:
        self._done = threading.Event()
        threading.Timer(TIME_S, self._done.set).start()

    def is_completed(self) -> bool:
        return self._done.is_set()

    def wait(self) -> None:
        self._done.wait()


def in_the_background() -> list[Waiting]:
    return [Waiting()]


def before_it_returns() -> list[Waiting]:
    time.sleep(TIME_S)
    return []


@pytest.fixture(scope="module")
def test() -> Iterator[OverlapTest]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # several would wait for each other where the tests share the cores
    ranks = ProcessRankGroup(CPU)
    yield OverlapTest(ranks, Timer(ranks, CPU), CPU, repeats=9)
    torch.set_num_threads(threads)


def measure(test: OverlapTest, call: Call) -> Overlap:
    return test.measure(call, TIME_S * 1e9, 0, 1 << 20)


def test_what_needs_no_core_is_hidden(test: OverlapTest) -> None:
    # The best of some: what else the machine does can only make less of it hidden.
    found = [measure(test, Call(in_the_background, lambda: None, lambda: 0)) for _ in range(4)]
    assert min(one.communication_ns for one in found) == pytest.approx(TIME_S * 1e9, rel=0.3)
    assert max(one.hidden for one in found) > 0.6


def test_what_keeps_the_caller_waiting_is_not_hidden(test: OverlapTest) -> None:
    # The middle of some: what else the machine does may slow down either part alone, or both together.
    found = [measure(test, Call(before_it_returns, lambda: None, lambda: 0)) for _ in range(5)]
    assert median(one.hidden for one in found) < 0.4
    assert median(one.together_ns - one.communication_ns for one in found) > 0
