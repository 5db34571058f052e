"""Memory of the rank that needs most: its state, activations and buffers, and their peak."""

from typing import Final

from msgspec import Struct

from perfkit.records.plan import MemoryNeed, PlanTerm
from perfkit.tools.plan.formulas.activations import SOURCE, Activations, activations_of, cast_bytes
from perfkit.tools.plan.formulas.context_and_experts import EXPERTS_SOURCE, RING_SOURCE, unstacked_bytes
from perfkit.tools.plan.formulas.state import FORMULAS, State, gathers, local_tensors, state_of, stream_bytes
from perfkit.tools.plan.layout import Layout
from perfkit.tools.plan.precision import Precision
from perfkit.tools.plan.shape import Shape, Tensor

_FSDP: Final = "metrics.md section 11: a layer computes while the next is gathered"
_LOSS: Final = "torch's cross_entropy, in float32"
_DDP: Final = "torch DistributedDataParallel: gradients are copied to buckets of their size"


class Need(Struct, frozen=True, kw_only=True):
    """Memory of one stage, and the terms that it is made of."""

    memory: MemoryNeed
    terms: list[PlanTerm]


class _Parts(Struct, frozen=True, kw_only=True):
    """What one stage holds, by when it holds it."""

    state: State
    activations: Activations | None
    casts_bytes: int
    buckets_bytes: int
    forward_bytes: int
    """Gathered parameters at the end of forward, and gradients that earlier micro-batches leave unreduced."""
    backward_bytes: int
    """Gathered parameters, and gradients that are not reduced yet, while a layer's backward pass runs."""
    reduced_bytes: int | None
    """Copy of a layer's gradients that are reduced after all backward passes; None if they are reduced in them."""
    unstacked_bytes: int
    """Gradients of experts, once more."""
    head_gradient_bytes: int
    """Gradient of the head, the first that backward makes."""
    outputs_bytes: int
    """Outputs of micro-batches, which a pipeline keeps until the end of the step."""


def memory_of(shape: Shape, layout: Layout, precision: Precision, samples: int, *, fused: bool, reserve: float) -> Need:
    """Return the memory of the stage of the pipeline that needs most."""
    stages = [_parts(shape, layout, precision, samples, stage, fused=fused) for stage in range(layout.pp)]
    needs = [(_need(parts, layout, reserve), parts) for parts in stages]
    memory, parts = max(needs, key=lambda need: need[0].peak_bytes)
    return Need(memory=memory, terms=_terms(shape, parts, layout, precision, memory))


def _parts(shape: Shape, layout: Layout, precision: Precision, samples: int, stage: int, *, fused: bool) -> _Parts:
    state = state_of(shape, layout, precision, stage)
    tensors = local_tensors(shape, layout, stage)
    of_layers = _by_layer(tensors)
    largest, rest = max(of_layers.values(), default=0), state.entries - sum(of_layers.values())
    sharded = gathers(layout) and shape.layers is not None  # else nothing is known of what is gathered at one time
    # torch's pipelines free gathered parameters, and reduce gradients, after all backward passes.
    keeps_all = sharded and layout.pp > 1
    left = 4 * state.entries if keeps_all and layout.micro_batches > 1 else 0
    # A layer's gradients, and their copy for the collective.
    unreduced = 4 * (state.entries if keeps_all else 2 * largest) if sharded else 0
    kept = {"zero2": state.entries}.get(layout.dp, 0) if sharded else 0
    needed = state.entries if keeps_all or layout.dp == "zero2" else rest + min(2, len(of_layers)) * largest
    working = needed if sharded else 0
    wrapped = layout.pp == 1 or layout.replicas > 1
    in_buckets = sum(tensor.count for tensor in tensors if not (tensor.is_expert and layout.ep > 1))
    cast = [tensor for tensor in tensors if tensor.decayed and tensor.end != "first"]
    if layout.checkpointing == "full":  # copies for one layer are made again with it
        cast = [tensor for tensor in cast if tensor.layer in (None, min(of_layers, default=None))]
    return _Parts(
        state=state,
        activations=activations_of(shape, layout, precision, samples, stage, fused=fused),
        casts_bytes=cast_bytes(sum(tensor.count for tensor in cast), precision, gathered=sharded),
        buckets_bytes=4 * in_buckets if precision.parameter == 4 and not sharded and wrapped else 0,
        forward_bytes=precision.gathered * kept + left,
        backward_bytes=precision.gathered * working + unreduced,
        reduced_bytes=4 * largest if keeps_all else None,
        unstacked_bytes=0 if sharded else unstacked_bytes(tensors, precision),
        head_gradient_bytes=0 if sharded else precision.gradient * sum(t.count for t in tensors if t.end == "tied"),
        outputs_bytes=_outputs(shape, layout, precision, samples, stage),
    )


