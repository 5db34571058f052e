"""The tables of every subject of one made run, for readers and for files, as golden files: figures, names, remarks."""

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

import perfkit
from perfkit.records.report import Report
from perfkit.records.run import RunReport
from perfkit.report import LISTINGS, listing
from perfkit.report.exporters.tables import write_csv
from perfkit.report.renderers import markdown
from tests.support.reports.report_builders import MS, make_divided, make_efficiency, make_report, make_run
from tests.support.reports.roofline_builders import roofline_row, roofline_run
from tests.support.reports.scaling_builders import make_scaling_report
from tests.support.traces.idle_builders import idle_rank, row
from tests.support.traces.trace_builder import TraceBuilder
from tests.support.traces.work_traces import module_step
from tests.unit.report.content.test_critical_path import PATH
from tests.unit.report.content.test_dimensions_content import make_dimension, run_with
from tests.unit.report.content.test_memory_content import GB, make_categorized, make_host_use
from tests.unit.report.content.test_sharding_content import make_gathers, make_issued, make_sharded
from tests.unit.subjects.pipelines.test_losses import make_pipeline

HOSTILE = "=cmd|\x1b[31m"
"""A formula in CSV, and a sequence that a terminal obeys."""


def communicating() -> RunReport:
    """A run of two ranks with every table of idle time, memory, paths, pipelines and communication."""
    item = row("synchronisation", "aten::item", 20, "train.py(5): log", count=40)
    gathers = make_sharded(
        make_gathers(exposed_ns=12 * MS, late_ns=8 * MS, short_ns=4 * MS, layer=HOSTILE),
        reductions=4,
        reductions_exposed_ns=6 * MS,
        tail_ns=2 * MS,
    )
    first = replace(
        idle_rank(item, row("host_work", HOSTILE, 5, count=2), rank=0),
        memory=[make_host_use(), make_categorized()],
        issued_collectives=[
            make_issued(layer="layers.0"),
            make_issued(layer=HOSTILE, bytes=2_000_000, unsized=1),
            make_issued(phase=None, exposed_ns=0),
        ],
        sharded_parameters=gathers,
    )
    second = replace(idle_rank(item, rank=1, kernels=100), memory=[make_categorized(peak=50 * GB)])
    divided = make_divided(layers=4, tokens=1000, bytes=2_000_000.0, wait_ns=2.0 * MS, sequence_parallel=False)
    names = [replace(one, name=HOSTILE) if one.kind == "compute" else one for one in PATH.names]
    dimensions = run_with(make_dimension("tp"), make_dimension(HOSTILE, across_hosts=True), outside=0.05).dimensions
    return make_run(
        ranks=[first, second],
        critical_path=replace(PATH, names=names),
        dimensions=dimensions,
        efficiency=make_efficiency(own_ns=247 * MS),
        divided_work=[divided, make_divided(dimension="ep", imbalance=1.432)],
        pipelines=[make_pipeline(schedule=HOSTILE), make_pipeline(43, None, reason="traces of 2 of its 4 ranks")],
    )


@pytest.fixture
def report(tmp_path: Path) -> Report:
    (tmp_path / "work").mkdir()
    for rank in range(2):
        module_step(TraceBuilder(rank=rank, world_size=2)).write(tmp_path / "work" / f"rank{rank}.json")
    work = perfkit.analyze(tmp_path / "work", cache=False).runs[0]
    modelled = [roofline_row("gemm", 30, tensor_cores=True), roofline_row("gemm", 10, dtype="bfloat16", bound="memory")]
    roofline = roofline_run(*modelled, roofline_row("copy", 20, flops=0, dtype=None), other_ms=40)
    return make_report(communicating(), work, replace(roofline, run="roofline"))


def test_readers_see(report: Report, golden: Callable[[str, str], None]) -> None:
    stream = io.StringIO()
    markdown.write(report, stream, top=3)
    assert "\x1b" not in stream.getvalue()
    golden(stream.getvalue(), "report/every_table.md")


def test_files_have(report: Report, golden: Callable[[str, str], None]) -> None:
    stream = io.StringIO()
    for name in LISTINGS:
        stream.write(f"# {name}\n")
        write_csv(make_scaling_report() if name in ("points", "options") else report, stream, listing(name))
    assert "\n=" not in stream.getvalue()
    assert ",=" not in stream.getvalue()
    golden(stream.getvalue(), "report/every_table.csv")


@pytest.mark.parametrize("several", [False, True])
def test_data_frames_have_the_values_of_files(report: Report, several: bool) -> None:
    shown = make_scaling_report() if several else report
    for name in LISTINGS:
        frame, table = getattr(shown.tables(), name), listing(name)
        assert list(frame.columns) == [column.key for column in table.in_files]
        for column, values in zip(table.in_files, zip(*table.values(shown), strict=True), strict=False):
            found = frame[column.key]
            assert [None if missing else value for missing, value in zip(found.isna(), found, strict=True)] == [*values]
            if column.is_integer:
                assert str(found.dtype) == ("Int64" if column.may_be_unknown else "int64"), (name, column.key)
