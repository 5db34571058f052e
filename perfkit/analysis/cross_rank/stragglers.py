"""Is one rank late step after step, or was one late once, so that the others wait for it? And in what is it slow?

The waiting of others shows as *their* communication, so the share of communication alone blames the network for a
slow rank. Two things tell who is late. Of matched collectives, the straggler is the rank that waits least (metrics.md
section 5). Where too few are matched, a rank's own time (its step without exposed communication) does not contain
waiting for others: the rank whose own time is longest is the one that is waited for. In what it is slow is where its
own time exceeds that of the others.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.analysis.cross_rank.matching import MatchedCollectives
from perfkit.schema.common import CATEGORIES, Category
from perfkit.schema.cross_rank import Evidence, OneOffStraggler, Straggler
from perfkit.schema.rank import RankReport
from perfkit.trace.intervals import Ints
from perfkit.util.formatting import duration

_NOTICEABLE: Final = 0.05
"""Share of the step that a lag must reach to be spoken of: ranks differ by a few per cent anyway."""
_OFTEN: Final = 0.75
"""Share of the steps in which a straggler must be the last."""
_NOISES: Final = 2.0
"""So many times what it varies from step to step a lag must reach (median absolute deviation)."""
_FEWEST_STEPS: Final = 2
"""One step alone tells nothing about a rank."""
_ONCE_NOTICEABLE: Final = 0.25
"""Share of the step that a lag must reach to be spoken of though it happened once."""
_ONCE_BEYOND: Final = 5.0
"""So many times the steps' median lag it must be, to be no part of what the ranks differ by anyway."""
_MOST_LATE: Final = 3
_EXPLAINS: Final = 0.25
"""Share of the lag that a category must show to be named as where the rank is slow."""
_NEARLY_ALL: Final = 0.9
_OWN: Final[tuple[Category, ...]] = ("compute", "memcpy", "data_loading", "overhead")
_PLACE: Final = {category: place for place, category in enumerate(CATEGORIES)}


class StepDelays(NamedTuple):
    """How late each rank was in each step that all of them recorded."""

    evidence: Evidence
    ranks: list[int]
    steps: list[int]
    late_ns: Ints
    """Shape (ranks, steps); only differences between ranks of one step mean anything."""
    exposed_ns: Ints
    """Shape (ranks, steps, categories)."""

    @property
    def wall_ns(self) -> float:
        """The median step, of the slowest rank."""
        return float(np.median(self.exposed_ns.sum(axis=2).max(axis=0)))


def step_delays(ranks: Sequence[RankReport], matched: MatchedCollectives) -> StepDelays | None:
    """Return how late each rank was, by matched collectives where they tell; None where ranks cannot be compared."""
    table = {rank.rank: {step.step: step for step in rank.steps} for rank in ranks if rank.rank is not None}
    if len(table) < 2:
        return None
    common = {step for step in set.intersection(*(set(steps) for steps in table.values())) if step is not None}
    steps = sorted(common)
    if len(steps) < _FEWEST_STEPS:
        return None
    exposed = np.array(
        [[[getattr(own[s].exposed_ns, c) for c in CATEGORIES] for s in steps] for own in table.values()], np.int64
    )
    waited = _waited(list(table), steps, matched)
    if waited is not None:
        return StepDelays("waiting", list(table), steps, -waited, exposed)
    own = exposed.sum(axis=2) - exposed[:, :, _PLACE["communication"]]
    return StepDelays("own_time", list(table), steps, own, exposed)


def _waited(ranks: list[int], steps: list[int], matched: MatchedCollectives) -> Ints | None:
    """Return how long each rank waited in each step, shape (ranks, steps); None unless all of them could have."""
    rows = np.flatnonzero(matched.splits & np.isin(matched.rank, ranks) & np.isin(matched.step, steps))
    by_rank = np.argsort(ranks)
    where = (
        by_rank[np.searchsorted(ranks, matched.rank[rows], sorter=by_rank)],
        np.searchsorted(steps, matched.step[rows]),
    )
    waited, count = (np.zeros((len(ranks), len(steps)), np.int64) for _ in range(2))
    np.add.at(waited, where, matched.wait_ns[rows])
    np.add.at(count, where, 1)
    return waited if count.all() else None


