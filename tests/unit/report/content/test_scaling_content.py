"""The tables and charts of several runs show what the records hold."""

import pytest

from perfkit.report.charts.run import series_charts
from perfkit.report.content.run_overview import comparison
from perfkit.report.content.scaling import scaling
from tests.support.reports.report_builders import MS, make_loading
from tests.support.reports.scaling_builders import (
    make_scaled,
    make_scaling_report,
    make_strong,
    make_together,
    make_weak,
)
from tests.unit.subjects.scaling.test_laws import usl

REPORT = make_scaling_report()
SCALING = REPORT.multi_run


def test_the_shown_parts_of_lost_efficiency_add_up() -> None:
    assert SCALING is not None
    tables = [table for table in scaling(SCALING) if table.title.startswith("Where efficiency was lost")]
    assert len(tables) == 2
    for table in tables:
        for row in table.rows:
            total, *parts = (float(cell.text) for cell in row[2:])
            assert sum(parts) == pytest.approx(total)


def test_a_failed_point_stands_among_the_others() -> None:
    assert SCALING is not None
    (table,) = [table for table in scaling(SCALING) if table.title.startswith("Scaling: gpt weak, hdf5")]
    assert [row[0].text for row in table.rows] == ["1", "2", "4", "8"]
    assert table.rows[-1][2].text == "failed"
    assert "hdf5-8 failed: the run failed (rank 3: no space left on device)" in table.remark


def test_every_table_is_rectangular() -> None:
    assert SCALING is not None
    strong = make_together(make_strong(lambda p: 80 / p + 20, [1, 2, 4, 8], repeats=3, noise=0.01), forecast=[16, 7])
    assert strong.multi_run is not None
    for table in [*scaling(SCALING), *scaling(strong.multi_run)]:
        assert {len(row) for row in table.rows} == {len(table.columns)}, table.title


def test_loads_are_set_against_memory_where_runs_differ_in_their_source_alone() -> None:
    def shown(**config: str) -> list[str]:
        loads = {"memory": make_loading(source="memory", median_ns=2 * MS), "hdf5": make_loading(median_ns=30 * MS)}
        memory = make_scaled(2, 100, data_loading=loads["memory"])
        files = make_scaled(2, 100, source="hdf5", data_loading=loads["hdf5"], config=config)
        tables = [(table, table.columns) for table in comparison(make_together([memory, files]))]
        return [
            row[place].text
            for table, columns in tables
            for row in table.rows
            for place, column in enumerate(columns)
            if column.title == "vs. memory"
        ]

    assert shown() == ["1.00", "15.00"]
    # As in the records: another way to read is another configuration.
    assert shown(read="per-sample") == []


@pytest.mark.parametrize(
    ("repeats", "said", "unsaid"),
    [(3, "95 %, bootstrap over runs", "spread"), (1, "only the spread over the steps", "95 %, bootstrap over runs")],
)
def test_a_range_over_the_steps_of_one_run_is_not_called_an_interval(repeats: int, said: str, unsaid: str) -> None:
    multi_run = make_together(make_weak(usl(0.05, 0.002), [1, 2], repeats=repeats, noise=0.01)).multi_run
    assert multi_run is not None
    remark = scaling(multi_run)[0].remark
    (_, throughput, _) = series_charts(multi_run.series)
    assert said in remark
    assert unsaid not in remark.split("; n: ")[0]
    assert unsaid not in throughput.note


def test_charts_have_the_ideal_the_intervals_and_the_forecast() -> None:
    report = make_together(make_weak(usl(0.05, 0.002), [1, 2, 4, 8], repeats=3, noise=0.01), forecast=[16])
    assert report.multi_run is not None
    steps, throughput, lost = series_charts(report.multi_run.series)
    *parts, ideal = steps.spec["data"]
    assert [sum(part["y"][place] for part in parts) for place in range(4)] == pytest.approx(
        [point.step_time.step_ns.value / 1e6 for point in report.multi_run.series[0].points], rel=0.02
    )
    assert ideal["name"] == "ideal"
    assert ideal["y"] == [ideal["y"][0]] * 4  # weak scaling
    measured, forecast, ideal = throughput.spec["data"]
    assert [line["name"] for line in (measured, forecast, ideal)] == ["measured", "forecast by the USL", "ideal"]
    assert ideal["y"] == pytest.approx([measured["y"][0] * p for p in (1, 2, 4, 8, 16)])
    assert forecast["x"] == [16]
    bars = [line["error_y"] for line in (measured, forecast)]
    assert all(end >= 0 for one in bars for end in (*one["array"], *one["arrayminus"]))
    assert throughput.spec["layout"]["xaxis"]["ticktext"] == ["1", "2", "4", "8", "16"]
    assert [one["x"] for one in lost.spec["data"]] == [["1 → 2", "2 → 4", "4 → 8"]] * 6
