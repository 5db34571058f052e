"""Why ranks are late in every step, in words, and what to do about it on these ranks."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from perfkit.analysis.cross_rank.straggler_sentences import name_ranks
from perfkit.insights.idle import IdlePart, describe, remedy
from perfkit.insights.late_ranks.extra_idle import extra_cause
from perfkit.insights.late_ranks.extra_work import extra_work
from perfkit.insights.late_ranks.sides import compare
from perfkit.insights.run_context import RunContext
from perfkit.phases import PHASE_WORDS, annotation
from perfkit.schema.cross_rank import Straggler

_MAJORITY: Final = 0.5


class Reason(NamedTuple):
    """Why ranks are late."""

    clause: str
    """The end of a sentence that says by how much they are late."""
    advice: str
    what: object
    """Equal where ranks are late for the same reason."""


def find_reason(context: RunContext, late: Sequence[Straggler]) -> Reason | None:
    """Return why ranks are late in every step: what they have more of; None where that is not known.

    Of several ranks it must be the reason of each: a mean of all would tell of one what only another has.

    Args:
        context: the run.
        late: the late ranks, largest lag first.
    """
    category = late[0].category
    if category not in ("overhead", "compute"):
        return None
    if any(row.category != category or row.every > 1 or row.steps_late < row.steps for row in late):
        return None
    found = _reason_of(context, late, late)
    each = [_reason_of(context, [row], late) for row in late] if len(late) > 1 else []
    return found if all(one is not None and found is not None and one.what == found.what for one in each) else None


def _reason_of(context: RunContext, rows: Sequence[Straggler], late: Sequence[Straggler]) -> Reason | None:
    sides = compare(context, rows, late)
    if sides is None:
        return None
    who, phase = name_ranks(late), late[0].phase if len(late) == 1 else None
    if rows[0].category == "compute":
        work = extra_work(sides, who)
        return Reason(f" ({work.clause})", work.advice, work.advice) if work is not None else None
    part = extra_cause(sides)
    if part is None or (phase is not None and _is_elsewhere(part, phase)):
        return None
    what = part.cause, part.largest.detail if part.is_named() else None
    return Reason(f": {describe(part, sides.lag_ns, 'most of it', phase)}", _mend(part, context, who), what)


def _is_elsewhere(part: IdlePart, phase: str) -> bool:
    """Return whether most of a cause is in other phases than the one in which a rank is said to be late."""
    others = {annotation(other) for other in PHASE_WORDS if other != phase}
    elsewhere_ns = sum(row.total_ns for row in part.rows if {row.detail, row.context} & others)
    return elsewhere_ns > _MAJORITY * part.total_ns


def _mend(part: IdlePart, context: RunContext, who: str) -> str:
    """Return what to do about a cause that only late ranks have more of: nothing that all would have to change."""
    if part.cause == "compilation":
        return find_compiled(f"steps of {who}")
    if part.cause == "launch_bound":
        return f"check for more launches, a slower core or a shared one on {who}"
    text = remedy(part, context).text
    return text if part.cause in ("profiler", "unknown") else f"on {who}: {text}"


def find_compiled(where: str) -> str:
    """Return the advice to find out what is compiled or loaded, and why for longer than elsewhere."""
    return (
        f"find what is compiled or loaded in {where}, and why for longer than on other ranks (what torch compiles "
        "again: TORCH_LOGS=recompiles)"
    )
