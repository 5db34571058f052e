"""Ranks that compute for less time than the others, and wait for them.

Where more than half of the ranks take equally long, none of these is late: the median of the others is the measure.
Most waiting then has its reason in the few that need less time.
"""

from collections.abc import Sequence

import numpy as np

from perfkit.engine.ranks.delay import HALF, LEAST_LAG, MOSTLY
from perfkit.engine.ranks.lateness import FALSE_ALARMS, OWN, Floats, OwnTimes, excess, rounds_of, surely_late
from perfkit.records.aggregate import MAJORITY
from perfkit.records.cross_rank import FEWEST_COMPARED_STEPS, EarlyRank, Straggler
from perfkit.trace.intervals import Ints


def find_early_ranks(all_times: OwnTimes, late: Sequence[Straggler]) -> list[EarlyRank]:
    """Return the ranks that compute for less time than the others, beyond chance (metrics.md section 5).

    They are found as ranks that are late in every step are, with the sign turned. Idle time is no measure: a rank whose
    collective is in flight does the same work as the others, and counts as communicating.

    Args:
        all_times: own times of all ranks of a run, in which each can wait for every other.
        late: the stragglers, which are left out: what they take longer is not what others take less.

    Returns:
        Largest lead first.
    """
    late_ranks = {row.rank for row in late}
    times = all_times.among([rank for rank in all_times.ranks if rank not in late_ranks])
    # Of two ranks one is late, or none.
    if times.waits_ns is None or len(times.steps) < FEWEST_COMPARED_STEPS or len(times.ranks) < 3:
        return []
    compute = times.of("compute")
    leads = -excess(compute)
    lead_ns = np.minimum(np.median(leads, axis=1), leads.mean(axis=1))
    early = lead_ns >= LEAST_LAG * times.wall_ns
    early[early] = surely_late(-compute, FALSE_ALARMS / len(OWN) / times.compared, np.flatnonzero(early))
    early &= (leads >= HALF * lead_ns[:, np.newaxis]).mean(axis=1) >= MOSTLY
    # It waits for the others, not for a few of them, and its waiting is what most waiting is about.
    early &= _longer_waits_ns(times, times.waits_ns) >= MOSTLY * lead_ns
    if times.waits_ns[early].sum() < MAJORITY * (all_times.waits_ns.sum() if all_times.waits_ns is not None else 0):
        return []
    found = [EarlyRank(rank=times.ranks[place], lead_ns=round(lead_ns[place])) for place in np.flatnonzero(early)]
    return sorted(found, key=lambda row: (-row.lead_ns, row.rank))


def _longer_waits_ns(times: OwnTimes, waits_ns: Ints) -> Floats:
    """Return how much longer each rank waits than the others in matched collectives, per step; shape (ranks,)."""
    rounds = rounds_of(times)
    longer = excess(rounds.sums(waits_ns)) / rounds.sizes
    return np.asarray(np.median(longer[:, rounds.counted], axis=1))
