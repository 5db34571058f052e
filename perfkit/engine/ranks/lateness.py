"""How much longer each rank takes than the others, in its own time, and whether that can be chance.

A rank's own time is its step without exposed communication, and so without waiting for others. Lateness is the excess
of a rank's own time in a category over the median of the other ranks, step by step (metrics.md section 5).
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.base.statistics.distributions import upper_quantile
from perfkit.base.statistics.series import OF_MAD
from perfkit.records.common import CATEGORIES, Category
from perfkit.records.rank import RankReport
from perfkit.trace.intervals import Ints

OWN: Final[tuple[Category, ...]] = ("compute", "memcpy", "data_loading", "overhead")
COLUMN: Final = {category: place for place, category in enumerate(CATEGORIES)}
FALSE_ALARMS: Final = 0.05
"""Nominal probability that chance makes any rank late in any category of a run; the tests stay well below it."""
_MEDIAN_VARIANCE: Final = (1.0, 0.5, 0.449)
"""Variance of the median of one, two and three normal values, relative to the variance of one."""
MEDIAN_ERROR: Final = math.sqrt(math.pi / 2)
"""Standard error of a median of normal values, relative to that of their mean."""
_OF_DIFFERENCES: Final = OF_MAD / math.sqrt(2)
"""Standard deviation of normal values / the median difference of two."""
_FEW_STEPS: Final = 16
_EXACT: Final = 20_000
"""Largest sum of orders of which the distribution is computed, in about a second."""
MOST_STEPS: Final = 4096
"""Further steps add nothing to the noise, and are not searched for periods."""
_MOST_ROWS: Final = 128
"""Ranks whose noise is pooled: of 1,024 times 200 steps, that of all differs by 0.2 %, and takes five times as long."""
_NS: Final = 1.0
"""Smallest noise, so that equal values divide."""

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


_KNOWN_OF_SOME: Final = ("messages_ns", "waits_ns", "may_wait_ns", "transfers_ns")


class OwnTimes(NamedTuple):
    """Own times of the ranks in the steps that all of them recorded."""

    ranks: list[int]
    steps: list[int]
    exposed_ns: Ints
    """Shape (ranks, steps, categories)."""
    of_ranks: int = 0
    """Number of ranks of the run, if these are a part of them: the more are compared, the more chance finds."""

    messages_ns: Ints | None = None
    """Exposed time of receives in which they are known not to wait, shape (ranks, steps); None if that of none is."""

    waits_ns: Ints | None = None
    """Exposed waiting for others in matched collectives, shape (ranks, steps); None if unknown."""

    may_wait_ns: Ints | None = None
    """Longest possible waiting, shape (ranks, steps): hidden waits, too, and what may be one.

    None if unknown, as of ranks without a device, whose records of collectives end late.
    """

    transfers_ns: Ints | None = None
    """Exposed communication that is surely no waiting, beyond that of the member with the least of each collective.

    Shape (ranks, steps); None if unknown, as without a device.
    """

    together: Bools | None = None
    """Whether all ranks meet in a step, some of them perhaps through others, shape (steps,); None if unknown."""

    def among(self, ranks: Sequence[int]) -> "OwnTimes":
        """Return the times of some of the ranks."""
        places = [place for place, rank in enumerate(self.ranks) if rank in ranks]
        return self._replace(
            ranks=[self.ranks[place] for place in places],
            exposed_ns=self.exposed_ns[places],
            of_ranks=self.compared,
            **{name: values[places] for name in _KNOWN_OF_SOME if (values := getattr(self, name)) is not None},
        )

    @property
    def compared(self) -> int:
        """Number of ranks that are compared in the run."""
        return max(self.of_ranks, len(self.ranks))

    @property
    def own_ns(self) -> Ints:
        """Step without waiting, or, where that is unknown, without exposed communication; shape (ranks, steps)."""
        own: Ints = self.exposed_ns.sum(axis=2) - self.exposed_ns[:, :, COLUMN["communication"]]
        return own if self.transfers_ns is None else own + self.transfers_ns

    @property
    def wall_ns(self) -> float:
        """The step: mean wall time on the slowest rank."""
        return float(self.exposed_ns.sum(axis=2).mean(axis=1).max())

    def of(self, category: Category | None) -> Ints:
        """Return the own time in a category, or as a whole, shape (ranks, steps)."""
        return self.own_ns if category is None else self.exposed_ns[:, :, COLUMN[category]]


def own_times(ranks: Sequence[RankReport]) -> OwnTimes | None:
    """Return the own times in the steps that all ranks recorded; None with fewer than two ranks or no common step."""
    table = {rank.rank: {step.step: step for step in rank.steps} for rank in ranks if rank.rank is not None}
    if len(table) < 2:
        return None
    common = set.intersection(*(set(steps) for steps in table.values()))
    steps = sorted(step for step in common if step is not None)
    if not steps:
        return None
    exposed = [[[getattr(own[s].exposed_ns, c) for c in CATEGORIES] for s in steps] for own in table.values()]
    return OwnTimes(list(table), steps, np.array(exposed, np.int64))


def excess(values: NDArray[Any]) -> NDArray[Any]:
    """Return by how much each of two or more ranks exceeds the median of the others, per step; shape (ranks, steps).

    float32 of float32, else float64. The k-th of the others is the k-th of all, or the next for a rank at or below it.
    """
    places = sorted({(len(values) - 2) // 2, (len(values) - 1) // 2})
    ordered = np.partition(values, [*places, places[-1] + 1], axis=0)
    middle = [np.where(values <= ordered[k], ordered[k + 1], ordered[k]) for k in places]
    return np.asarray(values - (middle[0] if len(middle) == 1 else (middle[0] + middle[1]) / 2))


class Rounds(NamedTuple):
    """Steps from one meeting of the ranks to the next: without communication nobody waits, and delays add up."""

    number: Ints
    """Round of each step, shape (steps,)."""
    counted: Bools
    """Whether it is known what ranks wait in the round, shape (rounds,): not in the last if its end may be later."""

    def sums(self, values: Ints | Floats) -> Floats:
        """Return the sums over each round of `values`, shape (…, steps)."""
        first = np.flatnonzero(np.diff(self.number, prepend=-1))
        return np.asarray(np.add.reduceat(values, first, axis=-1), np.float64)

    @property
    def sizes(self) -> Ints:
        """Number of steps of each round."""
        return np.bincount(self.number)


def rounds_of(times: OwnTimes) -> Rounds:
    """Return the rounds of a run: usually single steps; if gradients accumulate over steps, those that do.

    Steps in which only some of the ranks meet, as those of tensor parallelism do, end no round: the others wait later.
    Without any communication each step is a round, in which the ranks may have met unrecorded.
    """
    meet = (times.of("communication") != 0).any(axis=0)
    if not meet.any():
        return Rounds(np.arange(len(meet)), np.ones(len(meet), np.bool_))
    if times.together is not None and (meet & times.together).any():
        meet &= times.together
    number = np.cumsum(meet) - meet
    sizes = np.bincount(number)
    counted = np.arange(len(sizes)) < meet.sum()
    # Ranks that do not meet for longer than ever before may do so no more, or hide it: nobody is seen to wait.
    counted[-1] |= sizes[-1] > sizes[:-1].max(initial=0)
    return Rounds(number, counted)


def _communication_ns(times: OwnTimes, rounds: Rounds) -> Floats:
    communication = times.of("communication")
    return rounds.sums(communication if times.messages_ns is None else communication - times.messages_ns)


def _next_too(less: Floats) -> Floats:
    """Return the larger of each value and the one in the next round, shape (…, rounds)."""
    less[..., :-1] = np.maximum(less[..., :-1], less[..., 1:])
    return less


def waited_ns(times: OwnTimes) -> Floats:
    """Return how much more the others communicate, exposed, than each rank in the round of a step, or in the next.

    Shape (ranks, steps).
    """
    rounds = rounds_of(times)
    return np.asarray(waited_for_each_ns(times, rounds)[:, rounds.number])


def waited_for_each_ns(times: OwnTimes, rounds: Rounds) -> Floats:
    """Return how much more the others communicate, exposed, than each rank (ns), shape (ranks, rounds).

    They may wait only in the next round, if a rank was late after the last collective. What a receive is known to take
    without waiting is left out: of two ends one may compute meanwhile, and the other does not wait for it.
    """
    return np.asarray(_next_too(_waited_in_round_ns(times, rounds)))


def _waited_in_round_ns(times: OwnTimes, rounds: Rounds) -> Floats:
    """Return how much more the others communicate, exposed, than each rank in a round (ns), shape (ranks, rounds).

    Where all ranks communicate for longer than they compute, one that computes for longer exposes less of it, and the
    others do not wait for it: the network decides. So the difference counts only as far as they may wait.
    """
    longer = -excess(_communication_ns(times, rounds))
    if times.may_wait_ns is None:
        return np.asarray(longer)
    may_wait = rounds.sums(times.may_wait_ns)
    return np.asarray(np.minimum(longer, may_wait - excess(may_wait)))


class LastRanks(NamedTuple):
    """The ranks that each step was waiting for: those above the largest gap of own times, half of all or fewer."""

    row: Ints
    """Index of the last rank, shape (steps,)."""
    among: Bools
    """Shape (ranks, steps)."""
    lag_ns: Floats
    """By how much they are later than all others, as far as these wait, shape (steps,)."""


def last_ranks(times: OwnTimes) -> LastRanks:
    """Return in each step the ranks above the largest gap between own times."""
    own, waited = times.own_ns, waited_ns(times)
    ranks, steps = own.shape
    order = np.argsort(-own, axis=0, kind="stable")
    ordered = np.take_along_axis(own, order, axis=0).astype(np.float64)
    gaps = ordered[: ranks // 2] - ordered[1 : ranks // 2 + 1]
    count = gaps.argmax(axis=0) + 1
    ahead = np.arange(ranks)[:, None] < count
    least_waited = np.where(ahead, np.take_along_axis(waited, order, axis=0), np.inf).min(axis=0)
    among = np.zeros(own.shape, np.bool_)
    np.put_along_axis(among, order, ahead, axis=0)
    return LastRanks(order[0], among, np.minimum(gaps[count - 1, np.arange(steps)], least_waited))


def median_variance(count: int) -> float:
    """Return the variance of the median of `count` normal values, relative to the variance of one."""
    return _MEDIAN_VARIANCE[count - 1] if count <= len(_MEDIAN_VARIANCE) else math.pi / 2 / count


def noise_ns(values: Ints | Floats, cells: Ints) -> Floats:
    """Return the variation of each row of `values` from step to step, shape (rows,).

    The median difference between two steps of one cell, as a standard deviation (Shamos's estimator): a few hiccups
    do not change it.

    Args:
        values: times, shape (rows, steps).
        cells: cell of each step, shape (steps,): only steps of one cell are comparable.
    """
    return np.asarray(np.median(_differences(values, cells), axis=1) * _OF_DIFFERENCES)


def pooled_noise_ns(values: Ints | Floats, cells: Ints) -> float:
    """Return the same over all ranks together, with one figure for all.

    With three ranks or more, what all ranks share in a step (longer sequences, say) is no noise.
    """
    rest = values - np.median(values, axis=0) if len(values) > 2 else values
    rest = rest[np.random.default_rng(0).permutation(len(rest))[:_MOST_ROWS]]
    return float(np.median(_differences(rest, cells)) * _OF_DIFFERENCES)


def _differences(values: Ints | Floats, cells: Ints) -> Floats:
    """Return absolute differences between steps of one cell, shape (rows, pairs)."""
    thin = -(-len(cells) // MOST_STEPS)
    order = np.argsort(cells, kind="stable")[::thin]
    ordered, cell = np.asarray(values, np.float64)[:, order], cells[order]
    count = len(order)
    # All pairs of a few steps; of many, those at distances that double, so that the cost stays linear.
    lags = range(1, count) if count <= _FEW_STEPS else [1 << k for k in range(count.bit_length() - 1)]
    parts = [np.abs(ordered[:, lag:] - ordered[:, :-lag])[:, cell[lag:] == cell[:-lag]] for lag in lags]
    return np.concatenate(parts, axis=1)


def surely_late(values: Ints | Floats, tail: float, rows: Ints | None = None) -> Bools:
    """Return for each rank, or those in `rows`, whether the median of its excess is positive beyond chance."""
    which, whole = np.arange(len(values)) if rows is None else rows, np.zeros(values.shape[1], np.int64)
    own = excess(values)[which]
    return np.asarray(np.median(own, axis=1) >= lag_limits(values, own, which, whole, tail)[:, 0])


def lag_limits(values: Ints | Floats, beyond: Floats, rows: Ints, phase: Ints, tail: float) -> Floats:
    """Return from which median excess on a rank is late in a phase beyond chance, shape (rows, phases).

    The noise is that of all ranks together within phases, or that of the rank or within the phase, if one is larger.
    Without phases, the order of the ranks in each step decides too, each of the two with half of the error: for that,
    delays may differ from step to step by any factor. Of two ranks it is Student's t of their difference.

    Args:
        values: own times, shape (ranks, steps).
        beyond: excess of some ranks over the others, shape (rows, steps).
        rows: these ranks, shape (rows,).
        phase: of each step, shape (steps,); each has one.
        tail: accepted probability of an error.
    """
    (ranks, steps), count = values.shape, np.bincount(phase)
    df, error = degrees_of_freedom(ranks, steps, len(count)), MEDIAN_ERROR / np.sqrt(count)
    noise = np.maximum(pooled_noise_ns(values, phase) * math.sqrt(1 + median_variance(ranks - 1)), _NS)
    if len(count) > 1:
        spread = np.stack([_deviation(beyond[:, phase == one]) for one in range(len(count))], axis=1)
        own = noise_ns(beyond, phase)[:, np.newaxis]
        return np.asarray(upper_quantile(tail, df) * error * np.maximum(np.maximum(own, spread), noise))
    limit = upper_quantile(tail / 2, df) * error * np.maximum(_own_noise_ns(beyond), noise)
    if ranks == 2:  # the difference of two that are equal is symmetric
        deviation = np.maximum(beyond.std(axis=1, ddof=1), _NS) / math.sqrt(steps)
        higher = beyond.mean(axis=1) > upper_quantile(tail / 2, steps - 1) * deviation
    else:
        higher = order_sums(values, rows) >= least_order_sum(ranks, steps, tail / 2)
    return np.where(higher, np.minimum(limit, _NS), limit)[:, np.newaxis]


def order_sums(values: Ints | Floats, rows: Ints) -> Ints:
    """Return for each rank in `rows` the number of others below it less that above it, summed over steps."""
    return np.array([np.sign(values[row] - values).sum() for row in rows], np.int64)


@lru_cache(maxsize=256)
def least_order_sum(ranks: int, steps: int, tail: float) -> float:
    """Return from which `order_sums` on a rank is higher beyond chance, whatever the distribution of the noise.

    Of ranks that do not differ, each order is as likely in each step: the sum is that of `steps` numbers of 0 to
    `ranks - 1`, all as likely. Of many it is normal, with tails that are longer than those of the sum.
    """
    size = (ranks - 1) * steps
    if size > _EXACT:
        return NormalDist().inv_cdf(1 - tail) * math.sqrt(steps * (ranks**2 - 1) / 3)
    ways = np.ones(1)
    for _ in range(steps):
        sums = np.cumsum(np.pad(ways, (0, ranks - 1)))
        sums[ranks:] -= sums[:-ranks].copy()
        ways = sums / ranks
    above = np.cumsum(ways[::-1])[::-1]
    return 2.0 * int(np.searchsorted(-above, -tail)) - size


def _deviation(values: Floats) -> Floats:
    """Return the standard deviation of each row, by its median absolute deviation."""
    around = np.abs(values - np.median(values, axis=1, keepdims=True))
    return np.asarray(np.median(around, axis=1) * OF_MAD)


def _own_noise_ns(beyond: Floats) -> Floats:
    """Return each rank's own noise, without hiccups: by pairs of steps, or with the longest delays cut, if smaller."""
    middle = np.median(beyond, axis=1, keepdims=True)
    cut = np.minimum(beyond, 2 * middle - beyond.min(axis=1, keepdims=True))
    pairs = noise_ns(beyond, np.zeros(beyond.shape[1], np.int64))
    return np.asarray(np.minimum(cut.std(axis=1, ddof=1), pairs))


def degrees_of_freedom(ranks: int, steps: int, cells: int = 1) -> int:
    """Return those of the noise of all ranks together about a mean per rank and cell."""
    return (ranks - 1 if ranks > 2 else ranks) * (steps - cells)
