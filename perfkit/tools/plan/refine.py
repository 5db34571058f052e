"""Puts traced memory in place of the formulas', and chooses again."""

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from perfkit.errors import UsageError
from perfkit.records.plan import Plan, PlannedLayout, TracedMemory
from perfkit.tools.plan.choice import with_layouts
from perfkit.tools.plan.formulas.stage import state_of
from perfkit.tools.plan.layout import SHARDED, Layout
from perfkit.tools.plan.models import SIZE_OPTIONS
from perfkit.tools.plan.planner import Request, layouts_of, stage_of
from perfkit.tools.plan.precision import PRECISIONS
from perfkit.tools.plan.traced.launch import OwnModule, TracedStep, TraceRequest, trace

MOST_TRACED: Final = 4
"""Layouts that are traced at most, until the best is one of them."""

_PARTS: Final[Mapping[str, tuple[str, ...]]] = {
    "parameters_bytes": ("PARAM", "SHARDED_PARAM", "BUFFER"),
    "gradients_bytes": ("GRAD", "SHARDED_GRAD"),
    "optimizer_bytes": ("OPT",),
    "activations_bytes": ("ACT", "INP"),
}
"""torch's categories; all others are buffers and temporary tensors."""


def refine(plan: Plan, request: Request) -> Plan:
    """Trace the best layout, or the one that needs least, and choose again, until the best has been traced.

    Raises:
        UsageError: The precision is not one that torch runs here, or the step fails.
        LaunchEnvironmentError: The tracing process died.
    """
    check_precision(request.precision)
    layouts = layouts_of(request)
    for _ in range(MOST_TRACED):
        place = _next(plan)
        if plan.layouts[place].traced is not None:
            break
        answer = trace(trace_request(request, [layouts[place]]))
        traced = with_trace(plan.layouts[place], request, layouts[place], answer.steps[0])
        plan = with_layouts(plan, [*plan.layouts[:place], traced, *plan.layouts[place + 1 :]])
    return plan


def check_precision(precision: str) -> None:
    """Refuse a precision that no module runs in here.

    Raises:
        UsageError: It has formulas only, or is none.
    """
    if precision not in PRECISIONS or PRECISIONS[precision].parameter != 4:
        raise UsageError(f"steps are traced as `perfkit run` runs them: precision {precision} has formulas only")


def _next(plan: Plan) -> int:
    if plan.best is not None:
        return plan.best
    runnable = [place for place, one in enumerate(plan.layouts) if one.refused is None]
    return min(runnable or [0], key=lambda place: plan.layouts[place].memory.needed_bytes)


def trace_request(request: Request, layouts: list[Layout], own: OwnModule | None = None) -> TraceRequest:
    """Return the request to trace some layouts, each in the stage of its pipeline with the most activations."""
    config = None if request.workload is None else request.workload.config
    return TraceRequest(
        layouts=layouts,
        precision=request.precision,
        samples=[request.global_batch // one.replicas // one.micro_batches for one in layouts],
        stages=[_stage(request, one) for one in layouts],
        gpt=None if config is None else {name: getattr(config, name) for name in SIZE_OPTIONS},
        own=own,
    )


def _stage(request: Request, layout: Layout) -> int:
    """Return the last stage if the outputs that it keeps are more than the first one's activations."""
    shape = request.shape
    kept = 16 * (shape.layers or 0) * (shape.width or 0)
    return layout.pp - 1 if layout.pp > 1 and layout.micro_batches * (shape.vocabulary or 0) > kept else 0


def with_trace(one: PlannedLayout, request: Request, layout: Layout, step: TracedStep) -> PlannedLayout:
    """Return a layout with traced memory, and what does not go through the tracker added by formula."""
    stage = stage_of(request, layout, _stage(request, layout))
    values = {name: sum(step.held.get(kind, 0) for kind in kinds) for name, kinds in _PARTS.items()}
    rest = step.held.get("Total", 0) - sum(values.values())
    state = state_of(stage)
    notes, added = [], 0
    if layout.dp not in SHARDED and (layout.pp == 1 or layout.replicas > 1):
        added, rest = 4 * stage.entries, rest + 4 * stage.entries
        notes.append("DDP's buckets are added by formula")
    if layout.dp == "zero1":
        added -= values["optimizer_bytes"] - state.optimizer_bytes
        values["optimizer_bytes"] = state.optimizer_bytes
        notes.append("how ZeRO-1 shards the optimizer state is by formula")
    if request.shape.experts:
        notes.append("each expert gets the same number of tokens")
    traced = TracedMemory(
        **values,
        buffers_bytes=rest,
        peak_bytes=step.held.get("Total", 0) + added,
        formula_peak_bytes=None if one.memory.activations_bytes is None else one.memory.peak_bytes,
        seconds=step.seconds,
        note="; ".join(notes),
    )
    memory = replace(
        one.memory,
        activations_bytes=traced.activations_bytes,
        buffers_bytes=traced.buffers_bytes,
        peak_bytes=traced.peak_bytes,
        reserve_bytes=round(request.reserve * traced.peak_bytes),
    )
    over = None if one.over_bytes is None else one.over_bytes + memory.needed_bytes - one.memory.needed_bytes
    return replace(one, traced=traced, memory=memory, over_bytes=over, fits=None if over is None else over <= 0)
