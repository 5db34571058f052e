"""Detect persistent and one-off stragglers and the category that slows them.

The others' waiting shows up as *their* communication, so the share of communication alone blames the network for a slow
rank. Two kinds of evidence identify a straggler. In matched collectives it is the rank that waits least (metrics.md
section 5). If too few are matched, it is the rank with the longest own time, which is its step without exposed
communication and so contains no waiting for others. The category is where its own time exceeds the others' most.
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

_MIN_LAG_SHARE: Final = 0.05
"""Smallest lag of a straggler, as a share of the step: ranks always differ by a few per cent."""
_MIN_LAST_SHARE: Final = 0.75
"""Smallest share of the steps in which a straggler is last."""
_MIN_LAG_NOISE_RATIO: Final = 2.0
"""Smallest ratio of the lag to its variation from step to step (median absolute deviation)."""
_MIN_STEPS: Final = 2
"""A single step is not evidence."""
_MIN_ONE_OFF_SHARE: Final = 0.25
"""Smallest lag of a one-off straggler, as a share of the step."""
_MIN_ONE_OFF_RATIO: Final = 5.0
"""Smallest ratio of a one-off lag to the median lag, so that usual differences between ranks do not count."""
_MAX_ONE_OFF: Final = 3
_MIN_EXPLAINED_SHARE: Final = 0.25
"""Smallest share of the lag that a category must explain to be named as the cause."""
_NEARLY_ALL: Final = 0.9
_OWN: Final[tuple[Category, ...]] = ("compute", "memcpy", "data_loading", "overhead")
_COLUMN: Final = {category: place for place, category in enumerate(CATEGORIES)}


class StepDelays(NamedTuple):
    """How late each rank was in each step that all ranks recorded."""

    evidence: Evidence
    ranks: list[int]
    steps: list[int]
    late_ns: Ints
    """Shape (ranks, steps); only differences between ranks within one step are meaningful."""
    exposed_ns: Ints
    """Shape (ranks, steps, categories)."""

    @property
    def wall_ns(self) -> float:
        """Median over steps of the slowest rank's wall time."""
        return float(np.median(self.exposed_ns.sum(axis=2).max(axis=0)))


def step_delays(ranks: Sequence[RankReport], matched: MatchedCollectives) -> StepDelays | None:
    """Return how late each rank was, from matched collectives if possible; None if ranks cannot be compared."""
    table = {rank.rank: {step.step: step for step in rank.steps} for rank in ranks if rank.rank is not None}
    if len(table) < 2:
        return None
    common = {step for step in set.intersection(*(set(steps) for steps in table.values())) if step is not None}
    steps = sorted(common)
    if len(steps) < _MIN_STEPS:
        return None
    exposed = np.array(
        [[[getattr(own[s].exposed_ns, c) for c in CATEGORIES] for s in steps] for own in table.values()], np.int64
    )
    waited = _waited(list(table), steps, matched)
    if waited is not None:
        return StepDelays("waiting", list(table), steps, -waited, exposed)
    own = exposed.sum(axis=2) - exposed[:, :, _COLUMN["communication"]]
    return StepDelays("own_time", list(table), steps, own, exposed)


def _waited(ranks: list[int], steps: list[int], matched: MatchedCollectives) -> Ints | None:
    """Return how long each rank waited in each step, shape (ranks, steps); None if any has no matched collective."""
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


