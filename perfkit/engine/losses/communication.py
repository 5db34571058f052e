"""Exposed communication of a run: how much of it is waiting for other ranks."""

from perfkit.engine.losses.context import MIN_SHARE, DimensionTime, LossContext
from perfkit.records.aggregate import MAJORITY
from perfkit.records.facts import Fact, fact


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


def communication_cost(context: LossContext, exposed_ns: float) -> tuple[Fact]:
    """Return what exposed communication takes of the step, and at how many ranks."""
    at = () if context.has("world_size_unknown") else (fact("at_ranks", ranks=context.run.world_size),)
    return (fact("exposed_communication", share=context.share(exposed_ns), at=at),)


def longest_dimension(context: LossContext, field: str, but: str = "") -> DimensionTime | None:
    """Return the dimension with the most exposed time of a kind; None without any."""
    found = [one for one in context.dimensions() if but not in one.parts]
    return max(found, key=lambda one: float(getattr(one, field)), default=None)
