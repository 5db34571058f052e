"""The tables, chart and files of a run's roofline."""

from typing import Any

import pytest
from msgspec.structs import replace

from perfkit.errors import UsageError
from perfkit.records.per_rank.operator_work import UnmodelledOperator
from perfkit.records.roofline import ModuleRow
from perfkit.records.run import RunReport
from perfkit.report import build_document
from perfkit.subjects.roofline import charts as roofline
from perfkit.subjects.roofline.charts import CHARTS
from tests.support.reports.report_builders import MS, make_report, make_run
from tests.support.reports.roofline_builders import STEPS, roofline_row, roofline_run

_TITLES = ("Operators against", "Operators by shape", "Modules against")


def tables(run: RunReport, top: int = 10) -> dict[str, Any]:
    (section,) = build_document(make_report(run), top).sections
    return {table.title.split(" (")[0]: table for table in section.tables if table.title.startswith(_TITLES)}


def cells(table: Any) -> list[list[str]]:
    return [[f"{cell.text} {cell.note}".strip() for cell in row] for row in table.rows]


RUN = roofline_run(
    roofline_row("gemm", 30, tensor_cores=True),
    roofline_row("gemm", 10, dtype="bfloat16", bound="memory"),
    roofline_row("copy", 20, flops=0, dtype=None),
    other_ms=40,
)


def test_the_share_of_the_peak_by_module() -> None:
    assert RUN.roofline is not None
    modules = [
        ModuleRow(path=["A", "B<1>\x1b", "C"], total_ns=STEPS * 50 * MS, flops=STEPS * 2e12, peak_ns=STEPS * 10 * MS),
        ModuleRow(path=["D"], total_ns=STEPS * 20 * MS, flops=STEPS * 1e12, peak_ns=None),
        ModuleRow(path=["E"], total_ns=STEPS * 10 * MS, flops=0, peak_ns=0),  # no products
    ]
    found = tables(replace(RUN, roofline=replace(RUN.roofline, modules=modules)))["Modules against the device's peak"]
    assert cells(found) == [
        ["B<1>\\x1b > C", "50.0 ms", "50.0 %", "2.00 T", "40.0 T", "20.0 %"],
        ["D", "20.0 ms", "20.0 %", "1.00 T", "50.0 T", "–"],
    ]
    assert "Modules against the device's peak" not in tables(RUN)


def test_without_peaks_there_is_no_share_and_no_chart() -> None:
    run = roofline_run(roofline_row("gemm", 30, bound=None, bound_ns=None), peaks=None)
    found = tables(run)["Operators against the device's limits"]
    assert [column.title for column in found.columns] == ["kind", "time", "share", "FLOP/s", "B/s", "FLOP/B"]
    assert found.remark == "no share of a bound: no peaks of Acme are known; all of the compute time is modelled"
    assert CHARTS["roofline"].draw(run) is None
    with pytest.raises(UsageError, match="record_shapes"):
        run.plot_roofline()


def test_a_row_without_a_bound_leaves_its_kind_without_a_share() -> None:
    run = roofline_run(roofline_row("gemm", 30), roofline_row("gemm", 1, bound=None, bound_ns=None))
    assert cells(tables(run)["Operators against the device's limits"])[0][-1] == "– compute"


def test_runs_without_shapes_or_without_any_model_have_no_tables() -> None:
    assert tables(make_run()) == {}
    assert tables(roofline_run(other_ms=10)) == {}


def test_reasons_of_what_is_not_modelled() -> None:
    run = roofline_run(roofline_row("gemm", 50), other_ms=50)
    assert run.roofline is not None
    reasons = (("no_shapes", 20), ("calls_others", 29), ("no_operator", 0.8), ("no_model", 0.2))
    rows = [
        UnmodelledOperator(operator=f"x::{name}", reason=name, count=1, total_ns=round(STEPS * ms * MS))  # type: ignore[arg-type]
        for name, ms in reasons
    ]
    remark = tables(replace(run, roofline=replace(run.roofline, unmodelled=rows)))[
        "Operators against the device's limits"
    ].remark
    parts = remark.partition("not modelled: ")[2].split("; ")
    assert parts == [
        "50.0 % of compute: with unknown shapes 20.0 % (x::no_shapes)",
        "own time of operators that call others 29.0 % (x::calls_others)",
        "kernels whose launch is not recorded, so that rates may be too high 0.8 % (x::no_operator)",
    ]


def test_the_chart_has_a_roof_per_type_and_a_point_per_operator() -> None:
    figure = RUN.plot_roofline()
    lines = {trace.name: trace for trace in figure.data if trace.mode == "lines"}
    points = [trace for trace in figure.data if trace.mode == "markers"]
    assert list(lines) == ["peak, tf32", "peak, bfloat16"]
    assert lines["peak, tf32"].x[1] == pytest.approx(156e12 / 1555e9)
    assert lines["peak, tf32"].y[1:] == (156e12, 156e12)
    assert lines["peak, tf32"].y[0] == pytest.approx(lines["peak, tf32"].x[0] * 1555e9)
    (products,) = points  # copies do no arithmetic
    assert (products.name, len(products.x)) == ("matrix product", 2)
    assert products.y[0] == pytest.approx(1.95e12)
    assert products.marker.size[0] == 30  # the longest


def test_markup_in_names_is_escaped() -> None:
    run = roofline_run(roofline_row("gemm", 30, operator="<b>x</b>\x1b[1m"))
    (points,) = [trace for trace in run.plot_roofline().data if trace.mode == "markers"]
    assert "<b>" not in points.text[0].replace("<br>", "")
    assert "\x1b" not in points.text[0]


def test_points_that_are_left_out_of_the_chart_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [roofline_row("gemm", 30 - place, operator=f"aten::mm{place}") for place in range(4)]
    whole = CHARTS["roofline"].draw(roofline_run(*rows))
    monkeypatch.setattr(roofline, "_MOST_POINTS", 3)
    cut = CHARTS["roofline"].draw(roofline_run(*rows))
    assert whole
    assert cut
    assert cut.note == f"{whole.note} The 3 of 4 that take longest."
