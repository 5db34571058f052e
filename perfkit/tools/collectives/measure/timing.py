"""Time calls on all ranks: samples of many calls one after the other, each begun together."""

import time
from collections.abc import Callable, Sequence
from typing import Final

import torch

from perfkit.record.distributed.rank_group import ProcessRankGroup

_SAMPLE_NS: Final = 5_000_000
"""A sample has so many calls that it takes about this long: the ranks leave the barrier before it at slightly different
times."""
_MOST_CALLS: Final = 1000
_ESTIMATES: Final = 3


class Timer:
    """Times what all ranks do together."""

    def __init__(self, ranks: ProcessRankGroup, device: torch.device) -> None:
        self._ranks = ranks
        self._synchronize: Callable[[], object] = (
            (lambda: None) if device.type == "cpu" else torch.get_device_module(device.type).synchronize
        )

    def elapsed_ns(self, action: Callable[[], None], calls: int = 1) -> int:
        """Return how long `calls` calls of `action` take on this rank, until the device has finished."""
        self._synchronize()
        begin = time.perf_counter_ns()
        for _ in range(calls):
            action()
        self._synchronize()
        return time.perf_counter_ns() - begin

    def together_ns(self, action: Callable[[], None], calls: int = 1) -> int:
        """Return the same, begun on all ranks at once; called by all ranks."""
        self._ranks.barrier()
        return self.elapsed_ns(action, calls)

    def calls_per_sample(self, action: Callable[[], None]) -> int:
        """Return how many calls one sample needs; the same on all ranks, which all call this."""
        shortest = min(self.together_ns(action) for _ in range(_ESTIMATES))
        slowest = max(self._ranks.all_gather(shortest))
        return max(1, min(_MOST_CALLS, -(-_SAMPLE_NS // max(slowest, 1))))

    def slowest(self, samples: Sequence[float]) -> list[float]:
        """Return the largest of all ranks' values at each place; called by all ranks."""
        return [max(values) for values in zip(*self._ranks.all_gather(list(samples)), strict=True)]
