"""Runs whose operators' work and time are known."""

from typing import Any

from perfkit.records.per_rank.operator_work import UnmodelledOperator, WorkKind
from perfkit.records.roofline import DevicePeaks, Roofline, RooflineRow
from perfkit.records.run import RunReport
from tests.support.reports.report_builders import MS, make_foreign_run, make_rank, make_step

STEPS = 4
A100 = DevicePeaks(
    name="NVIDIA A100-SXM4-40GB",
    tflops={"float32": 19.5, "tf32": 156, "bfloat16": 312, "float16": 312},
    bandwidth_gb_per_s=1555,
    source="datasheet",
)


def roofline_row(kind: WorkKind, ms: float, **changes: Any) -> RooflineRow:
    """A row whose time is per step; by default it runs at a tenth of its bound."""
    total_ns = round(STEPS * ms * MS)
    fields: dict[str, Any] = {
        "kind": kind,
        "operator": "aten::mm" if kind == "gemm" else f"aten::{kind}",
        "shapes": "64×64, 64×64",
        "dtype": "float32",
        "tensor_cores": None,
        "count": STEPS * 20,
        "total_ns": total_ns,
        "flops": total_ns * 1950.0,
        "bytes": total_ns * 155.5,
        "bound": "compute" if kind == "gemm" else "memory",
        "bound_ns": total_ns // 10,
    }
    return RooflineRow(**(fields | changes))


def roofline_run(
    *rows: RooflineRow, other_ms: float = 0, peaks: DevicePeaks | None = A100, **changes: Any
) -> RunReport:
    """A run of one rank on a GPU, with four steps of 100 ms that only compute."""
    steps = [
        make_step(n, compute=100 * MS, communication=0, data_loading=0, overhead=0, hidden=0) for n in range(STEPS)
    ]
    other_ns = round(STEPS * other_ms * MS)
    roof = Roofline(
        device=peaks.name if peaks else "Acme",
        peaks=peaks,
        reason=None if peaks else "no peaks of Acme are known",
        total_ns=sum(row.total_ns for row in rows) + other_ns,
        rank_steps=STEPS,
        rows=sorted(rows, key=lambda row: -row.total_ns),
        unmodelled=[UnmodelledOperator(operator="mine::fused", reason="no_model", count=4, total_ns=other_ns)]
        if other_ns
        else [],
    )
    rank = make_rank(0, steps, device="gpu", phases=[], operators=[])
    return make_foreign_run(ranks=[rank], world_size=1, roofline=roof, **changes)
