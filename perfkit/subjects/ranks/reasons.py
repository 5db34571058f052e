"""Why late ranks are late in every step: what they do more of than the others that collectives link with them."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Final, NamedTuple

from msgspec.structs import replace

from perfkit.engine.idle.remedies import IdlePart, remedy
from perfkit.engine.losses.context import LossContext
from perfkit.phases import PHASE_WORDS, annotation
from perfkit.records.aggregate import MAJORITY, merge_idle
from perfkit.records.cross_rank import Straggler
from perfkit.records.facts import Fact, Facts, fact
from perfkit.records.per_rank.idle import CAUSES, Cause
from perfkit.records.rank import OTHER_NAMES, RankReport

_MOST_OF_LAG: Final = 1.5
"""Mean excess over the lag, a median, beyond which single steps take most of it: they are not why a rank is late."""
_EXPLAINED: Final = 0.75
"""Share of the longer time from which more runs are the reason for it."""
_NEGLIGIBLE: Final = 0.1
"""Share of the lag up to which it does not count that some operators run more or less often."""


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


class _Work(NamedTuple):
    """Runs and time of one operator or kernel, per step (ns)."""

    runs: float = 0.0
    ns: float = 0.0


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
    if rows[0].category == "compute":
        return _extra_work(sides, who)
    part = _extra_cause(sides)
    if part is None or (phase is not None and _is_elsewhere(part, phase)):
        return None
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
    by_rank = {rank.rank: rank for rank in context.run.ranks if rank.steps and rank.rank is not None}
    own = [by_rank[row.rank] for row in rows if row.rank in by_rank]
    linked = {rank for row in rows for rank in row.delays} or set(by_rank)
    at = [stages.get(row.rank) for row in rows]
    on_time = set(by_rank) - {row.rank for row in late}
    compared = [number for number in on_time & linked if stages.get(number) in at]
    others = [by_rank[number] for number in compared]
    lag_ns, category = fmean(row.in_category_ns for row in rows), rows[0].category
    if not own or not others or _mean_ns(own, category) - _mean_ns(others, category) > _MOST_OF_LAG * lag_ns:
        return None
    name = fact("the_others") if on_time == set(compared) else fact("ranks", ranks=compared)
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


def _extra_work(sides: _Sides, who: Sequence[int]) -> Reason | None:
    """Return why late ranks compute for longer than the others; None where neither reason explains it.

    More runs of an operator take the mean of what a run takes on both sides, or, if only one side runs it, on that.

    Args:
        sides: the ranks.
        who: the late ones.
    """
    here, there = _work(sides.own), _work(sides.others)
    own, other = _total(here), _total(there)
    longer_ns = own.ns - other.ns
    if longer_ns < MAJORITY * sides.lag_ns:
        return None
    runs_ns = {name: _of_more_runs(here.get(name, _Work()), there.get(name, _Work())) for name in here | there}
    kind = "kernel" if sides.own[0].device == "gpu" else "operator"
    if sum(runs_ns.values()) >= _EXPLAINED * longer_ns:
        return _more_runs(here, there, runs_ns, kind, sides.whom, who)
    if sum(map(abs, runs_ns.values())) > _NEGLIGIBLE * longer_ns or not other.ns:
        return None
    if abs(own.runs - other.runs) > _NEGLIGIBLE * other.runs:  # so short that their time is alike
        return None
    times = own.ns / other.ns
    facts = (fact("longer_runs", kind=kind, whom=sides.whom, times=times),)
    return Reason(facts, (fact("check_larger_inputs", ranks=who),), ("longer runs", round(times, 1)))


def _work(ranks: Iterable[RankReport]) -> dict[str, _Work]:
    steps = _count_steps(ranks := list(ranks))
    found: defaultdict[str, _Work] = defaultdict(_Work)
    for rank in ranks:
        for row in rank.operators:
            if row.category == "compute":
                runs, ns = found[row.name]
                found[row.name] = _Work(runs + row.count / steps, ns + row.total_ns / steps)
    return dict(found)


def _of_more_runs(here: _Work, there: _Work) -> float:
    run_ns = [side.ns / side.runs for side in (here, there) if side.runs]
    return (here.runs - there.runs) * fmean(run_ns) if run_ns else 0.0


def _total(work: dict[str, _Work]) -> _Work:
    return _Work(sum(one.runs for one in work.values()), sum(one.ns for one in work.values()))


def _more_runs(
    here: dict[str, _Work],
    there: dict[str, _Work],
    runs_ns: dict[str, float],
    kind: str,
    whom: Fact,
    who: Sequence[int],
) -> Reason | None:
    """Return what runs more often; None where others run instead, as kernels for inputs of another size do."""
    more = {name: here.get(name, _Work()).runs - there.get(name, _Work()).runs for name in runs_ns}
    more_ns, fewer_ns = sum(runs_ns.values()), -sum(ns for ns in runs_ns.values() if ns < 0)
    if sum(more.values()) < MAJORITY * sum(runs for runs in more.values() if runs > 0):
        return None
    if fewer_ns > _NEGLIGIBLE * more_ns:
        return None
    most = max(runs_ns, key=lambda name: runs_ns[name])
    # Of names that are not listed, it is unknown how often each runs.
    if runs_ns[most] >= MAJORITY * more_ns and OTHER_NAMES not in runs_ns:
        runs = {"runs": here[most].runs, "usual": there.get(most, _Work()).runs}
        facts = (fact("more_runs", what=(fact("named", name=most),), whom=whom, **runs),)
        return Reason(facts, (fact("find_more_runs", name=most, ranks=who),), most)
    runs = {"runs": _total(here).runs, "usual": _total(there).runs}
    facts = (fact("more_runs", what=(fact("plural", kind=kind),), whom=whom, **runs),)
    return Reason(facts, (fact("find_computed", ranks=who),), "more runs")
