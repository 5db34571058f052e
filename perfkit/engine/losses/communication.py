"""Exposed communication of a run: how much of it is waiting for other ranks."""

from collections import defaultdict
from collections.abc import Sequence

from perfkit.engine.losses.context import MIN_SHARE, DimensionTime, LossContext
from perfkit.records.aggregate import MAJORITY
from perfkit.records.cross_rank import Straggler


def split_communication(context: LossContext, least: float = MIN_SHARE) -> tuple[float, float] | None:
    """Return waiting and total exposed communication per step; None if less than a share, or mostly unmatched."""
    efficiency = context.run.efficiency
    exposed_ns = context.exposed_ns["communication"]
    if efficiency is None or context.share(exposed_ns) < least:
        return None
    whole = efficiency.wait_ns + efficiency.transfer_ns
    if not whole or efficiency.unmatched_ns > MAJORITY * whole:
        return None
    return exposed_ns * efficiency.wait_ns / whole, exposed_ns


def waited_for_late_ns(context: LossContext, late: Sequence[Straggler]) -> float:
    """Return how long ranks wait for late ones, the mean over all ranks and steps (ns).

    Without the delays, each rank that they keep waiting does so for less by what a step gets shorter; but a late one
    only by what that is more than its own delay: it waits for other late ranks, not for itself.
    """
    across = context.run.cross_rank
    groups: dict[frozenset[int], list[Straggler]] = defaultdict(list)
    for row in late:
        groups[frozenset((row.rank, *row.delays)) if row.delays else frozenset()].append(row)
    total_ns = 0.0
    for group, rows in groups.items():
        alone_ns = max(row.gain_ns or 0 for row in rows)
        shorter_ns = across.stragglers_gain_ns or 0 if across and len(groups) == 1 else alone_ns
        own_ns = sum(max(row.lag_ns * row.steps_late / row.steps, row.gain_ns or 0) for row in rows)
        total_ns += max(0.0, (len(group) or len(context.run.ranks)) * shorter_ns - own_ns)
    return total_ns / len(context.run.ranks)


def longest_dimension(context: LossContext, field: str, but: str = "") -> DimensionTime | None:
    """Return the dimension with the most exposed time of a kind; None without any."""
    found = [one for one in context.dimensions() if but not in one.parts]
    return max(found, key=lambda one: float(getattr(one, field)), default=None)
