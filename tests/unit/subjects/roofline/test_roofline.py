"""Which device a run's operators are compared with, and what bounds them."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import perfkit
from perfkit.records.per_rank.operator_work import ModuleWork, OperatorWork, RankWork, WorkKind
from perfkit.records.rank import RankReport
from perfkit.records.roofline import DevicePeaks, RooflineRow
from tests.support.reports.report_builders import MS, make_rank
from tests.support.reports.worded import roofline
from tests.support.traces.shape_traces import GPU, Launches, gpu_trace, inputs

ACME = DevicePeaks(
    name="Acme", tflops={"float32": 1, "tf32": 10, "bfloat16": 20}, bandwidth_gb_per_s=100, source="its maker"
)
"""1 TFLOP/s is 1e9 operations per ms, 100 GB/s are 1e8 bytes per ms."""


def work(
    kind: WorkKind, flops: float, moved: float, dtype: str = "bfloat16", cores: bool | None = None
) -> OperatorWork:
    return OperatorWork(
        kind=kind,
        operator="aten::x",
        shapes="1",
        dtype=dtype,
        tensor_cores=cores,
        count=1,
        total_ns=10 * MS,
        flops=round(flops),
        bytes=round(moved),
    )


def rank(*rows: OperatorWork, number: int = 0, device: Any = "gpu") -> RankReport:
    total_ns = sum(row.total_ns for row in rows)
    made = RankWork(total_ns=total_ns, operators=[*rows], unmodelled=[])
    return make_rank(number, device=device, operator_work=made)


def one_row(row: OperatorWork, peaks: DevicePeaks = ACME) -> RooflineRow:
    found = roofline([rank(row)], ["Acme"], None, [peaks])
    assert found is not None
    (only,) = found.rows
    return only


@pytest.mark.parametrize(
    ("row", "bound", "share"),
    [
        (work("gemm", 100e9, 1e8), "compute", 0.5),  # 5 ms at 20 TFLOP/s, 1 ms at 100 GB/s
        (work("gemm", 20e9, 2e8), "memory", 0.2),
        (work("gemm", 5e9, 1e8, "float32", cores=False), "compute", 0.5),
        (work("gemm", 5e9, 1e7, "float32", cores=True), "compute", 0.05),
        (work("gemm", 5e9, 1e8, "float32", cores=None), None, None),  # float32 or TF32?
        (work("gemm", 5e9, 1e8, "float16"), None, None),  # no peak of this type
        (work("attention", 100e9, 1e8), "compute", 0.5),
        (work("elementwise", 100e9, 1e8, "float32"), "memory", 0.1),
        (work("copy", 0, 1e8, "int64"), "memory", 0.1),
        (work("elementwise", 1e9, 2e9), "memory", 2.0),  # from caches
    ],
)
def test_bounds(row: OperatorWork, bound: str | None, share: float | None) -> None:
    found = one_row(row)
    assert found.bound == bound
    assert found.share == (None if share is None else pytest.approx(share))


def test_float32_has_one_peak_where_the_device_has_no_tf32() -> None:
    plain = replace(ACME, tflops={"float32": 1})
    assert one_row(work("gemm", 5e9, 1e8, "float32"), plain).share == pytest.approx(0.5)


def test_without_a_bandwidth_there_is_no_bound() -> None:
    assert one_row(work("gemm", 100e9, 1e8), replace(ACME, bandwidth_gb_per_s=None)).bound is None


def test_ranks_are_added_up() -> None:
    ranks = [rank(work("gemm", 100e9, 1e8), number=number) for number in range(3)]
    found = roofline(ranks, ["Acme"], None, [ACME])
    assert found is not None
    (row,) = found.rows
    assert (row.count, row.total_ns, row.flops, row.bytes) == (3, 30 * MS, 300e9, 3e8)
    assert row.flops_per_s == pytest.approx(10e12)
    assert row.bytes_per_s == pytest.approx(1e10)
    assert row.intensity == 1000
    assert (found.rank_steps, found.modelled_ns, found.total_ns) == (6, 30 * MS, 30 * MS)


def test_a_rank_without_shapes_leaves_the_run_without_a_roofline() -> None:
    assert roofline([rank(work("gemm", 1, 1)), make_rank(1)], ["Acme"], None, [ACME]) is None
    assert roofline([], [], None, [ACME]) is None


@pytest.mark.parametrize(
    ("names", "device", "reason"),
    [
        (["Acme"], "gpu", None),
        (["Acme 2"], "gpu", "no peaks of Acme 2 are known: measure them with perfkit peaks -o FILE"),
        (["Acme", "Other"], "gpu", "the ranks run on different devices: Acme, Other"),
        ([], "gpu", "the traces do not name the device"),
        (["Acme"], "cpu", "the traces do not name the processor"),  # a GPU that nothing ran on
    ],
)
def test_why_there_are_no_peaks(names: list[str], device: str, reason: str | None) -> None:
    found = roofline([rank(work("gemm", 1, 1), device=device)], names, None, [ACME])
    assert found is not None
    if reason is None:
        assert (found.peaks, found.reason) == (ACME, None)
    else:
        assert found.peaks is None
        assert str(found.reason).startswith(reason)


@pytest.mark.parametrize(
    ("flops", "peaks", "mfu"),
    [
        ({"bfloat16": round(100e9)}, ACME, 0.5),  # 5 of 10 ms
        ({"bfloat16": round(40e9), "tf32": round(10e9), "float32": round(1e9)}, ACME, 0.4),
        ({"float32 or tf32": 10**9}, ACME, None),
        ({"float32 or tf32": 10**9}, replace(ACME, tflops={"float32": 1}), 0.1),
        ({"bfloat16": 10**9, "float16": 10**9}, ACME, None),
        ({}, ACME, 0.0),
    ],
)
def test_mfu_of_a_module(flops: dict[str, int], peaks: DevicePeaks, mfu: float | None) -> None:
    module = ModuleWork(path=["Net", "Block"], total_ns=10 * MS, flops=flops)
    made = rank(work("gemm", 1, 1))
    assert made.operator_work is not None
    made = replace(made, operator_work=replace(made.operator_work, modules=[module]))
    found = roofline([made], ["Acme"], None, [peaks])
    assert found is not None
    (row,) = found.modules
    assert (row.path, row.flops) == (["Net", "Block"], float(sum(flops.values())))
    assert row.mfu == (None if mfu is None else pytest.approx(mfu))


def test_the_device_comes_from_the_header_of_a_trace_and_a_users_table_comes_first(tmp_path: Path) -> None:
    launches = Launches(gpu_trace(names=(GPU, GPU)).step(0, 0, 1000))
    # 2 x 64^3 operations at 312 TFLOP/s take 1.7 ns, 3 x 64^2 x 2 bytes at 1555 GB/s 15.8 ns.
    launches.call("aten::mm", inputs([64, 64], [64, 64], dtype="c10::BFloat16"), 1)
    path = launches.builder.write(tmp_path / "rank0.json")
    found = perfkit.analyze(path, cache=False).runs[0].roofline
    assert found is not None
    assert (found.device, found.rows[0].bound, found.rows[0].bound_ns) == (GPU, "memory", 16)
    own = DevicePeaks(name=GPU, tflops={"bfloat16": 1}, bandwidth_gb_per_s=1000)
    slower = perfkit.analyze(path, cache=False, device_table=[own]).runs[0].roofline
    assert slower is not None
    assert (slower.rows[0].bound, slower.rows[0].bound_ns) == ("compute", 524)
