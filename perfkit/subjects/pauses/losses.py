"""What checkpoints, evaluations and logging cost."""

from typing import Final, NamedTuple

from perfkit.engine.losses.context import MIN_SHARE, LossContext
from perfkit.engine.losses.loss import Loss, Rules
from perfkit.engine.runs.pauses import called_by
from perfkit.records.facts import fact
from perfkit.records.per_run.pauses import RankPauses
from perfkit.records.report import BESIDES_STEPS


class _Cost(NamedTuple):
    """What the pauses of one phase on one rank take."""

    row: RankPauses
    pauses: int
    steps: int
    """Steps among which they are."""
    total_ns: int
    share: float
    """Share of the time of these steps and of the pauses."""


def pauses(context: LossContext) -> Loss | None:
    """The phase that takes most beside the steps, of the rank on which it takes longest.

    Pauses that other ranks wait for, as the comparison of ranks reports, are left out.
    """
    rows = [row for row in context.run.pauses if row.phase not in context.reported]
    most = max((cost for row in rows if (cost := _cost(context, row))), key=lambda cost: cost.share, default=None)
    if most is None or most.share < MIN_SHARE:
        return None
    row = most.row
    others = [one.rank for one in context.run.pauses if one.phase == row.phase and one.rank not in (row.rank, None)]
    noun = fact(f"{row.phase}_pauses")
    where = (fact("on_rank", rank=row.rank),) if len(context.run.ranks) > 1 else ()
    also = (fact("ranks_pause_too", ranks=others, noun=noun),) if others else ()
    costs = {"count": most.pauses, "steps": most.steps, "ns": most.total_ns / most.pauses}
    return Loss(
        cause=row.phase,
        ranks=() if row.rank is None else (row.rank,),
        phase=row.phase,
        code=row.caller,
        facts=(fact("pauses", noun=noun, caller=called_by(row), where=where, also=also, **costs),),
        evidence={"pauses": float(most.pauses), "paused_ns": float(most.total_ns)},
        remedy=(fact(_pause_remedy(row)),),
        per_step_ns=most.total_ns / most.steps,
    )


def _pause_remedy(row: RankPauses) -> str:
    is_async = row.phase == "checkpoint" and row.asynchronous == row.count
    return "checkpoint_async" if is_async else f"{row.phase}_less_often"


def _cost(context: LossContext, row: RankPauses) -> _Cost | None:
    """Return what the pauses take: in the whole run, if it listed them, else in the recorded steps.

    None if there are too few to tell how often there is one.
    """
    steps = [step for rank in context.run.ranks if rank.rank == row.rank for step in rank.steps]
    if not steps:
        return None
    wall_ns = sum(step.wall_ns for step in steps)
    if row.steps and row.count > 1:
        whole_ns = row.total_ns + wall_ns * row.steps / len(steps)
        return _Cost(row, row.count, row.steps, row.total_ns, row.total_ns / whole_ns)
    if row.recorded < 2:
        return None
    whole_ns = wall_ns + sum(step.paused_ns for step in steps)
    return _Cost(row, row.recorded, len(steps), row.recorded_ns, row.recorded_ns / whole_ns if whole_ns else 0.0)


LOSSES: Final[Rules] = {BESIDES_STEPS: pauses}
