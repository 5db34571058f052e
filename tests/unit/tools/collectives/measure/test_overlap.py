"""How much of a collective is hidden, by a clock that only collectives and products move."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from perfkit.tools.collectives.measure.calls import Call
from perfkit.tools.collectives.measure.overlap import OverlapTest

TIME_NS, PRODUCT_NS = 30_000_000, 1_000_000


class Alone:
    """A clock, the only rank, and its timer."""

    def __init__(self) -> None:
        self.now_ns = 0

    def perf_counter_ns(self) -> int:
        return self.now_ns

    def barrier(self) -> None:
        pass

    def all_gather(self, value: float) -> list[float]:
        return [value]

    def slowest(self, samples: Sequence[float]) -> list[float]:
        return list(samples)

    def together_ns(self, action: Callable[[], None], calls: int) -> int:
        begin = self.now_ns
        for _ in range(calls):
            action()
        return self.now_ns - begin

    def multiply(self) -> None:
        self.now_ns += PRODUCT_NS

    def waits(self) -> list[Any]:
        """Block while the collective runs."""
        self.now_ns += TIME_NS
        return []

    def runs_beside(self) -> list[Any]:
        """Issue a collective that needs no core."""
        end_ns = self.now_ns + TIME_NS

        def wait() -> None:
            self.now_ns = max(self.now_ns, end_ns)

        return [SimpleNamespace(is_completed=lambda: self.now_ns >= end_ns, wait=wait)]


@pytest.mark.parametrize(("issue", "together_ns", "hidden"), [("runs_beside", TIME_NS, 1), ("waits", 2 * TIME_NS, 0)])
def test_what_needs_no_core_is_hidden_and_what_blocks_the_caller_is_not(
    issue: str, together_ns: int, hidden: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = Alone()
    monkeypatch.setattr("perfkit.tools.collectives.measure.overlap.time", alone)
    monkeypatch.setattr(OverlapTest, "_multiply", lambda _: alone.multiply())
    test = OverlapTest(cast("Any", alone), cast("Any", alone), torch.device("cpu"), repeats=3)
    found = test.measure(Call(getattr(alone, issue), lambda: None, lambda: 0), TIME_NS, 0, 1 << 20)
    assert (found.communication_ns, found.compute_ns) == (TIME_NS, TIME_NS)
    assert (found.together_ns, found.hidden) == (together_ns, hidden)
