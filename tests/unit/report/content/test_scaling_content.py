"""The tables and charts of several runs show what the records hold."""

from itertools import pairwise

import pytest

from perfkit.report.charts.scaling import pictures, throughputs, waterfalls
from perfkit.report.content.run_overview import comparison
from perfkit.report.content.scaling import fits, lost_points, opening, scaling
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
    tables = [table for table in scaling(SCALING) if table.title.startswith("Efficiency lost by factor")]
    assert len(tables) == 2
    for table in tables:
        for row in table.rows:
            total, *parts = (float(cell.text) for cell in row[2:])
            assert sum(parts) == pytest.approx(total)


def test_a_failed_point_stands_among_the_others() -> None:
    assert SCALING is not None
    (table,) = [table for table in opening(SCALING) if table.title.startswith("Scaling: gpt weak, hdf5")]
    assert [row[0].text for row in table.rows] == ["1", "2", "4", "8"]
    assert table.rows[-1][2].text == "failed"
    assert "hdf5-8 failed: the run failed (rank 3: no space left on device)" in table.remark


def test_every_table_is_rectangular() -> None:
    assert SCALING is not None
    strong = make_together(make_strong(lambda p: 80 / p + 20, [1, 2, 4, 8], repeats=3, noise=0.01), forecast=[16, 7])
    assert strong.multi_run is not None
    for table in [one for of in (SCALING, strong.multi_run) for one in (*opening(of), *fits(of), *scaling(of))]:
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
    remark = opening(multi_run)[0].remark
    (throughput,) = throughputs(multi_run.series)
    assert said in remark
    assert unsaid not in remark.split("; n: ")[0]
    assert unsaid not in throughput.note


def test_charts_have_the_ideal_the_intervals_and_the_forecast() -> None:
    report = make_together(make_weak(usl(0.05, 0.002), [1, 2, 4, 8], repeats=3, noise=0.01), forecast=[16])
    assert report.multi_run is not None
    (series,) = report.multi_run.series
    (steps,) = pictures([series])
    drawn = {one["name"]: one for one in steps.spec["data"]}
    parts = [one for one in steps.spec["data"] if one["type"] == "bar"]
    assert [sum(part["y"][place] for part in parts) for place in range(4)] == pytest.approx(
        [point.step_time.step_ns.value / 1e6 for point in series.points], rel=0.02
    )
    assert drawn["ideal"]["y"] == [None, *[pytest.approx(series.points[0].step_time.step_ns.value / 1e6)] * 3]
    assert drawn["efficiency"]["text"] == ["", *(f"{100 * one.efficiency.value:.0f} %" for one in series.points[1:])]
    assert steps.answer == series.sentence
    (throughput,) = throughputs([series])
    measured, forecast, ideal = throughput.spec["data"]
    assert [line["name"] for line in (measured, forecast, ideal)] == ["measured", "forecast by the USL", "ideal"]
    assert ideal["y"] == pytest.approx([measured["y"][0] * p for p in (1, 2, 4, 8, 16)])
    assert forecast["x"] == [16]
    bars = [line["error_y"] for line in (measured, forecast, drawn["interval"])]
    assert all(end >= 0 for one in bars for end in (*one["array"], *one["arrayminus"]))
    assert throughput.spec["layout"]["xaxis"]["ticktext"] == ["1", "2", "4", "8", "16"]


def test_sources_stand_side_by_side() -> None:
    assert SCALING is not None
    (chart,) = pictures(SCALING.series)
    places = chart.spec["data"][0]["x"]
    assert [place.split("<br>")[0] for place in places if place.strip()] == ["memory", "hdf5"] * 3
    assert [place.split("<br>")[1] for place in places if place.strip()][::2] == ["1 rank", "2 ranks", "4 ranks"]


def test_the_waterfall_leads_from_all_to_each_efficiency() -> None:
    report = make_together(make_weak(usl(0.05, 0.002), [1, 2, 4]))
    assert report.multi_run is not None
    (series,) = report.multi_run.series
    rows = lost_points(series)
    assert [row.after for row in rows if row.cause is None] == pytest.approx(
        [100 * point.efficiency.value for point in series.points]
    )
    assert all(row.before == pytest.approx(before.after) for before, row in pairwise(rows))
    (chart,) = waterfalls([series])
    ends = [(one["base"][0], one["base"][0] + one["x"][0]) for one in chart.spec["data"]]
    assert all(set(ends[place]) & {*ends[place - 1]} for place in range(1, len(ends)))
