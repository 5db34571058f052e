"""`perfkit plan` by formulas: all layouts of a model on a number of ranks, each with memory, traffic and time.

Each comes with the command that runs it, checked by perfkit's own options before it is shown.
"""

from collections.abc import Mapping
from shlex import quote
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from perfkit.errors import UsageError
from perfkit.options.plan import RESERVE
from perfkit.options.run import RunConfig
from perfkit.record.training.strategies.checks import check_parallelism
from perfkit.records.plan import Plan, PlannedDevice, PlannedLayout, PlannedModel, StepEstimate
from perfkit.tools.plan.choice import choose, decide
from perfkit.tools.plan.formulas.memory import Need, memory_of
from perfkit.tools.plan.formulas.stage import Stage
from perfkit.tools.plan.formulas.step_time import Rates, time_step
from perfkit.tools.plan.formulas.traffic import messages_of
from perfkit.tools.plan.hardware import DEFAULT_PER_HOST
from perfkit.tools.plan.layout import Checkpointing, Layout, candidates
from perfkit.tools.plan.precision import PRECISIONS
from perfkit.tools.plan.shape import Shape
from perfkit_workloads.base import Workload

_DEEPSPEED: Final = {"ddp": 0, "zero1": 1, "zero2": 2, "zero3": 3}


def _run_options(layout: Layout, precision: str, batch: int) -> tuple[dict[str, Any], str | None]:
    """Return the options of the run, and why it does not have any."""
    options: dict[str, Any] = {"batch_size": batch}
    if layout.checkpointing == "selective":
        return {}, "`perfkit run` checkpoints whole layers"
    if precision == "half":
        return {}, "`perfkit run` keeps the optimizer's state in float32"
    if precision == "mixed":
        if layout.dp not in _DEEPSPEED or layout.mesh.keys() != {"dp"}:
            return {}, "`perfkit run` keeps parameters in 16 bits with --dp deepspeed only"
        options |= {"dp": "deepspeed", "zero": _DEEPSPEED[layout.dp], "precision": "bfloat16"}
    else:
        options |= {"mesh": layout.mesh_option, "dp": layout.dp}
        options |= {"precision": precision} if precision != "float32" else {}
    options |= {"sequence_parallel": True} if layout.sequence_parallel else {}
    options |= {"loss_parallel": True} if layout.loss_parallel else {}
    options |= {"micro_batches": layout.micro_batches} if layout.pp > 1 else {}
    options |= {"checkpoint_activations": True} if layout.checkpointing == "full" else {}
    return options, None


def _flag(name: str, value: Any) -> str:
    option = name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{option}" if value else f"--no-{option}"
    return f"--{option} {quote(str(value))}"


class Request(Struct, frozen=True, kw_only=True):
    """What to plan."""

    shape: Shape
    ranks: int
    global_batch: int
    """Samples of one step over all ranks."""
    precision: str
    device: PlannedDevice | None = None
    rates: Rates = Rates()
    fused: bool = True
    """Whether attention's scores are never written to memory."""
    reserve: float = RESERVE
    tokens: float | None = None
    """To train on in total."""
    checkpointing: Checkpointing | None = None
    """None compares all."""
    workload: Workload[Any] | None = None
    """That `perfkit run` trains; None if the model is only described."""
    options: Mapping[str, Any] = {}
    """Options of the workload that differ from its defaults."""


def make_plan(request: Request) -> Plan:
    """Return the plan of a request, all from formulas.

    Raises:
        UsageError: The samples of a step cannot be divided between the ranks.
    """
    layouts = layouts_of(request)
    if not layouts:
        raise UsageError(f"{request.global_batch} samples per step cannot be divided between {request.ranks} ranks")
    planned = [plan_layout(request, layout) for layout in layouts]
    best, reason = choose(planned, request.device)
    shape = request.shape
    return Plan(
        model=PlannedModel(
            name=shape.name,
            parameters=shape.parameters,
            layers=shape.layers,
            width=shape.width,
            heads=shape.heads,
            sequence=shape.sequence,
            vocabulary=shape.vocabulary,
            flops_per_token=shape.flops_per_token,
        ),
        ranks=request.ranks,
        global_batch=request.global_batch,
        precision=request.precision,
        device=request.device,
        layouts=planned,
        best=best,
        reason=reason,
        decision=decide(planned, request.device),
        assumptions=_assumptions(request),
        tokens=request.tokens,
    )


def layouts_of(request: Request) -> list[Layout]:
    """Return the layouts to compare, each with as many micro-batches as its batch can be divided into."""
    per_host = request.device.devices_per_host if request.device else DEFAULT_PER_HOST
    found = candidates(request.shape, request.ranks, per_host, _kinds(request))
    return [made for layout in found if (made := _with_micro_batches(layout, request.global_batch)) is not None]


def _kinds(request: Request) -> tuple[Checkpointing, ...]:
    if request.checkpointing is not None:
        return (request.checkpointing,)
    if request.shape.layers is None:
        return ("none",)
    return ("none", "full") if request.fused else ("none", "selective", "full")


def _with_micro_batches(layout: Layout, global_batch: int) -> Layout | None:
    """Return the layout with the most micro-batches, up to eight per stage; None if the samples do not divide."""
    if global_batch % layout.replicas:
        return None
    batch = global_batch // layout.replicas
    if layout.pp == 1:
        return layout
    parts = next((parts for parts in range(8 * layout.pp, 0, -layout.pp) if batch % parts == 0), None)
    return None if parts is None else replace(layout, micro_batches=parts)


