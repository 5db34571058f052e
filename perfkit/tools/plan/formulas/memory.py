"""Memory of the rank that needs most: its state, activations and buffers, and their peak."""

from typing import Final

from msgspec import Struct

from perfkit.records.plan import MemoryNeed, PlanTerm
from perfkit.tools.plan.formulas.activations import EXPERTS_SOURCE, RING_SOURCE, SOURCE, Activations, activations_of
from perfkit.tools.plan.formulas.stage import FORMULAS, Stage, State, count, state_of
from perfkit.tools.plan.layout import Layout
from perfkit.tools.plan.precision import FLOAT32_BYTES, Precision
from perfkit.tools.plan.shape import Shape

_FSDP: Final = "metrics.md section 11: a layer computes while the next is gathered"
_LOSS: Final = "torch's cross_entropy, in float32"
_HPZ: Final = "Wang et al., 'ZeRO++' (2023), section 3.2: a second partition in each host"
_DDP: Final = "torch DistributedDataParallel: gradients are copied to buckets of their size"


class Need(Struct, frozen=True, kw_only=True):
    """Memory of one stage, and the terms that it is made of."""

    memory: MemoryNeed
    terms: list[PlanTerm]


class _Parts(Struct, frozen=True, kw_only=True):
    """What one stage holds, by when it holds it."""

    stage: Stage
    state: State
    activations: Activations | None
    casts_bytes: int
    """16-bit copies of matrices that autocast keeps for backward; parameters that are gathered come in 16 bits."""
    buckets_bytes: int
    copy_bytes: int
    """Parameters that ZeRO++ divides between the ranks of a host, besides those that all ranks divide."""
    forward_bytes: int
    """Gathered parameters at the end of forward, and gradients that earlier micro-batches leave unreduced."""
    backward_bytes: int
    """Gathered parameters, and gradients that are not reduced yet, while a layer's backward pass runs."""
    reduced_bytes: int | None
    """Copy of a layer's gradients that are reduced after all backward passes; None if they are reduced in them."""
    unstacked_bytes: int
    """Gradients of each expert of a layer, once more, while backward stacks them to one tensor."""
    head_gradient_bytes: int
    """Gradient of the head, the first that backward makes."""
    outputs_bytes: int
    """Outputs of micro-batches, which a pipeline keeps until the end of the step."""


def memory_of(shape: Shape, layout: Layout, precision: Precision, samples: int, *, fused: bool, reserve: float) -> Need:
    """Return the memory of the stage of the pipeline that needs most."""
    stages = [_parts(Stage(shape, layout, precision, index, samples, fused)) for index in range(layout.pp)]
    needs = [(_need(parts, reserve), parts) for parts in stages]
    memory, parts = max(needs, key=lambda need: need[0].peak_bytes)
    return Need(memory=memory, terms=_terms(parts, memory))


