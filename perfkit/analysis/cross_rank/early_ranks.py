"""Ranks that have less to do than the others, and wait for them.

Where more than half of the ranks take equally long, none of these is late: the median of the others is the measure.
Most waiting then has its reason in the few that need less time.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from perfkit.analysis.cross_rank.lateness import (
    COLUMN,
    OWN,
    Floats,
    OwnTimes,
    excess,
    rounds_of,
    surely_late,
)
from perfkit.schema.cross_rank import FEWEST_COMPARED_STEPS, EarlyRank, Straggler
from perfkit.trace.intervals import Ints

_FEWEST_RANKS: Final = 3
_FALSE_ALARMS: Final = 0.01
"""Nominal probability that chance makes any rank of a run early."""
_MIN_LEAD_SHARE: Final = 0.05
"""Smallest lead, as a share of the step."""
_MIN_WAITED_SHARE: Final = 0.5
"""Smallest share of the lead that a rank must wait longer than the others."""


def find_early_ranks(all_times: OwnTimes, late: Sequence[Straggler] = ()) -> list[EarlyRank]:
    """Return the ranks that take less time than the others in every step, beyond chance (metrics.md section 5).

    Args:
        all_times: own times of all ranks of a run, in which each can wait for every other.
        late: the stragglers, which are left out: what they take longer is not what others take less.

    Returns:
        Largest lead first.
    """
    late_ranks = {row.rank for row in late}
    times = all_times.among([rank for rank in all_times.ranks if rank not in late_ranks])
    # Of two ranks one is late, or none.
    if times.waits_ns is None or len(times.steps) < FEWEST_COMPARED_STEPS or len(times.ranks) < _FEWEST_RANKS:
        return []
    lead_ns = -np.median(excess(times.own_ns), axis=1)
    early = surely_late(-times.own_ns, _FALSE_ALARMS / times.compared) & (lead_ns >= _MIN_LEAD_SHARE * times.wall_ns)
    early &= _waits_ns(times, times.waits_ns) >= _MIN_WAITED_SHARE * lead_ns
    lacking = -np.median(excess(times.exposed_ns), axis=1)[:, [COLUMN[category] for category in OWN]]
    found = [
        EarlyRank(rank=times.ranks[place], category=OWN[lacking[place].argmax()], lead_ns=round(lead_ns[place]))
        for place in np.flatnonzero(early).tolist()
    ]
    return sorted(found, key=lambda row: (-row.lead_ns, row.rank))


def _waits_ns(times: OwnTimes, waits_ns: Ints) -> Floats:
    """Return how much longer each rank waits than the others in matched collectives, per step; shape (ranks,)."""
    rounds = rounds_of(times)
    return np.asarray(np.median(excess(rounds.sums(waits_ns)) / rounds.sizes, axis=1))
