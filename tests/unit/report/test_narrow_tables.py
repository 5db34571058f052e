"""Tables of benchmarks and plans on a terminal of 80 columns: their labels are neither cut nor wrapped."""

import io
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from rich.cells import cell_len
from rich.console import Console

from perfkit.pipeline.analyze import analyze
from perfkit.records.benchmark import InputSeries
from perfkit.records.plan import TracedMemory
from perfkit.report import build_document
from perfkit.report.renderers.console import draw_table, write
from perfkit.report.renderers.table_layout import GAP, folded, lay_out, shown_text
from perfkit.tables.kernel_names import plain
from perfkit.tables.specification import Cell, Column, Table
from perfkit.tools.plan.planner import Request, make_plan
from perfkit.tools.plan.shape import gpt_shape
from tests.support.documentation import ROOT
from tests.support.reports.input_builders import benchmark, measurement


def lines(record: Any) -> list[str]:
    text = io.StringIO()
    write(record, text, top=10, width=80)
    return [line.rstrip() for line in text.getvalue().splitlines()]


def test_loads_with_their_intervals() -> None:
    series = [
        InputSeries(source="memory", read=read, num_workers=workers)
        for read, workers in (("per-sample", 2), ("batched", 0))
    ]
    times = [measurement(0, [0.8, 0.9, 2.1], file_share=2.31), measurement(1, [0.05, 0.05, 0.15])]
    shown = lines(benchmark(times, series=series))
    assert max(map(len, shown)) <= 80
    row = next(line for line in shown if line.startswith("memory per-sample, 2 workers  "))
    assert "±133 %" in row
    assert row.endswith("231 %")


def test_a_traced_layout_leaves_room_for_the_names_of_all() -> None:
    shape = gpt_shape(name="gpt", layers=32, width=4096, heads=32, block=2048, vocabulary=32_000, bias=False)
    plan = make_plan(Request(shape=shape, ranks=16, global_batch=64, precision="bfloat16"))
    memory = TracedMemory(
        parameters_bytes=1,
        gradients_bytes=1,
        optimizer_bytes=1,
        activations_bytes=1,
        buffers_bytes=1,
        peak_bytes=110 * 10**9,
        formula_peak_bytes=100 * 10**9,
        seconds=1.0,
        note="by formula: buckets",
    )
    first, *rest = plan.layouts
    shown = lines(replace(plan, layouts=[replace(first, traced=memory), *rest]))
    assert any(line.startswith("zero1 dp=16 full ") for line in shown)
    assert any(line.split() == ["ddp", "dp=16", "100", "GB", "110", "GB", "+10.0", "%"] for line in shown)
    assert "Traced peaks" not in lines(plan)


def test_titles_of_numbers_break_and_the_last_columns_are_left_out_before_a_number_is_cut() -> None:
    def drawn(columns: int) -> list[str]:
        titles = [f"a long title {number}" for number in range(columns)]
        table = Table("T", tuple(map(Column, titles)), [tuple(Cell(f"{10**8 + n}") for n in range(columns))], "why")
        text = io.StringIO()
        draw_table(table, Console(file=text, width=80))
        return [line.rstrip() for line in text.getvalue().splitlines()]

    assert drawn(4)[1].split("  ")[0] == "a long title 0"
    broken = drawn(7)
    assert max(map(len, broken)) <= 80
    assert [line.split() for line in broken if "00000" in line] == [[f"10000000{n}" for n in range(7)]]
    assert "no room" not in broken[-2]
    cut = drawn(9)
    assert [line.split() for line in cut if "00000" in line] == [[f"10000000{n}" for n in range(7)]]
    assert cut[-2] == "no room here for: a long title 7, a long title 8; why"


@pytest.mark.parametrize("width", [80, 120, 200])
@pytest.mark.parametrize("name", ["sample-hdf5", "gpu-dlrm-8of8"])
def test_each_cell_of_each_table_is_whole(name: str, width: int, real_traces: Path) -> None:
    path = ROOT / "traces" / name if name.startswith("sample") else real_traces / name
    (section,) = build_document(analyze(str(path), executor="serial", cache=False), 10).sections
    for table in section.tables:
        layout = lay_out(table, width)
        assert sum(layout.widths) + GAP * (len(layout.widths) - 1) <= width
        for row in layout.table.rows:
            for cell, column, room in zip(row, layout.table.columns, layout.widths, strict=True):
                text = shown_text(cell, column)
                shown = folded(text, column, room)
                assert max(map(cell_len, shown.split("\n"))) <= room
                is_long = cell_len(text) > room and column.kind == "name"
                whole = plain(text.lstrip()) if is_long else text
                assert "".join(shown.split()) == "".join(whole.split())


def test_names_take_two_lines_before_the_fourth_column_of_figures_goes_and_more_before_the_third() -> None:
    def drawn(parts: int) -> list[str]:
        columns = (Column("name", "name"), *(Column(f"figure {n}") for n in range(6)))
        row = (Cell("_".join(["part"] * parts)), *(Cell(f"{10**6 + n}") for n in range(6)))
        text = io.StringIO()
        draw_table(Table("T", columns, [row]), Console(file=text, width=80))
        return [line.rstrip() for line in text.getvalue().splitlines()]

    def lines(shown: list[str]) -> int:
        return sum("part" in line for line in shown)

    assert (lines(drawn(4)), "no room" in str(drawn(4))) == (1, False)
    assert (lines(drawn(6)), "no room" in str(drawn(6))) == (2, False)
    assert (lines(drawn(14)), drawn(14)[-2]) == (2, "no room here for: figure 4, figure 5")
    assert (lines(drawn(20)), drawn(20)[-2]) == (2, "no room here for: figure 3, figure 4, figure 5")
    assert (lines(drawn(40)), drawn(40)[-2]) == (4, "no room here for: figure 3, figure 4, figure 5")
