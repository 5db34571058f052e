"""What ranks wait for: late ranks, a single delay, or nothing that stands out; and what to do about it."""

from collections.abc import Iterator, Sequence
from typing import Final

from perfkit.engine.losses.context import MIN_SHARE, LossContext
from perfkit.engine.losses.dimensions import synchronise_less, wait_less
from perfkit.engine.losses.loading import load_faster
from perfkit.engine.losses.loss import Loss
from perfkit.engine.runs.pauses import called_by
from perfkit.engine.whatif.changes import healthy_ranks
from perfkit.records.aggregate import MAJORITY
from perfkit.records.common import Category
from perfkit.records.cross_rank import (
    FEWEST_COMPARED_STEPS,
    CrossRankSummary,
    EarlyRank,
    LastArrivals,
    LateLoading,
    OneOffStraggler,
    Straggler,
    all_ranks,
    steps_of,
    take_turns,
)
from perfkit.records.facts import Fact, Facts, fact
from perfkit.records.per_run.pauses import RankPauses
from perfkit.subjects.ranks.reasons import Reason, find_compiled, find_reasons

_MOST_REASONS: Final = 3
"""More cannot be read in one line."""


def cause_of_waiting(context: LossContext, late: list[Straggler], wait_ns: float) -> Loss | None:
    """Return the loss for waiting: what for, what to do, and what that could save; None if it is for single delays.

    Args:
        context: the run.
        late: the ranks that are late in more than one step, if fixing them could save time.
        wait_ns: waiting per step, the mean over ranks.
    """
    across, efficiency = context.run.cross_rank, context.run.efficiency
    longest_ns = context.longest_wait_ns(wait_ns)
    early = across.early_ranks if across else []
    if across and early and _evenly_divided_ns(context, early) > (across.stragglers_gain_ns or 0):
        return _for_early_ranks(context, early, longest_ns)
    if late:
        return _for_stragglers(context, late)
    if (paused := _waited_for(context)) is not None:
        return _for_pause(context, paused, longest_ns)
    if across and efficiency and _is_for_single_delays(across, efficiency.wait_ns):
        return None
    if (last := last_arrivals_of(context)) is not None:
        return _for_last_arrivals(context, last, longest_ns)
    most = max(context.dimensions(), key=lambda one: one.wait_ns, default=None)
    facts = (fact("other_ranks"), fact(_why_none_is_named(context)))
    common_ns, less_often = _common_wait_ns(context), synchronise_less(context, most)
    if less_often and context.share(common_ns) >= MIN_SHARE:
        return Loss(cause="waiting", facts=facts, remedy=less_often, per_step_ns=min(common_ns, longest_ns))
    return Loss(cause="waiting", facts=facts, remedy=wait_less(context, most), per_step_ns=longest_ns)


def _is_for_single_delays(compared: CrossRankSummary, waited_ns: float) -> bool:
    """Return whether delays of single steps explain most of the exposed waiting (ns, summed over ranks)."""
    others = len(compared.rank_waits) - 1
    explained_ns = sum(
        (len(one.delays) or others - len(one.with_ranks)) * one.lag_ns for one in compared.one_off_stragglers
    )
    return explained_ns > MAJORITY * waited_ns


def single_delays(context: LossContext) -> Loss | None:
    """Return the loss for ranks that are late in single steps."""
    across, row = context.run.cross_rank, next((row for row in context.ledger.rows if row.late == "once"), None)
    if across is None or not across.one_off_gain_ns or row is None:
        return None
    once, ranks = across.one_off_stragglers, all_ranks(across.one_off_stragglers)
    compiles = all(_mostly_compiles(context, rank, [one.step]) for one in once for rank in (one.rank, *one.with_ranks))
    where = [fact("step_on", step=one.step, ranks=[one.rank, *one.with_ranks]) for one in once]
    steps = (where[0], *(part for one in where[1:] for part in (fact("and"), one)))
    return Loss(
        cause="one_off_straggler",
        row=row,
        ranks=tuple(ranks),
        steps=tuple(steps_of(once)),
        facts=(),
        remedy=(fact("find_compiled", where=steps),) if compiles else _find_single(once, steps),
        per_step_ns=float(across.one_off_gain_ns),
        # The replay of a rank without any delay is that of all.
        change=None if context.run.is_partial or across.stragglers_gain_ns else healthy_ranks(ranks),
        blames="rank",
    )


def _why_none_is_named(context: LossContext) -> str:
    """Return the fact on late ranks for a run in which none was found."""
    across = context.run.cross_rank
    if across is None or not across.lateness_known:
        return "too_few_steps"
    return "damaged_traces" if context.run.lacks_events else "none_is_late"


