"""The time of one step: compute, communication that does not overlap, the bubble of a pipeline, the update."""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from perfkit.records.plan import PlannedDevice, PlanTerm, StepEstimate, Traffic
from perfkit.tools.plan.formulas.stage import Stage, State, state_of
from perfkit.tools.plan.formulas.traffic import Message, hops
from perfkit.tools.plan.layout import Layout
from perfkit.tools.plan.shape import Shape

EFFICIENCY: Final = 0.4
"""Share of the peak that matrix products reach together with what is between them: assumed unless measured."""
LINK_EFFICIENCY: Final = 0.7
"""Share of the links' bandwidth that collectives reach: assumed unless measured."""
LATENCY_NS: Final = 10_000.0
"""Of one message between two ranks: assumed unless measured."""
BACKWARD_SHARE: Final = 2 / 3
"""Of the compute of a step without recomputation: two of its three matrix products per weight."""


_RING: Final = "latency x depth of a tree + ring bytes / bandwidth"
_PIPELINE: Final = "Narayanan et al. (2021), section 2.2"


class Rates(Struct, frozen=True, kw_only=True):
    """What a plan assumes, or has from an analysed run."""

    efficiency: float = EFFICIENCY
    link_efficiency: float = LINK_EFFICIENCY
    latency_ns: float = LATENCY_NS
    bytes_per_s: float | None = None
    """Bandwidth that was measured, in place of links and their efficiency."""
    sources: tuple[str, ...] = ()


class Timed(Struct, frozen=True, kw_only=True):
    """A step's time with its parts."""

    traffic: list[Traffic]
    step: StepEstimate | None
    terms: list[PlanTerm]


def time_step(
    stage: Stage, device: PlannedDevice | None, rates: Rates, *, messages: Sequence[Message], tokens: float
) -> Timed:
    """Return the time of one step of `tokens` tokens over all ranks; without a device only the traffic."""
    shape, layout = stage.shape, stage.layout
    if device is None or device.flops_per_s is None:
        return Timed(traffic=[_traffic(one, layout, device, None, None) for one in messages], step=None, terms=[])
    flops = shape.flops_per_token * tokens / layout.ranks
    per_s = device.flops_per_s * rates.efficiency
    compute, recompute = flops / per_s * 1e9, _recomputed(shape, layout, tokens) / per_s * 1e9
    times = [_message_ns(one, layout, device, rates) for one in messages]
    exposed = _exposed(messages, times, compute)
    inside = sum(own for one, own in zip(messages, exposed, strict=True) if one.dimension in ("tp", "pp"))
    bubble = (compute + recompute + inside) * (layout.pp - 1) / layout.micro_batches if layout.pp > 1 else 0.0
    update = _update_ns(state_of(stage), device)
    step = compute + recompute + sum(exposed) + bubble + update
    estimate = StepEstimate(
        compute_ns=compute,
        recompute_ns=recompute,
        communication_ns=sum(times),
        exposed_ns=sum(exposed),
        bubble_ns=bubble,
        optimizer_ns=update,
        step_ns=step,
        tokens_per_s=tokens / step * 1e9,
        mfu=flops / (step / 1e9) / device.flops_per_s,
    )
    traffic = [
        _traffic(one, layout, device, time, own) for one, time, own in zip(messages, times, exposed, strict=True)
    ]
    return Timed(traffic=traffic, step=estimate, terms=_terms(estimate, layout, flops, per_s))


def _recomputed(shape: Shape, layout: Layout, tokens: float) -> float:
    """Return FLOP per rank of computing again: a third of the step's of the layers, or the attention's scores."""
    if layout.checkpointing == "none" or shape.layers is None or shape.width is None or shape.sequence is None:
        return 0.0
    attention = 4.0 * shape.layers * shape.width * shape.sequence
    in_layers = shape.computed(tensor for tensor in shape.tensors if tensor.layer is not None)
    forward = attention if layout.checkpointing == "selective" else 2.0 * in_layers + attention
    return forward * tokens / layout.ranks


def _message_ns(message: Message, layout: Layout, device: PlannedDevice, rates: Rates) -> float:
    """Return the time of messages one after another: latency along a tree, bytes around a ring."""
    bandwidth = rates.bytes_per_s or bandwidth_of(message.dimension, layout, device) * rates.link_efficiency
    depth = 1 if message.operator == "send_recv" else hops(message.ranks)
    return message.number * rates.latency_ns * depth + message.sent_bytes / bandwidth * 1e9


