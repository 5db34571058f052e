"""Insight rules on how well operators use the device: their type, their shapes, and passes over memory."""

from collections.abc import Sequence
from typing import Final

from perfkit.insights.call_sites import most_of_it_in
from perfkit.insights.dimension_advice import is_whole_model
from perfkit.insights.rule import InsightDraft, Rule
from perfkit.insights.run_context import RunContext
from perfkit.schema.per_rank.operator_work import MATRIX_KINDS
from perfkit.schema.roofline import DevicePeaks, Roofline, RooflineRow
from perfkit.util.formatting import duration, escape_unprintable, whole_percent

_MIN_SHARE: Final = 0.05
"""Smallest share of the step that is reported."""
_MIN_PASSES_SHARE: Final = 0.1
"""The same for element-wise operators, of which every model has some."""
_FASTER: Final = 2.0
"""How many times as fast another type must be at its peak."""
_MIN_CALLS: Final = 10
"""Calls per step from which fusing makes sense."""
_MOST: Final = 0.5
"""Share of copies from which the advice is about them: fusing spares no conversion that the program asks for."""
_COPY_LESS: Final = "copy and convert tensors less often (.to, .clone, .contiguous, .cpu): most of it is copies"
_FULL_SPEED: Final = 0.6
"""Share of the bound from which shapes are no obstacle."""
_ALIGNMENT: Final = 8
"""Elements of 16 bits to which tensor cores want sizes aligned: 16 bytes (NVIDIA, Matrix Multiplication Background)."""


def _float32_products(context: RunContext) -> InsightDraft | None:
    """Products in float32 where the device multiplies another type at least twice as fast."""
    roof = context.run.roofline
    if roof is None or roof.peaks is None:
        return None
    rows = [row for row in roof.rows if row.kind in MATRIX_KINDS and _is_plain_float32(row, roof.peaks)]
    types = _faster_types(roof.peaks)
    share, spent_ns = _share(rows, roof, context)
    if not types or share < _MIN_SHARE:
        return None
    fastest = max(types.values())
    least_ns = sum(_least_ns(row, fastest, roof.peaks) for row in rows) / roof.rank_steps
    name = "bfloat16" if types.get("bfloat16") == fastest else max(types, key=types.__getitem__)
    times = fastest / roof.peaks.tflops["float32"]
    saving_ns = _saving(spent_ns - least_ns, context)
    if saving_ns <= 0:
        return None
    return InsightDraft(
        f"matrix products in float32 take {whole_percent(share)} of the step ({duration(spent_ns)}); "
        f"{escape_unprintable(roof.peaks.name)} multiplies up to {times:.3g} times as fast in {name}",
        {"step_share": share, "products_ns": spent_ns, "faster": times},
        _other_type(types),
        saving_ns,
    )


def _is_plain_float32(row: RooflineRow, peaks: DevicePeaks) -> bool:
    """Return whether a row is in float32, and certainly not on tensor cores."""
    return row.dtype == "float32" and (row.tensor_cores is False or "tf32" not in peaks.tflops)


def _faster_types(peaks: DevicePeaks) -> dict[str, float]:
    """Return the types to train in that are faster than float32, with their TFLOP/s."""
    plain = peaks.tflops.get("float32")
    names = ("tf32", "bfloat16", "float16")
    return {} if plain is None else {n: peaks.tflops[n] for n in names if peaks.tflops.get(n, 0) >= _FASTER * plain}


def _other_type(types: dict[str, float]) -> str:
    half = next((name for name in ("bfloat16", "float16") if name in types), None)
    mixed = f"train in mixed precision (torch.autocast in {half}; --precision {half})"
    if "tf32" not in types:
        return mixed
    allow = "allow TF32: torch.set_float32_matmul_precision('high')"
    return f"{allow}; or {mixed}" if half else allow


def _least_ns(row: RooflineRow, tflops: float, peaks: DevicePeaks) -> float:
    """Return the least time of a row at another peak; half the bytes is the least that another type moves."""
    memory_ns = row.bytes / 2 / peaks.bytes_per_s * 1e9 if peaks.bytes_per_s else 0.0
    return max(row.flops / (tflops * 1e12) * 1e9, memory_ns)


