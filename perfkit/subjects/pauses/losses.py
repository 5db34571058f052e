"""What checkpoints, evaluations and logging cost."""

from typing import Final

from perfkit.engine.losses.context import MIN_SHARE, LossContext
from perfkit.engine.losses.loss import Loss, Rules
from perfkit.engine.runs.pauses import called_by, costliest
from perfkit.records.facts import fact
from perfkit.records.per_run.pauses import RankPauses
from perfkit.records.report import BESIDES_STEPS


def pauses(context: LossContext) -> Loss | None:
    """The phase that takes most beside the steps, of the rank on which it takes longest.

    Pauses that other ranks wait for, as the comparison of ranks reports, are left out.
    """
    rows = [row for row in context.run.pauses if row.phase not in context.reported]
    most = costliest(rows, context.run.ranks)
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


LOSSES: Final[Rules] = {BESIDES_STEPS: pauses}
