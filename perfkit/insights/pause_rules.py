"""An insight rule on checkpoints, evaluations and logging between steps."""

from typing import Final, NamedTuple

from perfkit.insights.rule import InsightDraft
from perfkit.insights.run_context import RunContext
from perfkit.schema.per_run.pauses import PausePhase, RankPauses
from perfkit.util.formatting import duration, escape_unprintable, rank_list

_MIN_SHARE: Final = 0.05
"""Smallest share of the recorded time that is reported."""
_SEVERAL: Final = 2
"""Pauses from which they tell how often there is one."""

_NOUNS: Final[dict[PausePhase, str]] = {
    "checkpoint": "checkpoints",
    "evaluation": "evaluations",
    "logging": "pauses for logging",
}
_REMEDIES: Final[dict[PausePhase, str]] = {
    "checkpoint": "save less often, or while training goes on (torch.distributed.checkpoint.async_save)",
    "evaluation": "evaluate less often, or on fewer samples",
    "logging": "log less often, or in another thread",
}


class _Cost(NamedTuple):
    """What the pauses of one phase on one rank take."""

    row: RankPauses
    pauses: int
    steps: int
    """Steps among which they are."""
    total_ns: int
    share: float
    """Share of the time of these steps and of the pauses."""


def pauses_beside(context: RunContext, told: PausePhase | None) -> InsightDraft | None:
    """Return the draft for the phase that takes most beside the steps, of the rank on which it takes longest.

    Args:
        context: the run.
        told: a phase that another advice is about: most of its time is what other ranks wait for.
    """
    costs = [cost for row in context.run.pauses if row.phase != told and (cost := _cost(context, row)) is not None]
    most = max(costs, key=lambda cost: cost.share, default=None)
    if most is None or most.share < _MIN_SHARE:
        return None
    row = most.row
    where = f" on rank {row.rank}" if len(context.run.ranks) > 1 else ""
    called = f" ({escape_unprintable(row.caller)})" if row.caller else ""
    return InsightDraft(
        f"{most.pauses} {_NOUNS[row.phase]}{called} in {most.steps} steps{where} take "
        f"{duration(most.total_ns / most.pauses)} each, besides the steps{_also(context, row)}",
        {"pauses": float(most.pauses), "paused_ns": float(most.total_ns)},
        _remedy(row),
        most.total_ns / most.steps,
    )


def _also(context: RunContext, row: RankPauses) -> str:
    """Return which other ranks have pauses of this phase."""
    others = [one.rank for one in context.run.pauses if one.phase == row.phase and one.rank not in (row.rank, None)]
    if not others:
        return ""
    return f" ({rank_list(others)} {'has' if len(others) == 1 else 'have'} {_NOUNS[row.phase]}, too)"


def _cost(context: RunContext, row: RankPauses) -> _Cost | None:
    """Return what the pauses take: in the whole run, if it listed them, else in the recorded steps.

    None if there are too few to tell how often there is one.
    """
    steps = [step for rank in context.run.ranks if rank.rank == row.rank for step in rank.steps]
    if not steps:
        return None
    wall_ns = sum(step.wall_ns for step in steps)
    if row.steps and row.count >= _SEVERAL:
        whole_ns = row.total_ns + wall_ns * row.steps / len(steps)
        return _Cost(row, row.count, row.steps, row.total_ns, row.total_ns / whole_ns)
    if row.recorded < _SEVERAL:
        return None
    whole_ns = wall_ns + sum(step.paused_ns for step in steps)
    return _Cost(row, row.recorded, len(steps), row.recorded_ns, row.recorded_ns / whole_ns if whole_ns else 0.0)


def _remedy(row: RankPauses) -> str:
    if row.phase == "checkpoint" and row.asynchronous == row.count:
        return "save less often, or less at a time: every checkpoint is asynchronous already"
    return _REMEDIES[row.phase]