def plan_layout(request: Request, layout: Layout) -> PlannedLayout:
    """Return memory, traffic and time of one layout."""
    batch = request.global_batch // layout.replicas
    need = need_of(request, layout)
    # The busiest: it has two neighbours, or the tied embedding.
    stage = stage_of(request, layout, 1 if layout.pp > 2 else 0)
    timed = time_step(
        stage,
        request.device if request.shape.sequence or request.shape.flops_per_sample else None,
        request.rates,
        messages=messages_of(stage, clips=request.workload is not None),
        tokens=float(request.global_batch * (request.shape.sequence or 1)),
    )
    command, refused = _command(request, layout, batch)
    fits, over = _fits(request.device, need)
    return PlannedLayout(
        name=layout.name,
        dp=layout.dp,
        mesh=layout.mesh,
        checkpointing=layout.checkpointing,
        sequence_parallel=layout.sequence_parallel,
        loss_parallel=layout.loss_parallel,
        batch_size=batch,
        micro_batches=layout.micro_batches,
        memory=need.memory,
        fits=fits,
        over_bytes=over,
        traffic=timed.traffic,
        step=_with_cost(timed.step, request),
        terms=[*need.terms, *timed.terms],
        command=command,
        refused=refused,
    )


def need_of(request: Request, layout: Layout) -> Need:
    """Return the memory of the rank that needs most in a layout."""
    stage = stage_of(request, layout, 0)
    return memory_of(stage.shape, layout, stage.precision, stage.samples, fused=request.fused, reserve=request.reserve)


def stage_of(request: Request, layout: Layout, index: int) -> Stage:
    """Return one stage of a layout's pipeline."""
    samples = request.global_batch // layout.replicas // layout.micro_batches
    return Stage(request.shape, layout, PRECISIONS[request.precision], index, samples, request.fused)


def _command(request: Request, layout: Layout, batch: int) -> tuple[str | None, str | None]:
    """Return the command that trains the workload in this layout, and why there is none."""
    if request.workload is None:
        return None, None
    run, problem = _run_options(layout, request.precision, batch)
    if problem is not None:
        return None, problem
    try:
        config = RunConfig(**run)
        config.check_world(layout.ranks)
        check_parallelism(request.workload, config)
    except UsageError as error:
        return None, str(error)
    per_host = request.device.devices_per_host if request.device else DEFAULT_PER_HOST
    flags = " ".join(_flag(name, value) for name, value in {**request.options, **run}.items())
    ranks = f" -n {layout.ranks}" if layout.ranks <= per_host and layout.ranks > 1 else ""
    launcher = f"mpiexec -n {layout.ranks} " if layout.ranks > per_host else ""
    return f"{launcher}perfkit run {request.workload.name}{ranks} {flags}", None


def _fits(device: PlannedDevice | None, need: Need) -> tuple[bool | None, int | None]:
    """Return whether it fits, None if that is unknown, and by how much it is too large."""
    if device is None or device.memory_bytes is None:
        return None, None
    over = need.memory.needed_bytes - device.memory_bytes
    if over > 0:
        return False, over
    return (None if need.memory.activations_bytes is None else True), over


def _with_cost(step: StepEstimate | None, request: Request) -> StepEstimate | None:
    if step is None or request.tokens is None:
        return step
    hours = request.ranks * request.tokens / step.tokens_per_s / 3600
    power = request.device.power_watts if request.device else None
    return replace(step, device_hours=hours, energy_kwh=None if power is None else hours * power / 1000)


def _assumptions(request: Request) -> list[str]:
    """Return what the figures assume, each with the option that changes it."""
    rates, lines = request.rates, [f"bytes per entry: {PRECISIONS[request.precision].source} (--precision)"]
    if request.shape.flops_per_sample is not None:
        lines.append("AdamW (foreach); the loss is the mean of the output, unless the module has its own")
    elif request.shape.layers is None:
        lines.append("activations are not counted: add --layers, --width and --sequence")
    else:
        scores = "never written to memory" if request.fused else "kept for backward"
        lines.append(f"attention's scores are {scores} (--attention)")
    lines.append(f"allocator overhead of {100 * request.reserve:g} % (--reserve); 1 GB = 1,000,000,000 bytes")
    if request.shape.experts:
        lines.append("balanced router: each expert gets the same number of tokens")
    if request.device is None:
        return lines
    lines += [
        f"matrix products, with the operations between them, reach {100 * rates.efficiency:.3g} % of the peak "
        "(--efficiency)",
        _link_assumption(request.device, rates),
        "all but the first or last message of each pass overlap with it: gradients are reduced during the backward "
        "pass, and parameters, and the keys and values of ring attention, arrive during the pass that needs them; "
        "nothing else overlaps",
    ]
    return [*lines, *(f"measured: {source}" for source in rates.sources)]


def _link_assumption(device: PlannedDevice, rates: Rates) -> str:
    latency = f"{rates.latency_ns / 1000:.3g} µs per message (--latency)"
    if rates.bytes_per_s is not None:
        return f"collectives reach {rates.bytes_per_s / 1e9:.3g} GB/s; {latency}"
    inside = "as between hosts" if device.host_bytes_per_s is None else f"{device.host_bytes_per_s / 1e9:.4g} GB/s"
    between = f"{(device.network_bytes_per_s or 0) / 1e9:.4g} GB/s per device"
    return (
        f"collectives reach {100 * rates.link_efficiency:.3g} % of the links (--link-efficiency): inside a host of "
        f"{device.devices_per_host} devices {inside}, between hosts {between}; {latency}"
    )
