"""What ranks wait for: late ranks, a single delay, or nothing that stands out; and what to do about it."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from perfkit.analysis.cross_rank.straggler_sentences import (
    early_sentence,
    how_often,
    load_clause,
    name_ranks,
    one_off_causes,
    one_off_clause,
    phase_clause,
    take_turns,
)
from perfkit.insights.dimension_advice import synchronise_less, wait_less
from perfkit.insights.late_ranks.reason import Reason, find_compiled, find_reason
from perfkit.insights.loader_advice import load_faster
from perfkit.insights.rule import InsightDraft
from perfkit.insights.run_context import RunContext
from perfkit.phases import PREFIX
from perfkit.schema.common import Category
from perfkit.schema.cross_rank import (
    FEWEST_COMPARED_STEPS,
    EarlyRank,
    LastArrivals,
    LateLoading,
    OneOffStraggler,
    Straggler,
)
from perfkit.schema.per_run.pauses import RankPauses
from perfkit.util.formatting import duration, escape_unprintable, rank_list
from perfkit.whatif.changes import healthy_ranks

MIN_SHARE: Final = 0.05
"""Smallest share of the step that is reported."""
PAUSE_WAIT: Final = "pause_wait_ns"
"""Evidence of advice about waiting for a pause."""
_MAJORITY: Final = 0.5
_NEARLY_ALL: Final = 0.9
_ACTIVITIES: Final[dict[Category, str]] = {
    "compute": "computing",
    "memcpy": "copying",
    "data_loading": "loading data",
    "overhead": "idle",
}


def cause_of_waiting(context: RunContext, late: list[Straggler], wait_ns: float) -> InsightDraft:
    """Return the draft for waiting: what for, what to do, and what that could save.

    Args:
        context: the run.
        late: the ranks that are late in more than one step, if fixing them could save time.
        wait_ns: waiting per step, the mean over ranks.
    """
    across, efficiency = context.run.cross_rank, context.run.efficiency
    longest_ns = context.longest_wait_ns(wait_ns)
    early = across.early_ranks if across else []
    if across and early and _evenly_divided_ns(context, early) > across.stragglers_gain_ns:
        return _for_early_ranks(context, early, longest_ns)
    if late:
        return _for_stragglers(context, late, wait_ns)
    if (paused := waited_for(context)) is not None:
        return _for_pause(context, paused, longest_ns)
    once = one_off_causes(across, efficiency.wait_ns) if across and efficiency else []
    if across and efficiency and once:
        steps = " and ".join(f"step {one.step} on {rank_list([one.rank, *one.with_ranks])}" for one in once)
        compiles = all(
            _mostly_compiles(context, rank, [one.step]) for one in once for rank in (one.rank, *one.with_ranks)
        )
        what = find_compiled(steps) if compiles else _find_single(once, steps)
        saving_ns = min(sum(one.lag_ns for one in once) / context.recorded_steps, longest_ns)
        return InsightDraft(f"other ranks{one_off_clause(across, efficiency.wait_ns)}", {}, what, saving_ns)
    if (last := last_arrivals_of(context, MIN_SHARE)) is not None:
        return _for_last_arrivals(context, last, longest_ns)
    most = max(context.dimensions(), key=lambda one: one.wait_ns, default=None)
    who = f"other ranks{_why_none_is_named(context)}"
    common_ns, less_often = _common_wait_ns(context), synchronise_less(context, most)
    if less_often and context.share(common_ns) >= MIN_SHARE:
        return InsightDraft(who, {}, less_often, min(common_ns, longest_ns))
    return InsightDraft(who, {}, wait_less(context, most), longest_ns)


def _why_none_is_named(context: RunContext) -> str:
    """Return a clause on late ranks for a run in which none was found."""
    across = context.run.cross_rank
    if across is None or not across.lateness_known:
        return " (too few steps to tell which of them are late)"
    if context.run.lacks_events:
        return " (traces are damaged: whether one of them is late is not known)"
    return ", none of which is late beyond chance in all steps"


def _for_early_ranks(context: RunContext, early: list[EarlyRank], longest_ns: float) -> InsightDraft:
    """Return the draft for ranks that have less to do than most: the more they do, the less is left for the others."""
    who = rank_list([row.rank for row in early])
    have, are = ("it has", "is") if len(early) == 1 else ("they have", "are")
    sentence = early_sentence(early, besides_late=bool(context.run.cross_rank and context.run.cross_rank.stragglers))
    advice = f"give {who} more of the work: {have} less of it than the others, or {are} faster"
    saving_ns = min(_evenly_divided_ns(context, early), longest_ns)
    return InsightDraft(f"others: {sentence}", {"lead_ns": float(early[0].lead_ns)}, advice, saving_ns)


def _evenly_divided_ns(context: RunContext, early: Sequence[EarlyRank]) -> float:
    """Return by how much a step of equally fast ranks is shorter if all of them do as much (ns)."""
    return sum(row.lead_ns for row in early) / len(context.run.ranks)


def _common_wait_ns(context: RunContext) -> float:
    """Return the waiting per step that all ranks have (ns), the most that synchronising less often can save.

    However seldom ranks meet, a step takes as long as the rank that waits least needs for its own work.
    """
    across, steps = context.run.cross_rank, context.recorded_steps
    waits: dict[int | None, int] = {row.rank: row.exposed_wait_ns for row in across.rank_waits} if across else {}
    return min((waits.get(rank.rank, 0) for rank in context.run.ranks), default=0) / steps


def waited_for(context: RunContext) -> RankPauses | None:
    """Return the checkpoints or evaluations of a rank that most waiting of the others is for; None without any."""
    most = max(context.run.pauses, key=lambda row: row.waited_ns or 0, default=None)
    others = len(context.run.ranks) - 1
    total_wait_ns = context.run.efficiency.wait_ns if context.run.efficiency else 0
    if most is None or not most.waited_ns or most.waited_ns * others < _MAJORITY * total_wait_ns:
        return None
    return most


def _for_pause(context: RunContext, row: RankPauses, longest_ns: float) -> InsightDraft:
    """Return the draft for waiting for a checkpoint or an evaluation.

    Args:
        context: the run.
        row: the pauses.
        longest_ns: bound on what a step loses by waiting.
    """
    what = {
        "checkpoint": "let each rank write its part (torch.distributed.checkpoint), asynchronously or less often",
        "evaluation": "divide the evaluation evenly over all ranks, or evaluate less often",
        "logging": "log less often, or in another thread",
    }[row.phase]
    waited_ns = float(row.waited_ns or 0)
    called = f" ({escape_unprintable(row.caller)})" if row.caller else ""
    sentence = f"{row.phase}{called} on rank {row.rank}"
    return InsightDraft(sentence, {PAUSE_WAIT: waited_ns}, what, min(waited_ns / context.recorded_steps, longest_ns))


def last_arrivals_of(context: RunContext, least: float) -> LastArrivals | None:
    """Return the ranks that join collectives last in a run of few steps; None if none do, or matches are unreliable.

    Args:
        context: the run.
        least: smallest share of the step that is waited for them.
    """
    last = context.run.cross_rank.last_arrivals if context.run.cross_rank else None
    if last is None or context.has("suspect_matches"):
        return None
    return last if context.share(last.exposed_wait_ns / context.rank_steps) >= least else None


def _for_last_arrivals(context: RunContext, last: LastArrivals, longest_ns: float) -> InsightDraft:
    """Return the draft for ranks of which the few recorded steps do not tell whether they are late beyond chance."""
    who, steps = rank_list(last.ranks), context.recorded_steps
    start_ns, wait_ns = last.start_wait_ns / context.rank_steps, last.exposed_wait_ns / context.rank_steps
    of = f"all {last.late}" if last.late == last.collectives else f"{last.late} of {last.collectives}"
    doing = f" {_ACTIVITIES[last.category]}" if last.category else ""
    where = f" in {escape_unprintable(last.annotation.removeprefix(PREFIX))}" if last.annotation else ""
    start = f"{duration(start_ns)} while ranks may have been late because they started recording later, then "
    among = " of the ranks with traces" if context.run.is_partial else ""
    sentence = (
        f"other ranks: {start if last.start_wait_ns else ''}{duration(wait_ns)} for {who}, last{among} at {of} "
        f"collectives ({', '.join(last.operators)}) by up to {duration(last.lag_ns)}"
    ) + (f", after more time{doing}{where}" if doing else "")
    do, always = ("does", "it always is") if len(last.ranks) == 1 else ("do", "they always are")
    advice = f"find what {who} {do} longer" if last.category is None else _check(context, last.category, None, who)
    recorded = "one does" if steps == 1 else f"{steps} do"
    advice += f"; record at least {FEWEST_COMPARED_STEPS} steps: {recorded} not tell whether {always} late"
    evidence = {"start_wait_ns": start_ns, "last_wait_ns": wait_ns, "lag_ns": float(last.lag_ns)}
    # The late ranks hardly wait: the mean over all ranks is less than what the others wait.
    waits_ns = wait_ns * len(context.run.ranks) / (len(context.run.ranks) - len(last.ranks))
    return InsightDraft(sentence, evidence, advice, min(waits_ns, longest_ns))


def _for_stragglers(context: RunContext, late: list[Straggler], wait_ns: float) -> InsightDraft:
    """Return the draft for waiting for known ranks; its saving is what the mean step loses to them."""
    across = context.run.cross_rank
    gain_ns = float(across.stragglers_gain_ns) if across else 0.0
    explained_ns, prompt = _waiting_for(context, late, gain_ns), len(context.run.ranks) - len(late)
    part = "most of it" if explained_ns >= _MAJORITY * wait_ns else "in part"
    who = _who(late) if explained_ns >= _NEARLY_ALL * wait_ns else f"other ranks, {part} for {_who(late)}"
    who += " (a rank without a trace may be as late)" if context.run.is_partial else ""
    evidence = {"gain_ns": gain_ns}
    if len(late) == 1:
        evidence |= {"rank": float(late[0].rank), "lag_ns": float(late[0].lag_ns)}
    # Another rank may be as late where some have no trace: a replay does not know of it.
    change = None if context.run.is_partial else healthy_ranks(row.rank for row in late)
    reason = find_reason(context, late)
    saving_ns = min(gain_ns, context.longest_step_ns)
    advice = _advice(context, late, prompt, reason)
    return InsightDraft(f"{who}{reason.clause}" if reason else who, evidence, advice, saving_ns, change)


def _waiting_for(context: RunContext, late: Sequence[Straggler], gain_ns: float) -> float:
    """Return how long ranks wait for late ones, the mean over all ranks and steps (ns).

    Without the delays, each rank that they keep waiting does so for less by what a step gets shorter; but a late one
    only by what that is more than its own delay: it waits for other late ranks, not for itself.
    """
    groups: dict[frozenset[int], list[Straggler]] = defaultdict(list)
    for row in late:
        groups[frozenset((row.rank, *row.delays)) if row.delays else frozenset()].append(row)
    total_ns = 0.0
    for group, rows in groups.items():
        shorter_ns = gain_ns if len(groups) == 1 else float(max(row.gain_ns for row in rows))
        own_ns = sum(max(row.lag_ns * row.steps_late / row.steps, row.gain_ns) for row in rows)
        also_ns = sum(one.lag_ns for one in rows[0].also) if len(late) == 1 else 0
        total_ns += max(0.0, (len(group) or len(context.run.ranks)) * (shorter_ns + also_ns) - own_ns - also_ns)
    return total_ns / len(context.run.ranks)


def _who(late: list[Straggler]) -> str:
    first = late[0]
    if len(late) == 1:
        often = _in_which(first)
        doing = _ACTIVITIES[first.category] + phase_clause(first)
        doing += f" ({load_clause(first.loading)})" if first.loading else ""
        return f"rank {first.rank}, which spends {duration(first.lag_ns)} more {often} {doing}"
    lag = duration(first.lag_ns)
    doing = " or ".join(dict.fromkeys(_ACTIVITIES[row.category] for row in late))
    return f"{name_ranks(late)}{' in turns' if take_turns(late) else ''}, which spend up to {lag} more {doing}"


def _advice(context: RunContext, late: list[Straggler], prompt: int, reason: Reason | None) -> str:
    first = late[0]
    if take_turns(late) and first.loading and len({row.loading and row.loading.cause for row in late}) == 1:
        return load_faster(context, first.loading.cause)
    if take_turns(late):
        steps = f"in one of {first.every} steps only" if first.every > 1 else "only in the steps in which it is late"
        return f"find what each of the ranks does {steps}"
    if len(late) == 1:
        return _speed_up(context, first, f"rank {first.rank}", reason)
    same = len({(row.category, how_often(row), row.loading and row.loading.cause) for row in late}) == 1
    if same:
        how = _speed_up(context, first, name_ranks(late), reason)
    elif prompt:
        how = f"find what {name_ranks(late)} do that the others do not"
    else:
        how = "find what each of the ranks does in the steps in which it is late"
    alone = "" if any(row.gain_ns > 0 for row in late) else ": one alone saves nothing"
    return f"fix all {len(late)}{alone}; {how}" if prompt else how


def _mostly_compiles(context: RunContext, number: int, steps: Sequence[int] | None = None) -> bool:
    """Return whether most idle time of a rank, in all steps or in some, is code being compiled or loaded."""
    own = [
        step
        for rank in context.run.ranks
        for step in rank.steps
        if rank.rank == number and (steps is None or step.step in steps)
    ]
    idle_ns = sum(step.exposed_ns.overhead for step in own)
    return sum(step.idle_ns.compilation for step in own) > _MAJORITY * idle_ns


def _speed_up(context: RunContext, row: Straggler, who: str, reason: Reason | None) -> str:
    if reason is not None:
        return reason.advice
    if row.category == "overhead" and _mostly_compiles(context, row.rank):
        return find_compiled(f"steps of {who}")
    if (row.every > 1 or row.steps_late < row.steps) and row.category != "data_loading":
        return _find_partly(row.category, f"on {who} {_in_which(row)}")
    return _check(context, row.category, row.loading, who)


def _in_which(row: Straggler) -> str:
    return how_often(row) if row.every == 1 else f"in one of {row.every} steps"


def _find_single(once: Sequence[OneOffStraggler], steps: str) -> str:
    """Return what to do about delays in single steps."""
    categories = {one.category for one in once}
    advice = _find_partly(categories.pop() if len(categories) == 1 else None, f"in {steps}")
    first = "; a step in which recording begins may also contain what starting the profiler costs"
    return advice + (first if any(one.is_first for one in once) else "")


def _find_partly(category: Category | None, where: str) -> str:
    """Return what to look for where a rank takes longer in some steps only: what can take time of that category."""
    if category == "compute":
        return f"check for more work (larger inputs, an evaluation), a slower device or a shared one {where}"
    what = {
        "overhead": f"runs {where} only: a log, a checkpoint, garbage collection",
        "memcpy": f"is copied {where} only: a checkpoint, values to log",
        "data_loading": f"is loaded {where} only: large samples, or files that are not cached yet",
        None: f"runs {where} only: an evaluation, a checkpoint, a log",
    }
    return f"find what {what[category]}"


def _check(context: RunContext, category: Category, loading: LateLoading | None, who: str) -> str:
    if category == "data_loading":
        return load_faster(context, loading.cause if loading else None)
    return {
        "compute": f"check for more work, a slower device or a shared one on {who}",
        "overhead": f"check launches, Python and synchronisation on {who}, and what else runs there",
        "memcpy": f"check how copies are made on {who}: use pinned memory, and cores close to the device",
    }[category]