def find_straggler(delays: StepDelays) -> Straggler | None:
    """Return the rank that the others wait for, or None if no rank stands out.

    It must be last in three of four steps, its lag must be a noticeable share of the step, and the lag must be
    more than twice its variation from step to step (median absolute deviation).
    """
    last = delays.late_ns.argmax(axis=0)
    place = int(np.bincount(last, minlength=len(delays.ranks)).argmax())
    times = int((last == place).sum())
    lags = _excess_over_median(delays.late_ns, place)
    lag_ns = float(np.median(lags))
    noise_ns = float(np.median(np.abs(lags - lag_ns)))
    often = times >= _MIN_LAST_SHARE * len(delays.steps)
    if not often or lag_ns <= 0 or lag_ns < max(_MIN_LAG_SHARE * delays.wall_ns, _MIN_LAG_NOISE_RATIO * noise_ns):
        return None
    more = np.median(_excess_over_median(delays.exposed_ns, place), axis=0)
    category, category_ns = _slow_category(more, lag_ns)
    return Straggler(
        rank=delays.ranks[place],
        evidence=delays.evidence,
        lag_ns=round(lag_ns),
        noise_ns=round(noise_ns),
        share=lag_ns / delays.wall_ns,
        category=category,
        category_ns=category_ns,
        wait_ns=-round(float(more[_COLUMN["communication"]])),
        steps_last=times,
        steps=len(delays.steps),
    )


def find_one_off_stragglers(delays: StepDelays, straggler: Straggler | None) -> list[OneOffStraggler]:
    """Return the steps in which one rank was late although it usually is not, largest lag first.

    A step without a recorded predecessor is skipped: it includes the skew with which the ranks started recording.
    """
    return sorted(_late_steps(delays, straggler), key=lambda late: -late.lag_ns)[:_MAX_ONE_OFF]


def _late_steps(delays: StepDelays, straggler: Straggler | None) -> Iterator[OneOffStraggler]:
    last = delays.late_ns.argmax(axis=0).tolist()
    lags = [float(_excess_over_median(delays.late_ns[:, [k]], place)[0]) for k, place in enumerate(last)]
    usual_ns = max(float(np.median(lags)), straggler.lag_ns if straggler else 0)
    least_ns = max(_MIN_ONE_OFF_SHARE * delays.wall_ns, _MIN_ONE_OFF_RATIO * usual_ns)
    known = set(delays.steps)
    for k, (step, place, lag_ns) in enumerate(zip(delays.steps, last, lags, strict=True)):
        if lag_ns < least_ns or step - 1 not in known:
            continue
        category, category_ns = _slow_category(_excess_over_median(delays.exposed_ns[:, k], place), lag_ns)
        yield OneOffStraggler(
            rank=delays.ranks[place], step=step, lag_ns=round(lag_ns), category=category, category_ns=category_ns
        )


def _excess_over_median(values: Ints, place: int) -> NDArray[np.float64]:
    """Return by how much one rank exceeds the median of the others; the first axis is ranks."""
    beyond: NDArray[np.float64] = values[place] - np.median(np.delete(values, place, axis=0), axis=0)
    return beyond


def _slow_category(more_ns: NDArray[np.float64], lag_ns: float) -> tuple[Category | None, int]:
    """Return the category in which a rank takes most time beyond the others', and how much."""
    category = max(_OWN, key=lambda name: more_ns[_COLUMN[name]])
    ns = float(more_ns[_COLUMN[category]])
    return (category, round(ns)) if ns >= _MIN_EXPLAINED_SHARE * lag_ns else (None, 0)


def straggler_sentence(straggler: Straggler) -> str:
    """Return a sentence: which rank is late, by how much, in which category, and how often."""
    lag = duration(straggler.lag_ns)
    if straggler.evidence == "own_time":
        waiting = (
            f"; they wait {duration(straggler.wait_ns)} for it in communication" if straggler.delays_others else ""
        )
        return (
            f"rank {straggler.rank} takes {lag} per step longer than the others, not counting communication "
            f"({slow_category(straggler)}){waiting}"
        )
    overlapped = straggler.wait_ns < _NEARLY_ALL * straggler.lag_ns
    exposed = f", {duration(max(straggler.wait_ns, 0))} of it exposed" if overlapped else ""
    return (
        f"rank {straggler.rank} delays the others by {lag} per step{exposed} ({slow_category(straggler)}); "
        f"it is last in {straggler.steps_last} of {straggler.steps} steps"
    )


def slow_category(late: Straggler | OneOffStraggler) -> str:
    """Return the category in which a late rank takes longer than the others, and by how much."""
    if late.category is None:
        return "cause not identified"
    return f"{late.category.replace('_', ' ')} +{duration(late.category_ns)}"
