"""Why late ranks are late in every step: what they do more of than the others that collectives link with them."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import NamedTuple

from msgspec.structs import replace

from perfkit.engine.idle.remedies import IdlePart, remedy
from perfkit.engine.losses.context import LossContext
from perfkit.engine.ranks.delay import MOST_OF_LAG
from perfkit.engine.ranks.late_causes import on_time
from perfkit.phases import PHASE_WORDS, annotation
from perfkit.records.aggregate import MAJORITY, merge_idle
from perfkit.records.cross_rank import LateWork, Straggler, same_work
from perfkit.records.facts import Fact, Facts, fact
from perfkit.records.per_rank.idle import CAUSES, Cause
from perfkit.records.rank import RankReport


class Reason(NamedTuple):
    """Why ranks are late."""

    facts: Facts
    remedy: Facts
    what: object
    """Equal where ranks are late for the same reason."""


class _Sides(NamedTuple):
    """Ranks that are compared, each with steps."""

    own: list[RankReport]
    others: list[RankReport]
    lag_ns: float
    """What the former need longer per step, on average."""
    whom: Fact
    """The latter."""


def find_reasons(context: LossContext, late: Sequence[Straggler]) -> list[tuple[list[Straggler], Reason | None]]:
    """Return why ranks are late, and which of them for the same reason; None where that is not known.

    Args:
        context: the run.
        late: the late ranks, largest lag first.
    """
    alike = defaultdict[object, list[Straggler]](list)
    for row in late:
        cause = row.loading and row.loading.cause
        alike[row.category, row.every, row.every == 1 and row.steps_late, cause].append(row)
    found: list[tuple[list[Straggler], Reason | None]] = []
    for rows in alike.values():
        each = [_find_reason(context, [row], late) for row in rows]
        together = _find_reason(context, rows, late)
        # A mean of several would tell of one what only another has.
        if all(one == together or (one and together and one.what == together.what) for one in each):
            found.append((rows, together))
        else:
            found += [([row], one) for row, one in zip(rows, each, strict=True)]
    return found


def _find_reason(context: LossContext, rows: Sequence[Straggler], late: Sequence[Straggler]) -> Reason | None:
    """Return what ranks that are late in every step have more of; None where that is not known."""
    first = rows[0]
    if first.category not in ("overhead", "compute") or first.every > 1 or first.steps_late < first.steps:
        return None
    return _reason_of(context, rows, late)


def _reason_of(context: LossContext, rows: Sequence[Straggler], late: Sequence[Straggler]) -> Reason | None:
    sides = _compare(context, rows, late)
    if sides is None:
        return None
    who, phase = [row.rank for row in rows], rows[0].phase if len(rows) == 1 else None
    work = same_work(rows)
    if rows[0].category == "compute":
        return _of_work(work, sides, who)
    part = _extra_cause(sides)
    if part is None or (phase is not None and _is_elsewhere(part, phase)):
        return None
    if part.cause == "launch_bound" and (launched := _of_work(work, sides, who)):
        return launched
    what = part.cause, part.largest.detail if part.is_named() else None
    return Reason((), _mend(part, context, who), what)


def _is_elsewhere(part: IdlePart, phase: str) -> bool:
    """Return whether most of a cause is in other phases than the one in which a rank is said to be late."""
    others = {annotation(other) for other in PHASE_WORDS if other != phase}
    elsewhere_ns = sum(row.total_ns for row in part.rows if {row.detail, row.context} & others)
    return elsewhere_ns > MAJORITY * part.total_ns


def _mend(part: IdlePart, context: LossContext, who: Sequence[int]) -> Facts:
    """Return what to do about a cause that only late ranks have more of: nothing that all would have to change."""
    if part.cause == "compilation":
        return (find_compiled(who),)
    if part.cause == "launch_bound":
        return (fact("check_launches", ranks=who),)
    return remedy(part, context).facts


def find_compiled(ranks: Sequence[int]) -> Fact:
    """Return the remedy to find out what is compiled or loaded on ranks, and why for longer than on the others."""
    return fact("find_compiled", where=(fact("steps_of", ranks=ranks),))


def _compare(context: LossContext, rows: Sequence[Straggler], late: Sequence[Straggler]) -> _Sides | None:
    """Return some late ranks and those that are not late; None where their means do not show why they are.

    Args:
        context: the run.
        rows: the late ranks of one category that are compared.
        late: all late ranks.
    """
    stages = _stages(context)
    if stages is None:
        return None
    numbers = {row.rank for row in rows}
    own = [rank for rank in context.run.ranks if rank.rank in numbers and rank.steps]
    others = [one for one in on_time(rows, [row.rank for row in late], context.run.ranks, stages) if not one.light]
    if any(rank.light for rank in own):
        return None
    lag_ns, category = fmean(row.in_category_ns for row in rows), rows[0].category
    if not own or not others or _mean_ns(own, category) - _mean_ns(others, category) > MOST_OF_LAG * lag_ns:
        return None
    is_all = len(others) == len(context.run.ranks) - len(late)
    name = fact("the_others") if is_all else fact("ranks", ranks=[rank.rank for rank in others])
    return _Sides(own, others, lag_ns, name)


def _stages(context: LossContext) -> dict[int, list[int]] | None:
    """Return the stages of each rank of a pipeline, which differ by design; None if they are unknown."""
    pipelined = any("pp" in one.parts for one in context.dimensions())
    stages = {row.rank: row.stages for pipeline in context.run.pipelines for row in pipeline.ranks}
    return None if pipelined and not stages else stages


def _mean_ns(ranks: Iterable[RankReport], category: str) -> float:
    return fmean(getattr(step.exposed_ns, category) for rank in ranks for step in rank.steps)


def _count_steps(ranks: Iterable[RankReport]) -> int:
    """Return the number of their steps, summed over ranks."""
    return sum(len(rank.steps) for rank in ranks)


def _extra_cause(sides: _Sides) -> IdlePart | None:
    """Return the cause that late ranks are idle for longer than the others; None if none takes most of their lag."""
    own, others, lag_ns, _ = sides
    steps, other_steps = _count_steps(own), _count_steps(others)
    usual = {(row.cause, row.detail, row.context): row.total_ns / other_steps for row in merge_idle(others).causes}
    idle, extra_ns = merge_idle(own), defaultdict[Cause, float](float)
    rows = []
    for row in idle.causes:
        more_ns = row.total_ns - steps * usual.pop((row.cause, row.detail, row.context), 0.0)
        extra_ns[row.cause] += more_ns
        rows.append(replace(row, total_ns=round(more_ns)))
    for (cause, *_), usual_ns in usual.items():  # what only the others have
        extra_ns[cause] -= steps * usual_ns
    cause = max(CAUSES, key=lambda name: extra_ns[name])
    if extra_ns[cause] < MAJORITY * lag_ns * steps:
        return None
    # No part is longer than the whole, of which the others may have other parts; their pauses are not compared. What
    # the others have more of is no part, and neither is what is missing in most steps: the lag is one of every step.
    whole_ns = round(extra_ns[cause])
    parts = [
        replace(row, total_ns=min(row.total_ns, whole_ns), count=min(row.count, steps))
        for row in sorted(rows, key=lambda row: -row.total_ns)
        if row.cause == cause and row.total_ns > 0 and row.count >= MAJORITY * steps
    ]
    return IdlePart(cause, extra_ns[cause] / steps, parts, steps, idle) if parts else None


def _of_work(work: LateWork | None, sides: _Sides, who: Sequence[int]) -> Reason | None:
    """Return why late ranks compute or launch for longer than the others, as their headline says; None if unknown."""
    if work is None:
        return None
    kind = "kernel" if work.on_device else "operator"
    facts: Facts = ()
    if work.factor == "time":
        facts = (fact("longer_runs", kind=kind, whom=sides.whom, times=work.times),)
    elif work.factor == "runs" and work.of != "launches":
        what = (fact("named", name=work.name) if work.name else fact("plural", kind=kind),)
        facts = (fact("more_runs", what=what, whom=sides.whom, runs=work.own, usual=work.usual),)
    return Reason(facts, (_remedy_of(work, who),), (work.factor, work.of, work.name, round(work.times, 1)))


def _remedy_of(work: LateWork, who: Sequence[int]) -> Fact:
    if work.factor == "time":
        return fact("check_larger_inputs", ranks=who)
    if work.factor == "runs" and work.of == "launches":
        return fact("check_launched", ranks=who)
    if work.factor == "runs":
        return fact("find_more_runs", name=work.name, ranks=who) if work.name else fact("find_computed", ranks=who)
    if work.name:
        return fact("check_one", name=work.name, ranks=who)
    if work.factor == "size":
        return fact("check_batches", ranks=who)
    if not work.on_device:
        return fact("check_core", ranks=who)
    return fact("check_memory", ranks=who) if work.of == "memory_bound" else fact("check_clock", ranks=who)
