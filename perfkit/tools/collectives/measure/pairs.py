"""`--pairs`: messages between every two ranks, in rounds of disjoint pairs."""

from typing import Final

import numpy as np
import torch

from perfkit.record.distributed.rank_group import ProcessRankGroup
from perfkit.records.benchmark import PairTest, PairTime
from perfkit.tools.collectives.config import Message
from perfkit.tools.collectives.measure.calls import Buffers, Member, exchange
from perfkit.tools.collectives.measure.timing import Timer
from perfkit.tools.collectives.slow_links import PairTimes, find_slow_links, rounds

_SMALL_BYTES: Final = 8
_MOST_BYTES: Final = 4 << 20
_CALLS: Final = (20, 2)
"""Calls per sample, of small and of large messages."""


def measure_pairs(
    ranks: ProcessRankGroup, timer: Timer, device: torch.device, hosts: list[str], largest: int, passes: int
) -> PairTest:
    """Let every two ranks exchange a small and a large message; called by all ranks.

    Args:
        largest: Bytes of the large message, at most 4 MiB of them.
        passes: How often to repeat the tournament. One more, in which the connections are made, does not count.
    """
    sizes = [_message(count) for count in (_SMALL_BYTES, min(largest, _MOST_BYTES))]
    member = Member(None, range(ranks.world_size), ranks.rank, device)
    samples = np.full((2, passes + 1, ranks.world_size), np.nan)
    plan = list(rounds(ranks.world_size))
    for number in range(passes + 1):
        ranks.current_activity = f"pass {number} of the pairs"
        for pairs in plan:
            _measure_round(timer, member, sizes, pairs, samples[:, number])
    small, large = (_combine(ranks, samples[place, 1:]) for place in range(2))
    return PairTest(
        small_bytes=sizes[0].bytes,
        large_bytes=sizes[1].bytes,
        passes=passes,
        rounds=len(plan),
        pairs=_pair_times(small, large, sizes[1].bytes),
        slow=[*find_slow_links(small, hosts, "latency"), *find_slow_links(large, hosts, "bandwidth")],
        latency_noise=small.noise,
        bandwidth_noise=large.noise,
    )


def _message(count: int) -> Message:
    elements = max(1, count // 4)
    return Message(elements * 4, elements, elements)


def _measure_round(
    timer: Timer, member: Member, sizes: list[Message], pairs: list[tuple[int, int]], samples: np.ndarray
) -> None:
    """Measure this rank's pair, if it has one in this round; `samples` has a row per size and a column per partner."""
    partner = next((a + b - member.place for a, b in pairs if member.place in (a, b)), None)
    for row, (size, calls) in enumerate(zip(sizes, _CALLS, strict=True)):
        if partner is None:
            timer.together_ns(lambda: None)
            continue
        call = exchange(Buffers(member, size, torch.float32), to=partner, source=partner)
        samples[row, partner] = timer.together_ns(call.run, calls) / calls


def _combine(ranks: ProcessRankGroup, samples: np.ndarray) -> PairTimes:
    """Return the times of all pairs from every rank's samples, shape (passes, ranks): the slower end's."""
    others = np.arange(samples.shape[1]) != ranks.rank
    own = np.full((2, samples.shape[1]), np.nan)
    own[0, others] = np.median(samples[:, others], axis=0)
    own[1, others] = np.median(np.abs(samples[:, others] - own[0, others]), axis=0)
    both = np.stack(ranks.all_gather(own), axis=1)
    swapped = both.transpose(0, 2, 1)
    return PairTimes(*np.where(both[0] >= swapped[0], both, swapped))


def _pair_times(small: PairTimes, large: PairTimes, large_bytes: int) -> list[PairTime]:
    first, second = np.triu_indices(len(small.median_ns), 1)
    return [
        PairTime(ranks=(a, b), latency_ns=latency, time_ns=time_ns, bandwidth=large_bytes * 1e9 / time_ns)
        for a, b, latency, time_ns in zip(
            first.tolist(),
            second.tolist(),
            small.median_ns[first, second].tolist(),
            large.median_ns[first, second].tolist(),
            strict=True,
        )
    ]
