"""A delay of a rank, and what it has to be to count as one (metrics.md section 5)."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from perfkit.engine.ranks.lateness import Bools
from perfkit.records.common import Category

LEAST_LAG: Final = 0.03
PARTLY: Final = 0.1
"""Smallest lag, as a share of the step: in every step, and in some steps; in a single one: a quarter."""
HALF: Final = 0.5
"""Share of the lag from which a rank is late in a step."""
QUARTER: Final = 0.25
"""Share of the lag up to which it is not, and that the others must be seen to wait; share of the steps in which ranks
meet that are linked, and of the step that a single delay takes at least."""
MOST_OF_LAG: Final = 1.5
"""Mean excess over the lag, a median, beyond which single steps take most of it: they are not why a rank is late."""
FAR_LAGS: Final = 5.0
"""Single delays are so many times the usual lag."""
LONGEST: Final = 16
"""Longest period, and longest distance of steps at which the same ranks may be late again."""
MOSTLY: Final = 0.75
NEARLY_ALL: Final = 0.9
"""Shares of steps: most of a delay's are long, and nearly all others are not."""
RARE: Final = 0.01
"""Accepted probability that chance chooses the same rank so often, or in such an order."""
MANY: Final = 10
"""Number of single delays that are many however long the run."""


class Delay(NamedTuple):
    """A rank that is late in some steps, in one category."""

    row: int
    """Index of the rank."""
    category: Category | None
    """None where only the whole own time tells."""
    every: int
    late: Bools
    """Whether each step is one of the delay's, shape (steps,)."""
    in_turns: bool = False
    is_stretch: bool = False
    """Whether its steps are some in succession."""
    also: tuple[Category | None, ...] = ()
    """What else the rank is late in."""


class RankDelay(NamedTuple):
    """A delay as a replay takes it away."""

    rank: int
    share: Mapping[int | None, float]
    """Which share of what the rank takes longer is of this delay, by number of the step; nothing of other steps."""