def find_straggler(found: StepDelays) -> Straggler | None:
    """Return the rank that the others wait for, or None where none stands out.

    It must be the last in three of four steps, late by a noticeable share of the step, and by more than twice what its
    lag varies from step to step (median absolute deviation).
    """
    last = found.late_ns.argmax(axis=0)
    place = int(np.bincount(last, minlength=len(found.ranks)).argmax())
    times = int((last == place).sum())
    lags = _excess_over_median(found.late_ns, place)
    lag_ns = float(np.median(lags))
    noise_ns = float(np.median(np.abs(lags - lag_ns)))
    often = times >= _OFTEN * len(found.steps)
    if not often or lag_ns <= 0 or lag_ns < max(_NOTICEABLE * found.wall_ns, _NOISES * noise_ns):
        return None
    more = np.median(_excess_over_median(found.exposed_ns, place), axis=0)
    category, category_ns = _slow_in(more, lag_ns)
    return Straggler(
        rank=found.ranks[place],
        evidence=found.evidence,
        lag_ns=round(lag_ns),
        noise_ns=round(noise_ns),
        share=lag_ns / found.wall_ns,
        category=category,
        category_ns=category_ns,
        wait_ns=-round(float(more[_PLACE["communication"]])),
        steps_last=times,
        steps=len(found.steps),
    )


def find_one_off_stragglers(found: StepDelays, straggler: Straggler | None) -> list[OneOffStraggler]:
    """Return the steps in which one rank was late for once, the longest first.

    A step that follows none of the trace is left out: it holds the skew with which the ranks began to record.
    """
    return sorted(_late_steps(found, straggler), key=lambda late: -late.lag_ns)[:_MOST_LATE]


def _late_steps(found: StepDelays, straggler: Straggler | None) -> Iterator[OneOffStraggler]:
    last = found.late_ns.argmax(axis=0).tolist()
    lags = [float(_excess_over_median(found.late_ns[:, [k]], place)[0]) for k, place in enumerate(last)]
    usual_ns = max(float(np.median(lags)), straggler.lag_ns if straggler else 0)
    least_ns = max(_ONCE_NOTICEABLE * found.wall_ns, _ONCE_BEYOND * usual_ns)
    known = set(found.steps)
    for k, (step, place, lag_ns) in enumerate(zip(found.steps, last, lags, strict=True)):
        if lag_ns < least_ns or step - 1 not in known:
            continue
        category, category_ns = _slow_in(_excess_over_median(found.exposed_ns[:, k], place), lag_ns)
        yield OneOffStraggler(
            rank=found.ranks[place], step=step, lag_ns=round(lag_ns), category=category, category_ns=category_ns
        )


def _excess_over_median(values: Ints, place: int) -> NDArray[np.float64]:
    """Return by how much one rank exceeds the median of the others; ranks are the first axis."""
    beyond: NDArray[np.float64] = values[place] - np.median(np.delete(values, place, axis=0), axis=0)
    return beyond


def _slow_in(more_ns: NDArray[np.float64], lag_ns: float) -> tuple[Category | None, int]:
    """Return the category in which a rank takes longer than the others, and by how much."""
    category = max(_OWN, key=lambda name: more_ns[_PLACE[name]])
    ns = float(more_ns[_PLACE[category]])
    return (category, round(ns)) if ns >= _EXPLAINS * lag_ns else (None, 0)


def straggler_sentence(straggler: Straggler) -> str:
    """Say which rank is late, by how much, in what, and how often."""
    lag = duration(straggler.lag_ns)
    if straggler.evidence == "own_time":
        waiting = (
            f", which wait {duration(straggler.wait_ns)} for it in communication" if straggler.delays_others else ""
        )
        return (
            f"rank {straggler.rank} takes {lag} a step longer by itself than the other ranks "
            f"({slow_in(straggler)}){waiting}"
        )
    hidden = straggler.wait_ns < _NEARLY_ALL * straggler.lag_ns
    exposed = f", {duration(max(straggler.wait_ns, 0))} of it exposed" if hidden else ""
    return (
        f"rank {straggler.rank} keeps the other ranks waiting {lag} a step in collectives{exposed} "
        f"({slow_in(straggler)}); "
        f"it is the last in {straggler.steps_last} of {straggler.steps} steps"
    )


def slow_in(late: Straggler | OneOffStraggler) -> str:
    """Say where a late rank takes longer than the others."""
    if late.category is None:
        return "its own time does not show in what"
    return f"{late.category.replace('_', ' ')} +{duration(late.category_ns)}"
