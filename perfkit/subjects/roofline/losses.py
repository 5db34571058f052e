"""What operators lose that use the device badly: by their type, their shapes, and passes over memory."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from perfkit.engine.losses.context import MANY, MIN_COMMON_SHARE, MIN_SHARE, LossContext
from perfkit.engine.losses.dimensions import is_whole_model
from perfkit.engine.losses.loss import Loss, Rules
from perfkit.records.aggregate import MAJORITY
from perfkit.records.facts import fact
from perfkit.records.per_rank.operator_work import MATRIX_KINDS
from perfkit.records.per_rank.work import Work
from perfkit.records.per_rank.work_trees import merge_work
from perfkit.records.roofline import DevicePeaks, Roofline, RooflineRow

_FASTER: Final = 2.0
"""How many times as fast another type must be at its peak."""
_FULL_SPEED: Final = 0.6
"""Share of the bound from which shapes are no obstacle."""
_WHOLE_SCRIPT: Final = ": <module>"
"""What the names of frames outside of functions end with: they tell no more than the file."""
_ALIGNMENT: Final = 8
"""Elements of 16 bits to which tensor cores want sizes aligned: 16 bytes (NVIDIA, Matrix Multiplication Background)."""


def float32_products(context: LossContext) -> Loss | None:
    """Products in float32 where the device multiplies another type at least twice as fast."""
    roof = context.run.roofline
    if roof is None or roof.peaks is None:
        return None
    rows = [row for row in roof.rows if row.kind in MATRIX_KINDS and _is_plain_float32(row, roof.peaks)]
    types = _faster_types(roof.peaks)
    share, spent_ns = _share(rows, roof, context)
    if not types or share < MIN_SHARE:
        return None
    fastest = max(types.values())
    least_ns = sum(_least_ns(row, fastest, roof.peaks) for row in rows) / roof.rank_steps
    name = "bfloat16" if types.get("bfloat16") == fastest else max(types, key=types.__getitem__)
    times = fastest / roof.peaks.tflops["float32"]
    saving_ns = _saving(spent_ns - least_ns, context)
    if saving_ns <= 0:
        return None
    half = next((name for name in ("bfloat16", "float16") if name in types), None)
    allow = (fact("allow_tf32"),) if "tf32" in types else ()
    mixed = (fact("mixed_precision", type=half),) if half else ()
    return Loss(
        cause="float32_products",
        row="compute",
        facts=(fact("float32_products", share=share, times=times, type=name),),
        evidence={"step_share": share, "products_ns": spent_ns, "faster": times},
        remedy=(*allow, *((fact("or_also"),) if allow and mixed else ()), *mixed),
        per_step_ns=saving_ns,
    )


def _is_plain_float32(row: RooflineRow, peaks: DevicePeaks) -> bool:
    """Return whether a row is in float32, and certainly not on tensor cores."""
    return row.dtype == "float32" and (row.tensor_cores is False or "tf32" not in peaks.tflops)


def _faster_types(peaks: DevicePeaks) -> dict[str, float]:
    """Return the types to train in that are faster than float32, with their TFLOP/s."""
    plain = peaks.tflops.get("float32")
    names = ("tf32", "bfloat16", "float16")
    return {} if plain is None else {n: peaks.tflops[n] for n in names if peaks.tflops.get(n, 0) >= _FASTER * plain}


def _least_ns(row: RooflineRow, tflops: float, peaks: DevicePeaks) -> float:
    """Return the least time of a row at another peak; half the bytes is the least that another type moves."""
    memory_ns = row.bytes / 2 / peaks.bytes_per_s * 1e9 if peaks.bytes_per_s else 0.0
    return max(row.flops / (tflops * 1e12) * 1e9, memory_ns)


def unfused_elementwise(context: LossContext) -> Loss | None:
    """Element-wise operators that a compiler would join."""
    roof = context.run.roofline
    if roof is None or context.is_compiled or not is_whole_model(context):
        return None
    rows = [row for row in roof.rows if row.kind in ("elementwise", "copy")]
    share, spent_ns = _share(rows, roof, context)
    calls = sum(row.count for row in rows) / roof.rank_steps if roof.rank_steps else 0
    total_ns = sum(row.total_ns for row in rows)
    copied_ns = sum(row.total_ns for row in rows if row.kind == "copy")
    # Fusing spares no conversion that the program asks for.
    copies = copied_ns >= MAJORITY * total_ns
    if share < MIN_COMMON_SHARE or (calls < MANY and not copies):
        return None
    function = _function_of_most(context, total_ns)
    where = (fact("mostly_in", function=function),) if function else ()
    return Loss(
        cause="unfused_elementwise",
        row="compute",
        code=function,
        facts=(fact("unfused_elementwise", share=share, calls=calls), *where),
        evidence={"step_share": share, "passes_ns": spent_ns, "calls": calls},
        remedy=(fact("copy_less") if copies else fact("fuse", own=context.option("compile") is False),),
        per_step_ns=_saving(spent_ns, context),
    )


def _function_of_most(context: LossContext, part_ns: int) -> str | None:
    """Return the function of the program that issues most of some operators; None if none certainly does.

    Which operators a function calls is not in the report, only their time: of a part of all work, what exceeds the work
    of the others must be the function's.

    Args:
        context: the run.
        part_ns: time of the operators (on a device, of their kernels), summed over ranks and steps.
    """
    work = merge_work(context.run.ranks)
    own_ns = _own_time(work) if work else {}
    name = max(own_ns, key=lambda one: own_ns[one], default=None)
    if work is None or name is None or own_ns[name] + part_ns - work.total_ns < MAJORITY * part_ns:
        return None
    return name


def _own_time(work: Work) -> dict[str, int]:
    """Return the time of what each function of the program issues itself (ns), without those that it calls."""
    own_ns: dict[str, int] = defaultdict(int)
    for tree in work.trees:
        for node in tree.nodes if tree.by == "python" else ():
            if not node.name.startswith("(") and not node.name.endswith(_WHOLE_SCRIPT):
                own_ns[node.name] += node.self_ns
    return own_ns


def unaligned_products(context: LossContext) -> Loss | None:
    """Products in half precision whose sizes keep an NVIDIA GPU's tensor cores from their full speed."""
    roof = context.run.roofline
    if roof is None or roof.peaks is None or not roof.peaks.name.startswith(("NVIDIA ", "Tesla ")):
        return None
    rows = [row for row in roof.rows if row.kind == "gemm" and _is_unaligned(row) and (row.share or 1) < _FULL_SPEED]
    share, spent_ns = _share(rows, roof, context)
    if share < MIN_SHARE:
        return None
    largest = max(rows, key=lambda row: row.total_ns)
    bound_ns = sum(row.bound_ns or 0 for row in rows) / roof.rank_steps
    return Loss(
        cause="unaligned_products",
        row="compute",
        code=largest.operator,
        facts=(fact("unaligned_products", multiple=_ALIGNMENT, share=share),),
        evidence={"step_share": share, "products_ns": spent_ns},
        remedy=(fact("pad_sizes", multiple=_ALIGNMENT),),
        per_step_ns=_saving(spent_ns - bound_ns, context),
    )


def _is_unaligned(row: RooflineRow) -> bool:
    if row.dtype not in ("float16", "bfloat16"):
        return False
    sizes = [part.strip().split("×")[-2:] for part in row.shapes.split(",")]
    return any(one.isdecimal() and int(one) % _ALIGNMENT for shape in sizes if len(shape) == 2 for one in shape)


def _share(rows: Sequence[RooflineRow], roof: Roofline, context: LossContext) -> tuple[float, float]:
    """Return the share of the step that rows take, and their mean time per step and rank (ns)."""
    if not roof.rank_steps:
        return 0.0, 0.0
    spent_ns = sum(row.total_ns for row in rows) / roof.rank_steps
    return context.share(spent_ns), spent_ns


def _saving(ns: float, context: LossContext) -> float:
    """Return at most the exposed compute time: what runs beside other work, or twice at once, saves less."""
    return min(ns, context.exposed_ns["compute"])


LOSSES: Final[Rules] = {
    "float32_products": float32_products,
    "unaligned_products": unaligned_products,
    "unfused_elementwise": unfused_elementwise,
}
