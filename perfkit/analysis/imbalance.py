"""Is one rank slower than the others by itself, so that they wait for it?

The waiting of others shows as *their* communication, so the share of communication alone blames the network for a
slow rank. A rank's own time (its step without exposed communication) does not contain waiting for others: the rank
whose own time is longest step after step is the one that is waited for.
"""

from statistics import median
from typing import NamedTuple

from perfkit.model import Category, RankReport, StepBreakdown

_NOTICEABLE = 0.05
"""Share of the step that a lag must reach to be spoken of: ranks differ by a few per cent anyway."""
_OFTEN = 0.75
"""Share of the steps in which a rank must be the slowest."""
_FEWEST_STEPS = 2
"""One step alone tells nothing about a rank."""
_OWN: tuple[Category, ...] = ("compute", "memcpy", "data_loading", "overhead")


class Lag(NamedTuple):
    """How much longer than the others a rank takes by itself, in a median step."""

    rank: int
    lag_ns: int
    share: float
    """Of the median step."""
    category: Category
    """Where the rank spends the most more than the others."""
    category_ns: int
    wait_ns: int
    """How much more exposed communication the others have than this rank: what they wait for it."""

    @property
    def awaited(self) -> bool:
        """Whether the others' communication shows that they wait for it."""
        return 2 * self.wait_ns >= self.lag_ns


def find_lag(ranks: list[RankReport]) -> Lag | None:
    """Return the rank that the others wait for, or None where none stands out.

    It must be the slowest in three of four steps that all ranks recorded, slower by a noticeable share of the step, and
    by more than twice what its lag varies from step to step (median absolute deviation).
    """
    table = {rank.rank: {step.step: step for step in rank.steps} for rank in ranks if rank.rank is not None}
    if len(table) < 2:
        return None
    common = sorted(set.intersection(*(set(steps) for steps in table.values())) - {None})  # type: ignore[type-var]
    if len(common) < _FEWEST_STEPS:
        return None
    slowest = [max(table, key=lambda rank: _own(table[rank][step])) for step in common]
    rank = max(table, key=slowest.count)
    if slowest.count(rank) < _OFTEN * len(common):
        return None
    others = [steps for other, steps in table.items() if other != rank]

    mine = table[rank]

    def excess(category: Category | None) -> list[float]:
        """Return by how much this rank exceeds the median of the others, step by step."""
        return [_of(mine[s], category) - median(_of(steps[s], category) for steps in others) for s in common]

    lag_ns = median(excess(None))
    noise_ns = median(abs(step_ns - lag_ns) for step_ns in excess(None))
    wall_ns = median(max(steps[step].wall_ns for steps in table.values()) for step in common)
    if lag_ns < max(_NOTICEABLE * wall_ns, 2 * noise_ns):
        return None
    more = {category: round(median(excess(category))) for category in (*_OWN, "communication")}
    category = max(_OWN, key=lambda name: more[name])
    return Lag(rank, round(lag_ns), lag_ns / wall_ns, category, more[category], -more["communication"])


def _own(step: StepBreakdown) -> int:
    return step.wall_ns - step.exposed_ns.communication


def _of(step: StepBreakdown, category: Category | None) -> int:
    return _own(step) if category is None else int(getattr(step.exposed_ns, category))