def _parts(stage: Stage) -> _Parts:
    layout, precision, entries = stage.layout, stage.precision, stage.entries
    of_layers: dict[int, int] = {}
    for tensor in stage.tensors:
        if tensor.layer is not None:
            of_layers[tensor.layer] = of_layers.get(tensor.layer, 0) + tensor.count
    largest, rest = max(of_layers.values(), default=0), entries - sum(of_layers.values())
    sharded = stage.gathers and stage.shape.layers is not None  # else nothing is known of what is gathered at one time
    # torch's pipelines free gathered parameters, and reduce gradients, after all backward passes.
    keeps_all = sharded and layout.pp > 1
    left = 4 * entries if keeps_all and layout.micro_batches > 1 else 0
    # A layer's gradients, and their copy for the collective.
    unreduced = 4 * (entries if keeps_all else 2 * largest) if sharded else 0
    # torch's ZeRO-2 gathers all parameters for the step; with a float32 copy (DeepSpeed) each rank has them all.
    stays = layout.dp == "zero2" and precision.parameter == FLOAT32_BYTES
    has_all = layout.dp == "zero2" and not stays
    kept = entries if sharded and stays else 0
    needed = 0 if has_all else entries if keeps_all or stays else rest + min(2, len(of_layers)) * largest
    wrapped = layout.pp == 1 or layout.replicas > 1
    cast = [tensor for tensor in stage.tensors if tensor.decayed and tensor.end != "first"]
    if layout.checkpointing == "full":  # copies for one layer are made again with it
        cast = [tensor for tensor in cast if tensor.layer in (None, min(of_layers, default=None))]
    experts = max((tensor.count for tensor in stage.tensors if tensor.is_expert), default=0)
    head = max((tensor.count for tensor in stage.tensors if tensor.end in ("tied", "last")), default=0)
    return _Parts(
        stage=stage,
        state=state_of(stage),
        activations=activations_of(stage),
        casts_bytes=precision.activation * count(cast) if precision.casts and not sharded else 0,
        buckets_bytes=4 * count(stage.in_buckets) if precision.parameter == 4 and not sharded and wrapped else 0,
        copy_bytes=precision.gathered * -(-entries // layout.hpz) if layout.hpz > 1 else 0,
        forward_bytes=precision.gathered * kept + left,
        backward_bytes=(precision.gathered * needed if sharded else 0) + unreduced,
        reduced_bytes=4 * largest if keeps_all else None,
        unstacked_bytes=0 if sharded else precision.gradient * experts,
        head_gradient_bytes=0 if sharded else precision.gradient * head,
        outputs_bytes=_outputs(stage),
    )


def _outputs(stage: Stage) -> int:
    """Return what a pipeline keeps of the outputs of all but the current micro-batch.

    torch keeps them; Megatron-LM, whose pipelines are those with parameters in 16 bits, frees them once they are sent
    (`deallocate_pipeline_outputs`).
    """
    layout, last = stage.layout, stage.is_last
    if layout.pp == 1 or not stage.width or stage.precision.parameter < FLOAT32_BYTES:
        return 0
    numbers = (stage.shape.vocabulary or 0) if last else stage.width // layout.between
    return stage.tokens * numbers * (stage.precision.activation if last else stage.stream_bytes) * layout.micro_batches


def _need(parts: _Parts, reserve: float) -> MemoryNeed:
    state, kept = parts.state, parts.activations
    always = parts.buckets_bytes + parts.copy_bytes
    held = state.parameters_bytes + state.optimizer_bytes + always
    gradients = state.gradients_bytes
    layers = kept.layers_bytes + parts.casts_bytes + parts.outputs_bytes if kept else 0
    loss = kept.ends_bytes + kept.loss_bytes if kept else 0
    one = kept.recomputed_bytes + kept.backward_bytes if kept else 0
    early = (
        gradients if parts.stage.layout.pp > 1 and parts.reduced_bytes is None else 0
    )  # those of earlier micro-batches
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
        buffers_bytes=always + max(parts.forward_bytes, parts.backward_bytes + parts.unstacked_bytes),
        peak_bytes=peak,
        peak_at=when,  # type: ignore[arg-type]
        reserve_bytes=round(reserve * peak),
    )


def _terms(parts: _Parts, memory: MemoryNeed) -> list[PlanTerm]:
    """Return every term with its formula, of the stage that needs most."""
    stage, precision, layout = parts.stage, parts.stage.precision, parts.stage.layout
    # torch's ZeRO-2 also divides the parameters between passes.
    like_zero3 = layout.dp in ("hsdp", "zero++") or (layout.dp == "zero2" and precision.parameter == 4)
    formulas = FORMULAS["zero3" if like_zero3 else layout.dp]
    bytes_of = {"p": precision.parameter, "g": precision.gradient, "k": precision.optimizer}
    held = (memory.parameters_bytes, memory.gradients_bytes, memory.optimizer_bytes)
    names = (("parameters", "parameters"), ("gradients", "gradients"), ("optimizer", "optimizer state"))
    terms = []
    for (part, name), value, formula in zip(names, held, formulas, strict=True):
        numbers = f"Psi = {stage.entries:,}" + (f", N = {layout.sharing}" if "N" in formula else "")
        written = f"{bytes_of[formula[0]]}{formula[1:]} ({numbers})"
        terms.append(_term(part, name, value, written, precision.source))
    terms += [_term("buffers", *row) for row in _buffer_terms(parts) if row[1]]
    return terms + [_term("activations", *row) for row in _activation_terms(parts) if row[1]]