def _passes_over_memory(context: RunContext) -> InsightDraft | None:
    """Element-wise operators that a compiler would join."""
    roof = context.run.roofline
    if roof is None or context.is_compiled or not is_whole_model(context):
        return None
    rows = [row for row in roof.rows if row.kind in ("elementwise", "copy")]
    share, spent_ns = _share(rows, roof, context)
    calls = sum(row.count for row in rows) / roof.rank_steps if roof.rank_steps else 0
    total_ns, moved = sum(row.total_ns for row in rows), sum(row.bytes for row in rows)
    copied_ns = sum(row.total_ns for row in rows if row.kind == "copy")
    copies = copied_ns >= _MOST * total_ns
    if share < _MIN_PASSES_SHARE or (calls < _MIN_CALLS and not copies):
        return None
    peak = roof.peaks.bytes_per_s if roof.peaks else None
    rate = f", at {whole_percent(moved / total_ns * 1e9 / peak)} of the memory's bandwidth" if peak else ""
    return InsightDraft(
        f"element-wise operators and copies take {whole_percent(share)} of the step ({duration(spent_ns)}, "
        f"{calls:,.0f} calls{rate}){most_of_it_in(context, total_ns)}",
        {"step_share": share, "passes_ns": spent_ns, "calls": calls},
        _COPY_LESS
        if copies
        else "fuse them, so that intermediate results do not pass through memory: "
        + ("use --compile" if context.option("compile") is False else "torch.compile, or fused modules"),
        _saving(spent_ns, context),
    )


def _unaligned_products(context: RunContext) -> InsightDraft | None:
    """Products in half precision whose sizes keep an NVIDIA GPU's tensor cores from their full speed."""
    roof = context.run.roofline
    if roof is None or roof.peaks is None or not roof.peaks.name.startswith(("NVIDIA ", "Tesla ")):
        return None
    rows = [row for row in roof.rows if row.kind == "gemm" and _is_unaligned(row) and (row.share or 1) < _FULL_SPEED]
    share, spent_ns = _share(rows, roof, context)
    if share < _MIN_SHARE:
        return None
    largest = max(rows, key=lambda row: row.total_ns)
    bound_ns = sum(row.bound_ns or 0 for row in rows) / roof.rank_steps
    return InsightDraft(
        f"matrix products in half precision with a size that is no multiple of {_ALIGNMENT} take "
        f"{whole_percent(share)} of the step ({duration(spent_ns)}), most of it {escape_unprintable(largest.operator)} "
        f"of {largest.shapes}, at {whole_percent(largest.share or 0)} of its bound",
        {"step_share": share, "products_ns": spent_ns},
        f"pad the sizes (vocabulary, width, classes) to multiples of {_ALIGNMENT}, or better 64",
        _saving(spent_ns - bound_ns, context),
    )


def _is_unaligned(row: RooflineRow) -> bool:
    if row.dtype not in ("float16", "bfloat16"):
        return False
    sizes = [part.strip().split("×")[-2:] for part in row.shapes.split(",")]
    return any(one.isdecimal() and int(one) % _ALIGNMENT for shape in sizes if len(shape) == 2 for one in shape)


def _share(rows: Sequence[RooflineRow], roof: Roofline, context: RunContext) -> tuple[float, float]:
    """Return the share of the step that rows take, and their mean time per step and rank (ns)."""
    if not roof.rank_steps:
        return 0.0, 0.0
    spent_ns = sum(row.total_ns for row in rows) / roof.rank_steps
    return context.share(spent_ns), spent_ns


def _saving(ns: float, context: RunContext) -> float:
    """Return at most the exposed compute time: what runs beside other work, or twice at once, saves less."""
    return min(ns, context.exposed_ns["compute"])


FLOAT32_PRODUCTS: Final = Rule("float32_products", _float32_products)
PASSES_OVER_MEMORY: Final = Rule("unfused_elementwise", _passes_over_memory)
UNALIGNED_PRODUCTS: Final = Rule("unaligned_products", _unaligned_products)
ROOFLINE_RULES: Final = (FLOAT32_PRODUCTS, UNALIGNED_PRODUCTS, PASSES_OVER_MEMORY)
