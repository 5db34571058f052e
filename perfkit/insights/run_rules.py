"""Insight rules over one run, as an ordered table; those on shared cores and on pauses.

A rule reports only what was measured: an exposed share of the step, and a rank, load or collective that the report
names. The potential saving is an upper bound, the exposed time itself, unless the run has a prediction of the change.
"""

from typing import Final, NamedTuple

from perfkit.insights.collective_rules import broadcast_buffers, expert_imbalance, tiny_collectives
from perfkit.insights.communication import tensor_parallel_hosts, transfer, waiting
from perfkit.insights.copy_rules import copies
from perfkit.insights.idle import host_idle
from perfkit.insights.input import slow_input
from perfkit.insights.loss import Loss, Rule
from perfkit.insights.pipeline_rules import heavy_stage, pipeline_bubble, pipeline_transfers
from perfkit.insights.roofline_rules import float32_products, unaligned_products, unfused_elementwise
from perfkit.insights.run_context import MIN_SHARE, RunContext
from perfkit.insights.sharding_rules import fsdp_prefetch, fsdp_reshard, fsdp_wrap
from perfkit.insights.waiting import PAUSE_WAIT, called_by, waited_for
from perfkit.records.facts import Facts, fact
from perfkit.records.per_run.pauses import RankPauses
from perfkit.records.report import BESIDES_STEPS
from perfkit.subjects.scaling.points import oversubscribed as shared_cores


def _oversubscribed(context: RunContext) -> Loss | None:
    shared = shared_cores(context.run.hosts)
    if shared is None:
        return None
    host = next(host for host in context.run.hosts if shared_cores([host]))
    fall: Facts = ()
    evidence = {"ranks": float(host.ranks), "threads": float(host.threads), "cores": float(host.cores or 0)}
    if context.place is not None and context.place[2].efficiency.value < context.place[1].efficiency.value:
        series, before, point = context.place
        now = {"before": before.efficiency.value, "after": point.efficiency.value}
        fall = (fact("efficiency_drops", kind=series.kind, **now),)
        evidence |= {"efficiency_before": before.efficiency.value, "efficiency": point.efficiency.value}
    threads = max(1, (host.cores or 1) // host.ranks)
    return Loss(
        cause="oversubscribed",
        facts=(fact("oversubscribed", host=host.host, shared=shared, fall=fall),),
        evidence=evidence,
        # Scripts and loops of one's own have no option for threads.
        remedy=(fact("fewer_ranks", ranks=host.cores or 0, host=host.host),)
        if host.ranks > (host.cores or 0)
        else (fact("use_threads", threads=threads, own="threads" in (context.run.config or {})),),
        per_step_ns=None,
    )


class _Cost(NamedTuple):
    """What the pauses of one phase on one rank take."""

    row: RankPauses
    pauses: int
    steps: int
    """Steps among which they are."""
    total_ns: int
    share: float
    """Share of the time of these steps and of the pauses."""


def _pauses(context: RunContext) -> Loss | None:
    """The phase that takes most beside the steps, of the rank on which it takes longest."""
    late = waiting(context)
    waited = waited_for(context) if late is not None and PAUSE_WAIT in late.evidence else None
    rows = [row for row in context.run.pauses if waited is None or row.phase != waited.phase]
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


def _cost(context: RunContext, row: RankPauses) -> _Cost | None:
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


RULES: Final = (
    Rule("oversubscribed", _oversubscribed, explains_all=True),
    Rule("waiting", waiting),
    Rule("transfer", transfer),
    Rule("tensor_parallel_hosts", tensor_parallel_hosts),
    Rule("pipeline_bubble", pipeline_bubble),
    Rule("pipeline_transfers", pipeline_transfers),
    Rule("heavy_stage", heavy_stage),
    Rule("tiny_collectives", tiny_collectives),
    Rule("broadcast_buffers", broadcast_buffers),
    Rule("fsdp_prefetch", fsdp_prefetch),
    Rule("fsdp_reshard", fsdp_reshard),
    Rule("fsdp_wrap", fsdp_wrap),
    Rule("expert_imbalance", expert_imbalance),
    Rule("input", slow_input),
    Rule("host", host_idle),
    Rule("copies", copies),
    Rule(BESIDES_STEPS, _pauses),
    Rule("float32_products", float32_products),
    Rule("unaligned_products", unaligned_products),
    Rule("unfused_elementwise", unfused_elementwise),
)
"""Evaluated on each run, in this order."""