def _for_early_ranks(context: LossContext, early: list[EarlyRank], longest_ns: float) -> Loss:
    """Return the loss for ranks that have less to do than most: the more they do, the less is left for the others."""
    ranks = tuple(row.rank for row in early)
    besides_late = bool(context.run.cross_rank and context.run.cross_rank.stragglers)
    return Loss(
        cause="early_ranks",
        ranks=ranks,
        facts=(fact("few_to_do", early=early, besides_late=besides_late),),
        evidence={"lead_ns": float(early[0].lead_ns)},
        remedy=(fact("more_work", ranks=ranks),),
        blames="rank",
        per_step_ns=min(_evenly_divided_ns(context, early), longest_ns),
    )


def _evenly_divided_ns(context: LossContext, early: Sequence[EarlyRank]) -> float:
    """Return by how much a step of equally fast ranks is shorter if all of them do as much (ns)."""
    return sum(row.lead_ns for row in early) / len(context.run.ranks)


def _common_wait_ns(context: LossContext) -> float:
    """Return the waiting per step that all ranks have (ns), the most that synchronising less often can save.

    However seldom ranks meet, a step takes as long as the rank that waits least needs for its own work.
    """
    across, steps = context.run.cross_rank, context.recorded_steps
    waits: dict[int | None, int] = {row.rank: row.exposed_wait_ns for row in across.rank_waits} if across else {}
    return min((waits.get(rank.rank, 0) for rank in context.run.ranks), default=0) / steps


def _waited_for(context: LossContext) -> RankPauses | None:
    """Return the checkpoints or evaluations of a rank that most waiting of the others is for; None without any."""
    most = max(context.run.pauses, key=lambda row: row.waited_ns or 0, default=None)
    others = len(context.run.ranks) - 1
    total_wait_ns = context.run.efficiency.wait_ns if context.run.efficiency else 0
    if most is None or not most.waited_ns or most.waited_ns * others < MAJORITY * total_wait_ns:
        return None
    return most


def _for_pause(context: LossContext, row: RankPauses, longest_ns: float) -> Loss:
    """Return the loss for waiting for a checkpoint or an evaluation.

    Args:
        context: the run.
        row: the pauses.
        longest_ns: bound on what a step loses by waiting.
    """
    waited_ns = float(row.waited_ns or 0)
    return Loss(
        cause=row.phase,
        ranks=() if row.rank is None else (row.rank,),
        phase=row.phase,
        code=row.caller,
        facts=(fact("pause_on", phase=row.phase, caller=called_by(row), rank=row.rank),),
        evidence={"pause_wait_ns": waited_ns},
        remedy=(fact(f"{row.phase}_waited_for"),),
        per_step_ns=min(waited_ns / context.recorded_steps, longest_ns),
    )


def last_arrivals_of(context: LossContext) -> LastArrivals | None:
    """Return the ranks that join collectives last in a run of few steps; None if none do, or matches are unreliable."""
    last = context.run.cross_rank.last_arrivals if context.run.cross_rank else None
    if last is None or context.has("suspect_matches"):
        return None
    return last if context.share(last.exposed_wait_ns / context.rank_steps) >= MIN_SHARE else None


def _for_last_arrivals(context: LossContext, last: LastArrivals, longest_ns: float) -> Loss:
    """Return the loss for ranks of which the few recorded steps do not tell whether they are late beyond chance."""
    start_ns, wait_ns = last.start_wait_ns / context.rank_steps, last.exposed_wait_ns / context.rank_steps
    all_joined = last.late == last.collectives
    of = fact("of_all", count=last.late) if all_joined else fact("of_some", count=last.late, all=last.collectives)
    # The late ranks hardly wait: the mean over all ranks is less than what the others wait.
    waits_ns = wait_ns * len(context.run.ranks) / (len(context.run.ranks) - len(last.ranks))
    check = (
        fact("find_longer", ranks=last.ranks) if last.category is None else _check(context, last.category, last.ranks)
    )
    return Loss(
        cause="last_arrivals",
        ranks=tuple(last.ranks),
        facts=(fact("last_arrivals", ranks=last.ranks, of=of),),
        evidence={"start_wait_ns": start_ns, "last_wait_ns": wait_ns, "lag_ns": float(last.lag_ns)},
        remedy=(check, fact("more_steps", least=FEWEST_COMPARED_STEPS, steps=context.recorded_steps, ranks=last.ranks)),
        per_step_ns=min(waits_ns, longest_ns),
    )


