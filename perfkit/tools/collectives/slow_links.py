"""Which hosts, ranks or pairs are slow: their messages take longer than comparable ones, beyond noise.

Pairs within a host are compared with each other only, and so are pairs between hosts. A host (or rank) is slow if even
its fastest pair takes longer than the median of the pairs without it; then its pairs are not named one by one. Among
the others a pair is slow if it takes longer than the median of the other pairs. 'Longer' is beyond the limit after
three of the pair's own deviations are taken off.
"""

from collections.abc import Iterator, Sequence
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.records.benchmark import SlowLink

Measure = Literal["latency", "bandwidth"]
Times = NDArray[np.float64]
Mask = NDArray[np.bool_]

_LEAST_RATIO: Final = 1.5
"""Smaller differences are not named, however certain."""
_DEVIATIONS: Final = 3.0
_NOISES: Final = 6.0
_FEWEST_OTHERS: Final = 2
"""Pairs that one pair is compared with, at least."""
_FEWEST_HOSTS: Final = 3


class PairTimes(NamedTuple):
    """Times between every two ranks, both shapes (ranks, ranks), symmetric; NaN on the diagonal."""

    median_ns: Times
    deviation_ns: Times
    """Median absolute deviation over the passes."""

    @property
    def noise(self) -> float:
        """Relative deviation of a pair: the median over pairs."""
        upper = np.triu_indices(len(self.median_ns), 1)
        return float(np.median(self.deviation_ns[upper] / self.median_ns[upper]))

    @property
    def certain_ns(self) -> Times:
        """The time that a pair takes at least, as far as its own variation tells."""
        least: Times = self.median_ns - _DEVIATIONS * self.deviation_ns
        return least

    @property
    def limit(self) -> float:
        """Ratio of times from which a difference counts."""
        return max(_LEAST_RATIO, 1 + _NOISES * self.noise)


def find_slow_links(times: PairTimes, hosts: Sequence[str], measure: Measure) -> list[SlowLink]:
    """Return slow hosts, then ranks, then pairs, each by ratio, largest first."""
    names = np.array(hosts)
    within = names[:, None] == names[None, :]
    off = ~np.eye(len(hosts), dtype=np.bool_)
    slow = list(_slow_hosts(times, hosts, ~within, measure))
    named = {rank for link in slow for rank in link.ranks}
    for mask in (within & off, ~within):
        ranks = sorted(_slow_ranks(times, _without(mask, named), measure), key=_by_ratio)
        named |= {rank for link in ranks for rank in link.ranks}
        slow += ranks
    for mask in (within & off, ~within):
        slow += sorted(_slow_pairs(times, _without(mask, named), measure), key=_by_ratio)
    return slow


def _by_ratio(link: SlowLink) -> float:
    return -link.ratio


def _without(mask: Mask, ranks: set[int]) -> Mask:
    kept = mask.copy()
    kept[list(ranks), :] = kept[:, list(ranks)] = False
    return kept


def _slow_hosts(times: PairTimes, hosts: Sequence[str], between: Mask, measure: Measure) -> Iterator[SlowLink]:
    names = list(dict.fromkeys(hosts))
    if len(names) < _FEWEST_HOSTS or len(names) == len(hosts):  # one rank per host: the rank is named
        return
    for name in names:
        own = np.array([host == name for host in hosts])
        ratio = _ratio_to_others(times, between, own)
        if ratio is not None:
            ranks = np.flatnonzero(own).tolist()
            yield SlowLink(kind="host", ranks=ranks, host=name, measure=measure, ratio=ratio)


def _slow_ranks(times: PairTimes, mask: Mask, measure: Measure) -> Iterator[SlowLink]:
    for rank in range(len(mask)):
        own = np.arange(len(mask)) == rank
        ratio = _ratio_to_others(times, mask, own) if mask[rank].sum() > 1 else None
        if ratio is not None:
            yield SlowLink(kind="rank", ranks=[rank], measure=measure, ratio=ratio)


def _ratio_to_others(times: PairTimes, mask: Mask, own: NDArray[np.bool_]) -> float | None:
    """Return the median time of the pairs of `own` / that of the others; None if not all of them are longer."""
    involved = mask & (own[:, None] | own[None, :])
    others = mask & ~involved
    if not others.any() or not involved.any():
        return None
    usual = float(np.median(times.median_ns[others]))
    if times.certain_ns[involved].min() <= times.limit * usual:
        return None
    return float(np.median(times.median_ns[involved])) / usual


def _slow_pairs(times: PairTimes, mask: Mask, measure: Measure) -> Iterator[SlowLink]:
    first, second = np.nonzero(np.triu(mask))
    values, certain = times.median_ns[first, second], times.certain_ns[first, second]
    if len(values) <= _FEWEST_OTHERS:
        return
    # The median of all is at least that of the others for a pair above it.
    usual = float(np.median(values))
    for place in np.flatnonzero(certain > times.limit * usual).tolist():
        others = float(np.median(np.delete(values, place)))
        ranks = [int(first[place]), int(second[place])]
        yield SlowLink(kind="pair", ranks=ranks, measure=measure, ratio=float(values[place]) / others)


def rounds(ranks: int) -> Iterator[list[tuple[int, int]]]:
    """Yield the rounds of a round-robin tournament: ranks - 1, or as many as ranks if that is odd.

    The circle method: one place stays, the others move on by one after each round. With an odd number the place that
    stays is empty, so that another rank pauses in each round.
    """
    circle: list[int | None] = list(range(ranks))
    if ranks % 2:
        circle.insert(0, None)
    half = len(circle) // 2
    for _ in range(len(circle) - 1):
        facing = zip(circle[:half], reversed(circle[half:]), strict=True)
        yield [(min(a, b), max(a, b)) for a, b in facing if a is not None and b is not None]
        circle = [circle[0], circle[-1], *circle[1:-1]]
