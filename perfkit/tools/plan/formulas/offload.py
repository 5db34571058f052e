"""Memory of a rank, and of its host, where DeepSpeed keeps training state outside of the device.

ZeRO-Offload: Ren et al., "ZeRO-Offload: Democratizing Billion-Scale Model Training" (2021), section 4: parameters in 16
bits stay on the device, gradients leave it as they are made, and the host updates the optimizer's state.
ZeRO-Infinity: Rajbhandari et al., "ZeRO-Infinity: Breaking the GPU Memory Wall for Extreme Scale Deep Learning" (2021):
parameters leave too, to the host's memory or its NVMe; section 5.1.3: a large matrix is computed in tiles.

Bytes per parameter outside of the device, and the factor for the host's buffers, are those of DeepSpeed's
`estimate_zero2_model_states_mem_needs` and `estimate_zero3_model_states_mem_needs`: of ZeRO-3 with parameters that are
made where they stay (`zero.Init`), of ZeRO-2 for the ranks of one host. What is gathered and reduced at one time is
limited by the defaults of its configuration.
"""

from typing import Final

from perfkit.records.plan import MemoryNeed, PlanTerm
from perfkit.tools.plan.formulas.activations import SOURCE as ACTIVATIONS_SOURCE
from perfkit.tools.plan.formulas.activations import activations_of
from perfkit.tools.plan.formulas.memory import Need
from perfkit.tools.plan.formulas.stage import Stage
from perfkit.tools.plan.shape import Shape

BUFFER_FACTOR: Final = 1.5
"""DeepSpeed's `additional_buffer_factor`."""
OPTIMIZER_BYTES: Final = 16
"""Per parameter in the host: a float32 copy, two moments, and gradients in float32."""
_INITIAL_BYTES: Final = 4
"""Per parameter and rank before the first step: ZeRO-2 has no `zero.Init`, so each rank makes the whole model."""
ALL_BYTES: Final = 18
"""The same with the parameter in 16 bits."""
MOST_LIVE: Final = 1_000_000_000
"""Gathered parameters at one time: `stage3_max_live_parameters`."""
BUCKET: Final = 500_000_000
"""Gradients that are reduced together: `reduce_bucket_size`."""
_SOURCE: Final = "DeepSpeed's estimate_zero{}_model_states_mem_needs"
_DEFAULTS: Final = "DeepSpeed's defaults of stage3_max_live_parameters and reduce_bucket_size"


def largest_matrix(shape: Shape, tiles: int = 1) -> int:
    """Return the entries of the largest matrix that is gathered as one, those of layers in tiles."""
    width = shape.width or 0
    of_layer = (shape.hidden or 4 * width) * width
    inner = max((min(one.count, of_layer or one.count) for one in shape.tensors if one.layer is not None), default=0)
    return max(-(-inner // tiles), max((one.count for one in shape.tensors if one.layer is None), default=0))


def offloaded_memory(stage: Stage, *, reserve: float, per_host: int) -> Need:
    """Return the memory of a rank on its device, and of its host.

    Args:
        stage: All of a model, in a layout that offloads, in 16 bits with a float32 copy.
        reserve: Allocator overhead, as a share of the peak.
        per_host: Ranks of a host at most.
    """
    layout, entries, bytes_of = stage.layout, stage.entries, stage.precision.parameter
    largest = min(entries, largest_matrix(stage.shape, layout.tiles))
    is_sharded, keeps = layout.dp == "zero3", layout.offload == "optimizer"
    parameters = bytes_of * (-(-entries // layout.sharing) if is_sharded else entries) if keeps else 0
    gathered = bytes_of * max(largest, min(entries, MOST_LIVE)) if is_sharded else 0
    reduced = bytes_of * (min(entries, BUCKET) + (largest if is_sharded else 0))
    kept = activations_of(stage)
    layers = kept.layers_bytes if kept else 0
    loss = kept.ends_bytes + kept.loss_bytes if kept else 0
    one = kept.recomputed_bytes + kept.backward_bytes if kept else 0
    moments = {
        "end of forward": parameters + gathered + layers + loss,
        "begin of backward": parameters + gathered + reduced + layers + one,
    }
    when = max(moments, key=lambda moment: moments[moment])
    hosts = -(-layout.ranks // per_host)
    outside = (OPTIMIZER_BYTES if keeps else ALL_BYTES) * entries // hosts
    if not is_sharded:
        outside = max(outside, _INITIAL_BYTES * entries * min(layout.ranks, per_host))
    on_nvme = layout.offload == "nvme"
    memory = MemoryNeed(
        parameters_bytes=parameters,
        gradients_bytes=0,
        optimizer_bytes=0,
        activations_bytes=layers + max(loss, one) if kept else None,
        buffers_bytes=gathered + reduced,
        peak_bytes=moments[when],
        peak_at=when,  # type: ignore[arg-type]
        reserve_bytes=round(reserve * moments[when]),
        host_bytes=0 if on_nvme else round(BUFFER_FACTOR * outside),
        nvme_bytes=outside if on_nvme else 0,
    )
    return Need(memory=memory, terms=_terms(stage, memory, hosts=hosts))


def _terms(stage: Stage, memory: MemoryNeed, *, hosts: int) -> list[PlanTerm]:
    layout, entries = stage.layout, stage.entries
    psi, source = f"Psi = {entries:,}", _SOURCE.format(3 if layout.dp == "zero3" else 2)
    each = OPTIMIZER_BYTES if layout.offload == "optimizer" else ALL_BYTES
    share = " / N" if layout.dp == "zero3" else ""
    outside = f"{each} Psi / {hosts} hosts"
    if layout.dp != "zero3":
        outside = f"max({outside}, {_INITIAL_BYTES} Psi x ranks of a host)"
    tiles = f", in {layout.tiles} tiles" if layout.tiles > 1 else ""
    rows = [
        ("parameters", "parameters", memory.parameters_bytes, f"2 Psi{share} ({psi})", source),
        ("buffers", "gathered and reduced", memory.buffers_bytes, f"1e9 live, 5e8 and a matrix{tiles}", _DEFAULTS),
        ("activations", "activations", memory.activations_bytes or 0, "as without offloading", ACTIVATIONS_SOURCE),
        ("host", "host memory", memory.host_bytes, f"{BUFFER_FACTOR} x {outside}", source),
        ("host", "NVMe of a host", memory.nvme_bytes, f"{each} Psi / {hosts} hosts", source),
    ]
    return [
        PlanTerm(part=part, name=name, value=value, unit="B", formula=formula, source=where)
        for part, name, value, formula, where in rows
        if value
    ]
