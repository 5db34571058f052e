"""Ranks that compute for less time than the others, and wait for them.

Where more than half of the ranks take equally long, none of these is late: the median of the others is the measure.
Most waiting then has its reason in the few that need less time.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from perfkit.engine.ranks.lateness import Floats, OwnTimes, excess, rounds_of, surely_late
from perfkit.records.cross_rank import FEWEST_COMPARED_STEPS, EarlyRank, Straggler
from perfkit.trace.intervals import Ints

_FEWEST_RANKS: Final = 3
_FALSE_ALARMS: Final = 0.01
"""Nominal probability that chance makes any rank of a run early."""
_MIN_LEAD_SHARE: Final = 0.05
"""Smallest lead, as a share of the step."""
_EARLY_STEPS: Final = 0.8
"""Smallest share of the steps in which a rank has at least half of its lead: others may wait for it in the rest."""
_MIN_WAITED_SHARE: Final = 0.75
"""Smallest share of the lead that a rank waits longer than the others: so it waits for them, not for a few of them."""
_MAJORITY: Final = 0.5
"""Smallest share of all waiting that is that of early ranks: else they are not what it is about."""


def find_early_ranks(all_times: OwnTimes, late: Sequence[Straggler]) -> list[EarlyRank]:
    """Return the ranks that compute for less time than the others, beyond chance (metrics.md section 5).

    Idle time is no measure: a rank whose collective is in flight does the same work as the others, and counts as
    communicating.

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
    compute = times.of("compute")
    leads = -excess(compute)
    lead_ns = np.minimum(np.median(leads, axis=1), leads.mean(axis=1))
    early = surely_late(-compute, _FALSE_ALARMS / times.compared) & (lead_ns >= _MIN_LEAD_SHARE * times.wall_ns)
    early &= (leads >= lead_ns[:, np.newaxis] / 2).mean(axis=1) >= _EARLY_STEPS
    early &= _longer_waits_ns(times, times.waits_ns) >= _MIN_WAITED_SHARE * lead_ns
    if times.waits_ns[early].sum() < _MAJORITY * (all_times.waits_ns.sum() if all_times.waits_ns is not None else 0):
        return []
    found = [EarlyRank(rank=times.ranks[place], lead_ns=round(lead_ns[place])) for place in np.flatnonzero(early)]
    return sorted(found, key=lambda row: (-row.lead_ns, row.rank))


def _longer_waits_ns(times: OwnTimes, waits_ns: Ints) -> Floats:
    """Return how much longer each rank waits than the others in matched collectives, per step; shape (ranks,)."""
    rounds = rounds_of(times)
    longer = excess(rounds.sums(waits_ns)) / rounds.sizes
    return np.asarray(np.median(longer[:, rounds.counted], axis=1))