def _by_layer(tensors: list[Tensor]) -> dict[int, int]:
    found: dict[int, int] = {}
    for tensor in tensors:
        if tensor.layer is not None:
            found[tensor.layer] = found.get(tensor.layer, 0) + tensor.count
    return found


def _outputs(shape: Shape, layout: Layout, precision: Precision, samples: int, stage: int) -> int:
    """Return what a pipeline keeps of the outputs of all but the current micro-batch."""
    if layout.pp == 1 or shape.width is None or shape.sequence is None:
        return 0
    last = stage == layout.pp - 1
    numbers = (shape.vocabulary or 0) if last else shape.width // layout.between
    return (
        samples
        * shape.sequence
        * numbers
        * (precision.activation if last else stream_bytes(layout, precision))
        * layout.micro_batches
    )


def _need(parts: _Parts, layout: Layout, reserve: float) -> MemoryNeed:
    state, kept = parts.state, parts.activations
    held = state.parameters_bytes + state.optimizer_bytes + parts.buckets_bytes
    gradients = state.gradients_bytes
    layers = kept.layers_bytes + parts.casts_bytes + parts.outputs_bytes if kept else 0
    loss = kept.ends_bytes + kept.loss_bytes if kept else 0
    one = kept.recomputed_bytes + kept.backward_bytes if kept else 0
    early = gradients if layout.pp > 1 and parts.reduced_bytes is None else 0  # those of earlier micro-batches
    late = gradients if parts.reduced_bytes is None else parts.reduced_bytes
    moments = {
        "end of forward": held + early + layers + loss + parts.forward_bytes,
        "begin of backward": held + early + layers + one + parts.backward_bytes + parts.head_gradient_bytes,
        "end of backward": held + late + parts.outputs_bytes + one + parts.backward_bytes + parts.unstacked_bytes,
        "optimizer": held + gradients,
    }
    when = max(moments, key=lambda moment: moments[moment])
    peak = moments[when]
    return MemoryNeed(
        parameters_bytes=state.parameters_bytes,
        gradients_bytes=gradients,
        optimizer_bytes=state.optimizer_bytes,
        activations_bytes=layers + max(loss, one) if kept else None,
        buffers_bytes=parts.buckets_bytes + max(parts.forward_bytes, parts.backward_bytes + parts.unstacked_bytes),
        peak_bytes=peak,
        peak_at=when,  # type: ignore[arg-type]
        reserve_bytes=round(reserve * peak),
    )


def _terms(shape: Shape, parts: _Parts, layout: Layout, precision: Precision, memory: MemoryNeed) -> list[PlanTerm]:
    """Return every term with its formula, of the stage that needs most."""
    stage = "zero3" if layout.dp == "hsdp" else layout.dp
    made = [
        ("parameters", "parameters", memory.parameters_bytes, precision.source),
        ("gradients", "gradients", memory.gradients_bytes, precision.source),
        ("optimizer", "optimizer state", memory.optimizer_bytes, precision.source),
    ]
    values = {"p": precision.parameter, "g": precision.gradient, "k": precision.optimizer}
    terms = [
        _term(part, name, value, _written(formula, values, parts.state.entries, layout), source)
        for (part, name, value, source), formula in zip(made, _stage_formulas(stage, precision), strict=True)
    ]
    return [*terms, *_buffer_terms(parts, layout), *_activation_terms(shape, parts, layout)]


