"""`perfkit plan` by formulas: all layouts of a model on a number of ranks, each with memory, traffic and time.

Each comes with the command that runs it, checked by perfkit's own options before it is shown.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from perfkit.errors import UsageError
from perfkit.options.plan import RESERVE
from perfkit.records.plan import Plan, PlannedDevice, PlannedLayout, PlannedModel, StepEstimate
from perfkit.tools.plan.choice import choose, decide
from perfkit.tools.plan.formulas.memory import Need, memory_of
from perfkit.tools.plan.formulas.offload import largest_matrix, offloaded_memory
from perfkit.tools.plan.formulas.stage import Stage
from perfkit.tools.plan.formulas.step_time import Rates, time_step
from perfkit.tools.plan.formulas.traffic import messages_of
from perfkit.tools.plan.hardware import DEFAULT_PER_HOST
from perfkit.tools.plan.launch_commands import other_command, run_command
from perfkit.tools.plan.layout import Checkpointing, Layout, candidates, offloaded, quantized
from perfkit.tools.plan.precision import PRECISIONS
from perfkit.tools.plan.shape import Shape
from perfkit_workloads.base import Workload

OFFLOADS: Final = "mixed"
"""The precision that DeepSpeed offloads and quantizes in."""

Place = Literal["device", "host", "nvme"]


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
    offload: Literal["none", "cpu", "nvme"] | None = None
    """Where to keep state outside of the device; None: wherever it has to, if nothing fits."""


def make_plan(request: Request) -> Plan:
    """Return the plan of a request, all from formulas.

    Raises:
        UsageError: The samples of a step cannot be divided between the ranks.
    """
    layouts = layouts_of(request) if request.offload in (None, "none") else _offloaded(request)
    if not layouts:
        raise UsageError(f"{request.global_batch} samples per step cannot be divided between {request.ranks} ranks")
    planned = [plan_layout(request, layout) for layout in layouts]
    can_offload = request.offload is None and request.precision == OFFLOADS and request.shape.layers is not None
    if can_offload and planned and all(one.fits is False for one in planned):
        planned += [plan_layout(request, layout) for layout in _offloaded(request)]
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
            is_assumed=shape.is_assumed,
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


def _offloaded(request: Request) -> list[Layout]:
    """Return the layouts that offload, with as many tiles as make the largest matrix smaller."""
    outer = max((one.count for one in request.shape.tensors if one.layer is None), default=0)
    tilings = [2**power for power in range(5)]
    tilings = [1, *(tiles for tiles in tilings[1:] if largest_matrix(request.shape, tiles // 2) > outer)]
    where = None if request.offload == "none" else request.offload
    return offloaded(request.ranks, where, tilings, _kinds(request))


def layouts_of(request: Request) -> list[Layout]:
    """Return the layouts to compare, each with as many micro-batches as its batch can be divided into."""
    found = candidates(request.shape, request.ranks, _per_host(request), _kinds(request))
    if request.offload is None and request.precision == OFFLOADS and request.shape.layers is not None:
        found += quantized(request.ranks, _per_host(request), _kinds(request))
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
        # How fast state comes from outside is not known.
        request.device
        if (request.shape.sequence or request.shape.flops_per_sample) and layout.offload == "none"
        else None,
        request.rates,
        messages=messages_of(stage, clips=request.workload is not None),
        tokens=float(request.global_batch * (request.shape.sequence or 1)),
    )
    command, refused = _command(request, layout, batch)
    fits, over, short_of = _fits(request.device, need)
    return PlannedLayout(
        name=layout.name,
        dp=layout.dp,
        mesh=layout.mesh,
        checkpointing=layout.checkpointing,
        sequence_parallel=layout.sequence_parallel,
        loss_parallel=layout.loss_parallel,
        offload=layout.offload,
        tiles=layout.tiles,
        short_of=short_of,
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
    if layout.offload != "none":
        return offloaded_memory(stage, reserve=request.reserve, per_host=_per_host(request))
    return memory_of(stage.shape, layout, stage.precision, stage.samples, fused=request.fused, reserve=request.reserve)


def stage_of(request: Request, layout: Layout, index: int) -> Stage:
    """Return one stage of a layout's pipeline."""
    samples = request.global_batch // layout.replicas // layout.micro_batches
    return Stage(request.shape, layout, PRECISIONS[request.precision], index, samples, request.fused)


def _command(request: Request, layout: Layout, batch: int) -> tuple[str | None, str | None]:
    """Return the command that trains the model in this layout, and why `perfkit run` has none."""
    if request.shape.flops_per_sample is not None:
        return None, None  # a module of the user's own, which runs as it is
    per_host = _per_host(request)
    if request.workload is None:
        return other_command(layout, request.precision, batch, per_host)
    command, refused = run_command(request.workload, request.options, layout, request.precision, batch, per_host)
    if command is None:
        command, _ = other_command(layout, request.precision, batch, per_host)
    return command, refused


def _per_host(request: Request) -> int:
    return request.device.devices_per_host if request.device else DEFAULT_PER_HOST


def _fits(device: PlannedDevice | None, need: Need) -> tuple[bool | None, int | None, Place]:
    """Return whether it fits, None if that is unknown, by how much it is too large, and for what."""
    if device is None or device.memory_bytes is None:
        return None, None, "device"
    memory = need.memory
    limits: tuple[tuple[Place, int, int | None], ...] = (
        ("device", memory.needed_bytes, device.memory_bytes),
        ("host", memory.host_bytes, device.host_memory_bytes),
        ("nvme", memory.nvme_bytes, device.nvme_bytes),
    )
    for place, needed, limit in limits:
        if limit is not None and needed > limit:
            return False, needed - limit, place
    over = memory.needed_bytes - device.memory_bytes
    return (None if memory.activations_bytes is None else True), over, "device"


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
