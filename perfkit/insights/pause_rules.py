"""An insight rule on checkpoints, evaluations and logging between steps."""

from typing import Final

from perfkit.insights.rule import InsightDraft, Rule
from perfkit.insights.run_context import RunContext
from perfkit.schema.per_run.pauses import PausePhase, RankPauses
from perfkit.schema.report import BESIDES_STEPS
from perfkit.util.formatting import duration

_MIN_SHARE: Final = 0.05
"""Smallest share of the recorded time that is reported."""
_SEVERAL: Final = 2
"""Pauses in recorded steps from which these tell how often there is one."""
_WAITED: Final = 0.5
"""Share of the pauses that others wait for, from which the waiting is what is reported."""

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


def _pauses(context: RunContext) -> InsightDraft | None:
    """Return the draft for the phase that takes most beside the steps, of the rank on which it takes longest."""
    most = max(context.run.pauses, key=lambda row: row.recorded_ns, default=None)
    if most is None or most.recorded < _SEVERAL or (most.waited_ns or 0) >= _WAITED * most.recorded_ns:
        return None
    steps, recorded_ns = _recorded(context, most)
    if not steps or most.recorded_ns < _MIN_SHARE * recorded_ns:
        return None
    where = f" on rank {most.rank}" if len(context.run.ranks) > 1 else ""
    return InsightDraft(
        f"{most.recorded} {_NOUNS[most.phase]} in {steps} steps{where} take "
        f"{duration(most.recorded_ns / most.recorded)} each, besides the steps",
        {"pauses": float(most.recorded), "paused_ns": float(most.recorded_ns)},
        _remedy(most),
        most.recorded_ns / steps,
    )


def _remedy(row: RankPauses) -> str:
    if row.phase == "checkpoint" and row.asynchronous == row.count:
        return "save less often, or less at a time: every checkpoint is asynchronous already"
    return _REMEDIES[row.phase]


def _recorded(context: RunContext, row: RankPauses) -> tuple[int, int]:
    """Return the number of recorded steps of the row's rank, and the time that they span with their pauses (ns)."""
    steps = [step for rank in context.run.ranks if rank.rank == row.rank for step in rank.steps]
    return len(steps), sum(step.wall_ns + step.paused_ns for step in steps)


PAUSES: Final = Rule(BESIDES_STEPS, _pauses)
