"""Tables of benchmarks and plans on a terminal of 80 columns: their labels are neither cut nor wrapped."""

import io
from typing import Any

from msgspec.structs import replace
from rich.console import Console

from perfkit.records.benchmark import InputSeries
from perfkit.records.plan import TracedMemory
from perfkit.report.renderers.console import draw_table, write
from perfkit.tables.specification import Cell, Column, Table
from perfkit.tools.plan.planner import Request, make_plan
from perfkit.tools.plan.shape import gpt_shape
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
