"""What idle time costs, with its largest cause."""

from typing import Final

from perfkit.engine.idle.remedies import (
    IdlePart,
    Remedy,
    change_of,
    describe,
    evidence,
    fewer_launches,
    remedy,
    saving_ns,
)
from perfkit.engine.losses.context import (
    MIN_COMMON_SHARE,
    LossContext,
    besides_stragglers,
    exposed_without_stragglers,
)
from perfkit.engine.losses.loss import Loss, Rules
from perfkit.records.aggregate import merge_idle
from perfkit.records.facts import Facts, fact
from perfkit.records.per_rank.idle import CAUSES


def host_idle(context: LossContext) -> Loss | None:
    """Idle time, with its largest cause."""
    # The profiler runs on the host: the time it adds to a step is not idle time of the training.
    cost = context.run.profiler_cost
    profiler_ns = float(cost.added_ns or 0) if cost else 0.0
    exposed_ns = exposed_without_stragglers(context, "overhead") - profiler_ns
    share = context.share(exposed_ns)
    if share < MIN_COMMON_SHARE:
        return None
    part = _largest_cause(context)
    less = (*besides_stragglers(context, "overhead"), *((fact("profiler_excluded"),) if profiler_ns else ()))
    amount = "most_of_idle" if part and part.ns > exposed_ns else ""
    why = tuple(describe(part, amount)) if part else (fact("any_idle_cause"),)
    advice = remedy(part, context) if part else _reduce_idle(context)
    figures = {"exposed_share": share, "overhead_ns": exposed_ns, "profiler_ns": profiler_ns}
    return Loss(
        cause=part.cause if part else "idle",
        code=part.largest.detail if part and part.is_named() else None,
        facts=(
            fact(_what_idles(context, part)),
            fact("idle", share=share, ns=exposed_ns, less=less),
            *why,
            *_or_data(context, part),
        ),
        evidence=figures | (evidence(part) if part else {}),
        remedy=advice.facts,
        per_step_ns=min(exposed_ns, saving_ns(part)) if part else exposed_ns,
        change=change_of(part) if part and not advice.only_finds_out else None,
        category="overhead",
        only_finds_out=advice.only_finds_out,
    )


def _what_idles(context: LossContext, part: IdlePart | None) -> str:
    """Return the fact of what does not run."""
    if not _on_gpu(context):
        return "only_compiler_runs" if part is not None and part.cause == "compilation" else "no_operator_runs"
    # Of a part of the traces it is not known.
    return "nothing_recorded_runs" if context.has("no_device_events") else "gpu_idle"


def _or_data(context: LossContext, part: IdlePart | None) -> Facts:
    """Return what else idle time may be if no loading was recognised: the program's own loader leaves no span."""
    may_load = part is None or part.cause in ("host_work", "not_running", "unknown")
    if context.run.data_loading or not may_load or (part and part.is_program()):
        return ()
    return (fact("or_unmarked_loading"),)


def _reduce_idle(context: LossContext) -> Remedy:
    if context.option("compile") is None:
        return Remedy((fact("inspect_gaps"),), only_finds_out=True)
    if _on_gpu(context):
        return Remedy((fewer_launches(context),))
    return Remedy((fact("find_hotspot"),), only_finds_out=True)


def _on_gpu(context: LossContext) -> bool:
    return any(rank.device == "gpu" for rank in context.run.ranks)


def _largest_cause(context: LossContext) -> IdlePart | None:
    """Return the largest cause of idle time over all ranks; None without any."""
    # A trace without steps counts as one, start-up included, and is in no mean step.
    ranks = [rank for rank in context.run.ranks if any(step.step is not None for step in rank.steps)]
    if any(step.step is None for rank in ranks for step in rank.steps):
        return None
    idle = merge_idle(ranks)
    if not idle.causes:
        return None
    total_ns = {cause: sum(row.total_ns for row in idle.causes if row.cause == cause) for cause in CAUSES}
    cause = max(CAUSES, key=lambda name: total_ns[name])
    rows = [row for row in idle.causes if row.cause == cause]
    return IdlePart(cause, total_ns[cause] / context.rank_steps, rows, context.rank_steps, idle)


LOSSES: Final[Rules] = {"host": host_idle}