_Row = tuple[str, int, str, str]
"""Name, bytes, formula and source of a term."""


def _term(part: str, name: str, value: int, formula: str, source: str) -> PlanTerm:
    return PlanTerm(part=part, name=name, value=value, unit="B", formula=formula, source=source)


def _buffer_terms(parts: _Parts) -> list[_Row]:
    layout = parts.stage.layout
    in_16_bits = parts.stage.precision.parameter < FLOAT32_BYTES
    stays = ["all that stay gathered"] if layout.dp == "zero2" else []
    left = ["all gradients"] if parts.reduced_bytes is not None and layout.micro_batches > 1 else []
    gathered = {"zero2": "" if in_16_bits else "all; "}.get(layout.dp, "2 layers and the rest; ")
    backward = f"{gathered}a layer's gradients twice"
    if parts.reduced_bytes is not None:
        backward = "all, and all gradients"
    return [
        ("parameters, once more in each host", parts.copy_bytes, f"2 Psi / {layout.hpz}", _HPZ),
        ("DDP's buckets", parts.buckets_bytes, "4 Psi", _DDP),
        ("gathered and unreduced, end of forward", parts.forward_bytes, ", and ".join([*stays, *left]), _FSDP),
        ("gathered and unreduced, backward", parts.backward_bytes, backward, _FSDP),
        ("gradients of each expert", parts.unstacked_bytes, "one matrix of a layer's experts", EXPERTS_SOURCE),
        ("outputs of micro-batches", parts.outputs_bytes, "kept until the end of the step", "torch PipelineStage"),
    ]


def _activation_terms(parts: _Parts) -> list[_Row]:
    kept, layout = parts.activations, parts.stage.layout
    if kept is None:
        return []
    tokens = f"tokens / {layout.cp}" if layout.cp > 1 else "tokens"
    stored = f"layers x {tokens} x {_widths(parts.stage)} x bytes, + statistics"
    if layout.checkpointing == "full":
        stored = f"layers x {tokens} x width x bytes of the residual"
    backward, source = _backward_words(parts.stage, is_ring=kept.backward_is_ring)
    return [
        ("stored by the layers", kept.layers_bytes, stored, SOURCE),
        ("computed again in one layer", kept.recomputed_bytes, "one layer without checkpointing", SOURCE),
        ("16-bit copies of matrices", parts.casts_bytes, "2 Psi of matrices", "torch.autocast keeps them for backward"),
        ("norm, ids and log-softmax", kept.ends_bytes, f"{tokens} x (16 + 2 width + 4 V)", _LOSS),
        ("gradient of the loss", kept.loss_bytes, f"2 x 4 x {tokens} x V", _LOSS),
        ("gradients of activations", kept.backward_bytes, backward, source),
    ]


def _widths(stage: Stage) -> str:
    if stage.shape.experts:
        return f"({12 if stage.layout.ep > 1 else 11} top_k width + 8 width)"
    hidden = f"{4 if stage.shape.gated else 2} x {stage.hidden:,}"
    inner = "12 width" if stage.shape.hidden is None else f"({2 + 2 * stage.shape.grouping:g} width + {hidden})"
    if stage.layout.sequence_parallel:
        inner = "14 width" if stage.shape.hidden is None else f"(2 width + {inner})"
        return f"(2 width + {inner} / tp)"
    return f"(4 width + {inner} / tp)"


def _backward_words(stage: Stage, *, is_ring: bool) -> tuple[str, str]:
    """Return formula and source of what a layer's backward pass holds for a while."""
    if is_ring:
        return "12 x heads x (T / cp)^2 x samples, and the ring's buffers", RING_SOURCE
    experts = stage.shape.experts
    if experts:
        return f"tokens x (1 + top_k + 4 top_k x {stage.layout.ep} / {experts}) width x bytes", EXPERTS_SOURCE
    inner = "5 width" if stage.shape.hidden is None else f"(width + {2 if stage.shape.gated else 1} x {stage.hidden:,})"
    return f"tokens x {inner} x bytes", "one MLP's backward pass"
