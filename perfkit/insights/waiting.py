"""What ranks wait for: late ranks, a single delay, or nothing that stands out; and what to do about it."""

from typing import Final

from perfkit.analysis.cross_rank.straggler_sentences import (
    load_clause,
    name_ranks,
    one_off_causes,
    one_off_clause,
    phase_clause,
    take_turns,
)
from perfkit.insights.dimension_advice import wait_less
from perfkit.insights.loader_advice import load_faster
from perfkit.insights.rule import InsightDraft
from perfkit.insights.run_context import RunContext
from perfkit.schema.common import Category
from perfkit.schema.cross_rank import Straggler
from perfkit.util.formatting import duration
from perfkit.whatif.changes import healthy_ranks

_MAJORITY: Final = 0.5
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
    if late:
        return _for_stragglers(context, late, wait_ns)
    across, efficiency = context.run.cross_rank, context.run.efficiency
    longest_ns = context.longest_wait_ns(wait_ns)
    if efficiency and (paused := _for_pauses(context, efficiency.wait_ns, longest_ns)) is not None:
        return paused
    once = one_off_causes(across, efficiency.wait_ns) if across and efficiency else []
    if across and efficiency and once:
        steps = " and ".join(f"step {one.step} on rank {one.rank}" for one in once)
        what = f"find what runs in {steps} only: an evaluation, a checkpoint, a log"
        saving_ns = min(sum(one.lag_ns for one in once) / context.recorded_steps, longest_ns)
        return InsightDraft(f"other ranks{one_off_clause(across, efficiency.wait_ns)}", {}, what, saving_ns)
    most = max(context.dimensions(), key=lambda one: one.wait_ns, default=None)
    who = "other ranks, none of which is late beyond chance in all steps"
    if across is None or not across.lateness_known:
        who = "other ranks (too few steps to tell which of them are late)"
    return InsightDraft(who, {}, wait_less(context, most), longest_ns)


def _for_pauses(context: RunContext, total_wait_ns: int, longest_ns: float) -> InsightDraft | None:
    """Return the draft for waiting of which most is for a checkpoint or an evaluation of some ranks; None otherwise.

    Args:
        context: the run.
        total_wait_ns: waiting summed over ranks and steps.
        longest_ns: bound on what a step loses by waiting.
    """
    most = max(context.run.pauses, key=lambda row: row.waited_ns or 0, default=None)
    others = len(context.run.ranks) - 1
    if most is None or not most.waited_ns or most.waited_ns * others < _MAJORITY * total_wait_ns:
        return None
    what = {
        "checkpoint": "let each rank write its part (torch.distributed.checkpoint), asynchronously or less often",
        "evaluation": "divide the evaluation over all ranks, or evaluate less often",
        "logging": "log less often, or in another thread",
    }[most.phase]
    saving_ns = min(most.waited_ns / context.recorded_steps, longest_ns)
    return InsightDraft(f"{most.phase} on rank {most.rank}", {"pause_wait_ns": float(most.waited_ns)}, what, saving_ns)


def _for_stragglers(context: RunContext, late: list[Straggler], wait_ns: float) -> InsightDraft:
    """Return the draft for waiting for known ranks; its saving is what the mean step loses to them."""
    across = context.run.cross_rank
    gain_ns = float(across.stragglers_gain_ns) if across else 0.0
    # The late ranks hardly wait, so the mean over ranks is less than what the others wait for them.
    explained = gain_ns * (1 - len(late) / len(context.run.ranks)) >= _MAJORITY * wait_ns or take_turns(late)
    prompt = len(context.run.ranks) - len(late)
    who = _who(late) if explained else f"other ranks, in part for {_who(late)}"
    evidence = {"gain_ns": gain_ns}
    if len(late) == 1:
        evidence |= {"rank": float(late[0].rank), "lag_ns": float(late[0].lag_ns)}
    # Another rank may be as late where some have no trace: a replay does not know of it.
    whole = len(context.run.ranks) >= context.run.world_size
    change = healthy_ranks(row.rank for row in late) if whole else None
    return InsightDraft(who, evidence, _advice(context, late, prompt), min(gain_ns, context.step_ns), change)


def _who(late: list[Straggler]) -> str:
    first = late[0]
    if len(late) == 1:
        often = "per step" if first.every == 1 else f"in one of {first.every} steps"
        doing = _ACTIVITIES[first.category] + phase_clause(first)
        doing += f" ({load_clause(first.loading)})" if first.loading else ""
        return f"rank {first.rank}, which spends {duration(first.lag_ns)} more {often} {doing}"
    lag = duration(first.lag_ns)
    doing = " or ".join(dict.fromkeys(_ACTIVITIES[row.category] for row in late))
    return f"{name_ranks(late)}{' in turns' if take_turns(late) else ''}, which spend up to {lag} more {doing}"


def _advice(context: RunContext, late: list[Straggler], prompt: int) -> str:
    first = late[0]
    if take_turns(late) and first.loading and len({row.loading and row.loading.cause for row in late}) == 1:
        return _faster(context, first)
    if take_turns(late):
        return f"find what each of the ranks does in one of {first.every} steps only"
    if len(late) == 1:
        return _speed_up(context, first, f"rank {first.rank}")
    same = len({(row.category, row.every, row.loading and row.loading.cause) for row in late}) == 1
    how = (
        _speed_up(context, first, name_ranks(late))
        if same
        else f"find what {name_ranks(late)} do that the others do not"
    )
    alone = "" if any(row.gain_ns > 0 for row in late) else ": one alone saves nothing"
    return f"fix all {len(late)}{alone}; {how}" if prompt else how


def _speed_up(context: RunContext, row: Straggler, who: str) -> str:
    if row.category == "data_loading":
        return _faster(context, row)
    if row.every > 1:
        return f"find what runs on {who} in one of {row.every} steps only: a log, a checkpoint, garbage collection"
    return {
        "compute": f"check for more work, a slower device or a shared one on {who}",
        "overhead": f"check launches, Python and synchronisation on {who}, and what else runs there",
        "memcpy": f"check how copies are made on {who}: use pinned memory, and cores close to the device",
    }[row.category]


def _faster(context: RunContext, row: Straggler) -> str:
    return load_faster(context, row.loading.cause if row.loading else None)
