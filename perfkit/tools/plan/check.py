"""`perfkit plan --check`: a prediction beside the run that it is of, term by term."""

from collections import defaultdict
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from perfkit.errors import UsageError
from perfkit.options.mesh import lay_out
from perfkit.records.plan import Plan, PlanCheck, PlannedDevice, PlannedLayout
from perfkit.records.rank import MemoryPeak
from perfkit.records.run import RunReport
from perfkit.storage.discovery import refuse_pipe
from perfkit.tools.plan.formulas.stage import count, state_of
from perfkit.tools.plan.formulas.step_time import Rates
from perfkit.tools.plan.formulas.traffic import messages_of
from perfkit.tools.plan.layout import Layout
from perfkit.tools.plan.measured import compute_ns, measured_rates, read_run
from perfkit.tools.plan.models import SIZE_OPTIONS, gpt_model
from perfkit.tools.plan.planner import Request, make_plan, need_of, plan_layout, stage_of

_REFUSED: Final = {
    "prefetch_layers": None,
    "accumulate": 1,
}
"""Options that formulas do not cover, and their values without effect."""


def check_run(path: Path, rates: Rates | None, device: PlannedDevice | None) -> Plan:
    """Return the plan of a run's own layout, with what was measured beside each prediction.

    Raises:
        UsageError: It is no run of gpt, or used options that formulas do not cover.
        TraceError: The traces cannot be read.
    """
    refuse_pipe(path, "--check")
    run = read_run(path)
    is_own = rates is None
    if rates is None:
        rates, device = measured_rates(path, Rates(), device)
    request, layout = request_of(run, rates, device)
    planned = plan_layout(request, layout)
    plan = make_plan(replace(request, workload=None))
    kinds = (_state_checks, _peak_checks, _traffic_checks)
    checks = [check for kind in kinds for check in kind(run, request, layout)]
    return replace(
        plan,
        layouts=[planned],
        best=None,
        reason="the run's own layout",
        decision=[],
        checks=[*checks, *_time_checks(run, planned, is_own=is_own)],
    )


def request_of(run: RunReport, rates: Rates, device: PlannedDevice | None) -> tuple[Request, Layout]:
    """Return what a run did, as a request and a layout.

    Raises:
        UsageError: It is no run of gpt, or used options that formulas do not cover.
    """
    config = run.config or {}
    if run.workload != "gpt" or "width" not in config:
        raise UsageError(f"{run.path}: --check has formulas for runs of `perfkit run gpt` only")
    for name, value in _REFUSED.items():
        if config.get(name, value) != value:
            raise UsageError(f"{run.path}: --check has no formulas for --{name.replace('_', '-')} {config[name]}")
    layout = _layout(config, run)
    model = gpt_model(config.get("preset"), {name: config[name] for name in SIZE_OPTIONS if name in config})
    request = Request(
        shape=model.shape,
        ranks=run.world_size,
        global_batch=int(config["batch_size"]) * layout.replicas,
        precision=str(config.get("precision", "float32")),
        device=device,
        rates=rates,
        reserve=0.0,
        workload=model.workload,
        options=model.options,
    )
    return request, layout


def _layout(config: dict[str, Any], run: RunReport) -> Layout:
    sizes = lay_out(config.get("mesh"), run.world_size).sizes
    if config.get("dp") == "deepspeed":
        raise UsageError(f"{run.path}: --check has no formulas for --dp deepspeed")
    if config.get("pp_schedule") not in (None, "1f1b"):
        raise UsageError(f"{run.path}: --check has no formulas for --pp-schedule {config['pp_schedule']}")
    return Layout(
        dp=config["dp"],
        replicate=sizes.get("replicate", 1),
        shard=sizes.get("shard", sizes.get("dp", 1)),
        tp=sizes.get("tp", 1),
        pp=sizes.get("pp", 1),
        cp=sizes.get("cp", 1),
        ep=sizes.get("ep", 1),
        micro_batches=config.get("micro_batches") or 1,
        checkpointing="full" if config.get("checkpoint_activations") else "none",
        sequence_parallel=bool(config.get("sequence_parallel")),
        loss_parallel=bool(config.get("loss_parallel")),
    )