def bandwidth_of(dimension: str, layout: Layout, device: PlannedDevice) -> float:
    """Return the bandwidth of a dimension's groups.

    Across hosts, the members of a group that are on one host use all of their shares of its network: a ring enters and
    leaves each host once, and there are as many rings as adapters (NCCL's documentation of `busbw`).
    """
    network = device.network_bytes_per_s or device.host_bytes_per_s or 0.0
    host = device.host_bytes_per_s or network
    if not across_hosts(dimension, layout, device):
        return host
    stride, ranks = _place(dimension, layout)
    return min(host, network * min(ranks, max(1, device.devices_per_host // stride)))


def _place(dimension: str, layout: Layout) -> tuple[int, int]:
    """Return the distance of neighbours in a dimension, in ranks, and its size."""
    places = {
        "tp": (1, layout.tp),
        "shard": (layout.tp, layout.shard),
        "dp": (layout.tp * layout.ep * layout.cp, layout.shard),
        "cp": (layout.tp, layout.cp),
        "dp+cp": (layout.tp, layout.shard * layout.cp),
        "ep": (layout.tp, layout.ep),
        "dp+ep": (layout.tp, layout.shard * layout.ep),
        "replicate": (layout.tp * layout.shard, layout.replicate),
        "host": (1, layout.hpz),
        "hosts": (layout.hpz, layout.shard // layout.hpz),
    }
    return places.get(dimension, (layout.tp * layout.replicas, layout.pp))


def across_hosts(dimension: str, layout: Layout, device: PlannedDevice | None) -> bool:
    """Return whether the groups of a dimension have members on several hosts: ranks fill one host after another."""
    if device is None:
        return False
    stride, ranks = _place(dimension, layout)
    return stride * ranks > device.devices_per_host


def _exposed(messages: Sequence[Message], times: Sequence[float], compute: float) -> list[float]:
    """Return what does not overlap: what no pass can hide, and of the rest what is longer than the pass's compute.

    Gradients are reduced beside the backward pass, all but the last message; parameters are gathered beside the pass
    that needs them, all but the first. Everything beside one pass shares the links.
    """
    shares = [one.hidden for one in messages]
    exposed = [time * (1 - sum(own)) for time, own in zip(times, shares, strict=True)]
    for number, room in enumerate((1 - BACKWARD_SHARE, BACKWARD_SHARE)):
        inside = [time * own[number] for time, own in zip(times, shares, strict=True)]
        total = sum(inside)
        if not total:
            continue
        single = max(time / one.number for time, one, own in zip(times, messages, shares, strict=True) if own[number])
        left = min(total, max(single, total - room * compute))
        exposed = [before + left * own / total for before, own in zip(exposed, inside, strict=True)]
    return exposed


def _update_ns(state: State, device: PlannedDevice) -> float:
    """Return the time of the optimizer: it reads all of its state, and writes all but the gradients."""
    if not device.bandwidth_bytes_per_s:
        return 0.0
    moved = 2 * (state.parameters_bytes + state.optimizer_bytes) + state.gradients_bytes
    return moved / device.bandwidth_bytes_per_s * 1e9


def _traffic(
    message: Message, layout: Layout, device: PlannedDevice | None, time: float | None, exposed: float | None
) -> Traffic:
    return Traffic(
        dimension=message.dimension,
        operator=message.operator,
        group_size=message.ranks,
        messages=message.number,
        bytes=message.bytes,
        sent_bytes=message.sent_bytes,
        across_hosts=across_hosts(message.dimension, layout, device),
        time_ns=time,
        exposed_ns=exposed,
    )


def _terms(step: StepEstimate, layout: Layout, flops: float, per_s: float) -> list[PlanTerm]:
    rows = [
        ("compute", step.compute_ns, f"{flops:.4g} FLOP / {per_s:.4g} FLOP/s", "metrics.md section 8"),
        ("computed again", step.recompute_ns, "2 N + 4 L H Q T per token", "Korthikanti et al. (2022), section 5"),
        ("exposed communication", step.exposed_ns, _RING, "metrics.md section 5"),
        ("bubble", step.bubble_ns, f"(p - 1) / m = {layout.pp - 1} / {layout.micro_batches}", _PIPELINE),
        ("optimizer", step.optimizer_ns, "bytes of its state, read and written / memory bandwidth", "device table"),
    ]
    return [
        PlanTerm(part="time", name=name, value=value, unit="ns", formula=formula, source=source)
        for name, value, formula, source in rows
        if value
    ]