def _stage_formulas(stage: str, precision: Precision) -> tuple[str, str, str]:
    """Return the formulas of P, G and O; torch's ZeRO-2 also divides the parameters between passes."""
    return FORMULAS["zero3" if stage == "zero2" and precision.parameter == 4 else stage]


def _written(formula: str, values: dict[str, int], entries: int, layout: Layout) -> str:
    factor, rest = formula[0], formula[1:]
    numbers = f"Psi = {entries:,}" + (f", N = {layout.sharing}" if "N" in formula else "")
    return f"{values[factor]}{rest} ({numbers})"


def _term(part: str, name: str, value: int, formula: str, source: str) -> PlanTerm:
    return PlanTerm(part=part, name=name, value=value, unit="B", formula=formula, source=source)


def _buffer_terms(parts: _Parts, layout: Layout) -> list[PlanTerm]:
    made = [
        ("DDP's buckets", parts.buckets_bytes, "4 Psi", _DDP),
        ("gathered and unreduced, end of forward", parts.forward_bytes, _forward_buffers(parts, layout), _FSDP),
        ("gathered and unreduced, backward", parts.backward_bytes, _backward_buffers(parts, layout), _FSDP),
        ("gradients of each expert", parts.unstacked_bytes, "one matrix of a layer's experts", EXPERTS_SOURCE),
        ("outputs of micro-batches", parts.outputs_bytes, "kept until the end of the step", "torch PipelineStage"),
    ]
    return [_term("buffers", name, value, formula, source) for name, value, formula, source in made if value]


def _forward_buffers(parts: _Parts, layout: Layout) -> str:
    kept = ["all that stay gathered"] if layout.dp == "zero2" else []
    left = ["all gradients"] if parts.reduced_bytes is not None and layout.micro_batches > 1 else []
    return ", and ".join([*kept, *left])


def _backward_buffers(parts: _Parts, layout: Layout) -> str:
    if parts.reduced_bytes is not None:
        return "all, and all gradients"
    return ("all" if layout.dp == "zero2" else "2 layers and the rest") + "; a layer's gradients twice"


def _widths(shape: Shape, layout: Layout) -> str:
    if shape.experts:
        return f"({12 if layout.ep > 1 else 11} top_k width + 8 width)"
    return "(2 width + 14 width / tp)" if layout.sequence_parallel else "(4 width + 12 width / tp)"


def _backward_words(shape: Shape, layout: Layout, *, is_ring: bool) -> tuple[str, str]:
    """Return formula and source of what a layer's backward pass holds for a while."""
    if is_ring:
        return "12 x heads x (T / cp)^2 x samples, and the ring's buffers", RING_SOURCE
    if shape.experts:
        return f"tokens x (1 + top_k + 4 top_k x {layout.ep} / {shape.experts}) width x bytes", EXPERTS_SOURCE
    return "tokens x 5 width x bytes", "one MLP's backward pass"


def _activation_terms(shape: Shape, parts: _Parts, layout: Layout) -> list[PlanTerm]:
    kept = parts.activations
    if kept is None:
        return []
    tokens = f"tokens / {layout.cp}" if layout.cp > 1 else "tokens"
    whole = (
        f"layers x {tokens} x width x bytes of the residual"
        if layout.checkpointing == "full"
        else f"layers x {tokens} x {_widths(shape, layout)} x bytes, + statistics"
    )
    backward = _backward_words(shape, layout, is_ring=kept.backward_is_ring)
    made = [
        ("stored by the layers", kept.layers_bytes, whole, SOURCE),
        ("computed again in one layer", kept.recomputed_bytes, "one layer without checkpointing", SOURCE),
        ("16-bit copies of matrices", parts.casts_bytes, "2 Psi of matrices", "torch.autocast keeps them for backward"),
        (
            "norm, ids and log-softmax",
            kept.ends_bytes,
            f"{tokens} x (16 + 2 width + 4 V)",
            _LOSS,
        ),
        ("gradient of the loss", kept.loss_bytes, f"2 x 4 x {tokens} x V", _LOSS),
        (
            "gradients of activations",
            kept.backward_bytes,
            *backward,
        ),
    ]
    return [_term("activations", name, value, formula, source) for name, value, formula, source in made if value]