def _state_checks(run: RunReport, request: Request, layout: Layout) -> list[PlanCheck]:
    """Compare P, G and O of the rank that holds most."""
    if not run.rank_memory:
        return []
    most = max(run.rank_memory, key=lambda one: one.parameters_bytes + one.gradients_bytes + one.optimizer_bytes)
    stages = [state_of(stage_of(request, layout, index)) for index in range(layout.pp)]
    state = max(stages, key=lambda one: one.total_bytes)
    pairs = (
        ("parameters", state.parameters_bytes, most.parameters_bytes),
        ("gradients", state.gradients_bytes, most.gradients_bytes),
        ("optimizer state", state.optimizer_bytes, most.optimizer_bytes),
    )
    return [PlanCheck(name=name, predicted=own, measured=real, unit="B") for name, own, real in pairs]


def _peak_checks(run: RunReport, request: Request, layout: Layout) -> list[PlanCheck]:
    """Compare the most that a step allocates: on a CPU traces have only what is allocated after the profiler starts."""
    uses = [use for rank in run.ranks for use in rank.memory]
    if not uses:
        return []
    need = need_of(request, layout).memory
    held = 0
    if all(use.device == "CPU" for use in uses):
        buckets = layout.dp in ("ddp", "zero1") and (layout.pp == 1 or layout.replicas > 1)
        entries = count(stage_of(request, layout, layout.pp - 1).in_buckets)
        held = need.parameters_bytes + need.optimizer_bytes + (4 * entries if buckets else 0)
    # The first recorded step: tensors that live on from one step to the next are not counted twice in it.
    real = max((explained_bytes(use.steps[0]) for use in uses if use.steps), default=None)
    if real is None:
        return []
    name = "allocated in a step, at most" if held else "allocated, at most"
    return [PlanCheck(name=name, predicted=need.peak_bytes - held, measured=real, unit="B")]


def explained_bytes(peak: MemoryPeak) -> int:
    """Return the peak without what a thread without the profiler has released, or may have released before it."""
    return peak.allocated_bytes - max(0, peak.unknown_bytes or 0) - peak.unseen_release_bytes


def _predicted_traffic(request: Request, layout: Layout) -> dict[tuple[str, str], list[int]]:
    """Return bytes and messages by dimension and operator, the most over the stages of a pipeline."""
    predicted: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for index in range(layout.pp):
        own: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
        for one in messages_of(stage_of(request, layout, index), clips=True):
            found = own[one.dimension, one.operator]
            found[0], found[1] = found[0] + one.bytes, found[1] + one.number
        for key, found in own.items():
            predicted[key] = max(predicted[key], found)
    return predicted


def _traffic_checks(run: RunReport, request: Request, layout: Layout) -> list[PlanCheck]:
    """Compare message bytes of a rank per step, the largest over ranks; those of unknown size are counted."""
    predicted = _predicted_traffic(request, layout)
    measured: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0, 1.0])
    for rank in run.ranks:
        own: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0, 1.0])
        for stat in rank.collectives:
            if stat.group_size == 1:  # DDP reduces among one rank too: nothing is sent
                continue
            operator = "send_recv" if stat.operator in ("send", "recv") else stat.operator
            found = own[stat.dimension or "?", operator]
            found[0] += (stat.bytes or 0) * stat.count / len(rank.steps)
            found[1] += stat.count / len(rank.steps)
            found[2] = min(found[2], float(stat.bytes is not None))
        for key, found in own.items():
            measured[key] = max(measured[key], found)
    rows = []
    for dimension, operator in sorted(predicted.keys() | measured.keys()):
        size, count = predicted[dimension, operator]
        real, messages, known = measured[dimension, operator]
        name = f"{dimension} {operator}"
        rows.append(PlanCheck(name=f"{name}, messages", predicted=count, measured=messages, unit="1"))
        rows.append(PlanCheck(name=f"{name}, bytes", predicted=size, measured=real if known else None, unit="B"))
    return rows


def _time_checks(run: RunReport, planned: PlannedLayout, *, is_own: bool) -> list[PlanCheck]:
    """Compare the step and its parts; compute and communication are those of recorded steps."""
    step, throughput = planned.step, run.throughput
    if step is None or throughput is None:
        return []
    steps = [one for rank in run.ranks for one in rank.steps]
    exposed = sum(one.exposed_ns.communication for one in steps) / len(steps)
    other = sum(one.wall_ns - one.exposed_ns.compute - one.exposed_ns.communication for one in steps) / len(steps)
    rows = (
        ("compute", step.compute_ns + step.recompute_ns, compute_ns(run)),
        ("exposed communication and bubble", step.exposed_ns + step.bubble_ns, exposed),
        ("optimizer, copies, data, host", step.optimizer_ns, other),
        ("step", step.step_ns, float(throughput.step_ns)),
    )
    return [
        PlanCheck(name=name, predicted=own, measured=real, unit="ns", is_given=is_own and name == "compute")
        for name, own, real in rows
    ]
