"""Recognise the schedule of a pipeline by the order in which its ranks compute (metrics.md section 13)."""

from collections.abc import Sequence

from perfkit.analysis.cross_rank.pipelines.replay import BACKWARD, FORWARD, Action


def recognise_schedule(orders: Sequence[Sequence[Action]]) -> str | None:
    """Return the schedule's name, as in `--pp-schedule`; None if it is another, or ranks have several stages.

    Args:
        orders: each rank's actions, in order; in the order of stages.
    """
    stages = [sorted({action.stage for action in order}) for order in orders]
    batches = len({action.micro_batch for order in orders for action in order})
    if stages != [[number] for number in range(len(orders))] or any(len(order) != 2 * batches for order in orders):
        return None
    kinds = [[action.kind for action in order] for order in orders]
    if batches == 1:
        return "none" if all(own == [FORWARD, BACKWARD] for own in kinds) else None
    if all(own == [FORWARD] * batches + [BACKWARD] * batches for own in kinds):
        return "gpipe"
    ahead = [min(batches, len(orders) - stage) for stage in range(len(orders))]
    return "1f1b" if kinds == [_alternating(own, batches) for own in ahead] else None


def _alternating(ahead: int, batches: int) -> list[int]:
    """Return forwards as many as a rank is ahead, then backward and forward in turn, then what is left."""
    return [FORWARD] * ahead + [BACKWARD, FORWARD] * (batches - ahead) + [BACKWARD] * ahead