def _for_stragglers(context: LossContext, late: list[Straggler]) -> Loss:
    """Return the loss of waiting for known ranks; its saving is what the mean step loses to them."""
    across = context.run.cross_rank
    gain_ns = float(across.stragglers_gain_ns or 0) if across else 0.0
    evidence, row = {"gain_ns": gain_ns}, context.ledger.of("late_ranks")
    if len(late) == 1:
        evidence |= {"rank": float(late[0].rank), "lag_ns": float(late[0].lag_ns)}
    reasons = find_reasons(context, late)
    known = [(rows, reason.facts) for rows, reason in reasons if reason is not None and reason.facts]
    return Loss(
        cause="straggler",
        ranks=tuple(row.rank for row in late),
        phase=late[0].phase if len(late) == 1 else None,
        row="late_ranks",
        blames="rank",
        code=row.code.text if row is not None and row.code else None,
        facts=_of_each(known, "reason_of", alone=len(reasons) == 1),
        evidence=evidence,
        remedy=tuple(_remedy(context, late, reasons)),
        per_step_ns=min(gain_ns, context.longest_step_ns),
        # Another rank may be as late where some have no trace: a replay does not know of it.
        change=None
        if context.run.is_partial or (across and across.one_off_gain_ns)
        else healthy_ranks(row.rank for row in late),
    )


def _of_each(parts: Sequence[tuple[Sequence[Straggler], Facts]], code: str, *, alone: bool) -> Facts:
    """Return facts about some late ranks, each with these ranks, unless they are about all."""
    if alone:
        return tuple(one for _, facts in parts for one in facts)
    return tuple(
        fact(code, ranks=[row.rank for row in rows], what=facts, is_first=not number)
        for number, (rows, facts) in enumerate(parts)
    )


def _remedy(
    context: LossContext, late: list[Straggler], reasons: Sequence[tuple[list[Straggler], Reason | None]]
) -> Iterator[Fact]:
    first, ranks = late[0], [row.rank for row in late]
    causes = {row.loading and row.loading.cause for row in late}
    if take_turns(late):
        same = first.loading and len(causes) == 1
        yield (
            load_faster(context, first.loading.cause)
            if first.loading and same
            else fact("find_turns", every=first.every)
        )
        return
    all_late = len(late) == len(context.run.ranks)
    if len(late) > 1 and not all_late:
        yield fact("fix_all", count=len(late), alone=all(row.gain_ns == 0 for row in late))
    if len(reasons) == 1 or (len(reasons) <= _MOST_REASONS and not all_late):
        each = [(rows, _speed_up(context, rows[0], [row.rank for row in rows], why)) for rows, why in reasons]
        yield from _of_each(each, "remedy_of", alone=len(reasons) == 1)
    else:
        yield fact("find_in_late_steps") if all_late else fact("find_only_there", ranks=ranks)


def _mostly_compiles(context: LossContext, number: int, steps: Sequence[int] | None = None) -> bool:
    """Return whether most idle time of a rank, in all steps or in some, is code being compiled or loaded."""
    own = [
        step
        for rank in context.run.ranks
        for step in rank.steps
        if rank.rank == number and (steps is None or step.step in steps)
    ]
    idle_ns = sum(step.exposed_ns.overhead for step in own)
    return sum(step.idle_ns.compilation for step in own) > MAJORITY * idle_ns


def _speed_up(context: LossContext, row: Straggler, ranks: list[int], reason: Reason | None) -> Facts:
    if reason is not None:
        return reason.remedy
    if row.category == "overhead" and _mostly_compiles(context, row.rank):
        return (find_compiled(ranks),)
    if (row.every > 1 or row.steps_late < row.steps) and row.category != "data_loading":
        return (_find_partly(row.category, (fact("on_some_steps", ranks=ranks, row=row),)),)
    return (_check(context, row.category, ranks, row.loading),)


def _find_single(once: Sequence[OneOffStraggler], steps: Facts) -> Facts:
    """Return what to do about delays in single steps."""
    categories = {one.category for one in once}
    first = (fact("may_be_start"),) if any(one.is_first for one in once) else ()
    return (_find_partly(categories.pop() if len(categories) == 1 else None, (fact("in_steps", steps=steps),)), *first)


def _find_partly(category: Category | None, where: Facts) -> Fact:
    """Return what to look for where a rank takes longer in some steps only: what can take time of that category."""
    return fact(f"partly_{category or 'unknown'}", where=where)


def _check(context: LossContext, category: Category, ranks: Sequence[int], loading: LateLoading | None = None) -> Fact:
    if category == "data_loading":
        return load_faster(context, loading.cause if loading else None)
    return fact(f"check_{category}", ranks=ranks)
