"""The HTML page: self-contained, complete, and text from a trace is escaped."""

import io
import json
from html.parser import HTMLParser
from typing import Any

import pytest
from msgspec.structs import replace

from perfkit.records.comparison import Comparison, Side
from perfkit.records.report import Report
from perfkit.records.run import RunReport
from perfkit.report.charts.run import page_charts as charts_of
from perfkit.report.charts.run import run_charts, subject_charts
from perfkit.report.renderers.html import write
from perfkit.report.views.comparison import page_charts
from perfkit.subjects.comparison.changes import changes
from perfkit.subjects.steps.charts import MOST_CELLS
from perfkit.tables.charts import Chart
from perfkit.tables.labels import COLOURS, HUES, MAX_RANKS
from tests.support.reports.report_builders import (
    MS,
    make_across,
    make_foreign_run,
    make_rank,
    make_report,
    make_run,
    make_step,
)
from tests.support.reports.scaling_builders import make_scaling_report

HOSTILE = "</script></span><img src=x onerror=alert(1)>&\"'{{ 7*7 }}"


def page(report: Report) -> str:
    stream = io.StringIO()
    write(report, stream, top=10)
    return stream.getvalue()


class Reader(HTMLParser):
    """Collects what a browser would see, but for the scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.data: list[str] = []
        self._inside = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = "json" if dict(attrs).get("type") == "application/json" else tag

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "json":
            self.data.append(data)
        elif self._inside not in ("script", "style"):
            self.text.append(data)


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    return reader


def test_it_fetches_nothing() -> None:
    text = page(make_report())
    reader = read(text)
    assert not [attrs for _, attrs in reader.tags if "src" in attrs]
    assert {tag for tag, _ in reader.tags} & {"link", "iframe", "img", "object"} == set()
    assert {attrs["href"][:1] for tag, attrs in reader.tags if tag == "a" and attrs["href"]} == {"#"}
    (policy,) = [attrs["content"] for _, attrs in reader.tags if attrs.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert "http" not in policy


def test_links_lead_somewhere() -> None:
    reader = read(page(make_report(make_run("one"), make_foreign_run("two"))))
    ids = [attrs["id"] for _, attrs in reader.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert {str(attrs["href"])[1:] for tag, attrs in reader.tags if tag == "a"} <= set(ids)
    assert {"comparison", "run-1", "run-2", "definitions"} <= set(ids)


def test_a_comparison_without_charts_has_no_empty_block_for_them() -> None:
    text = page(make_report(make_run("one"), make_foreign_run("two")))
    assert 'id="comparison"' in text
    assert '<div class="charts"></div>' not in text


def series(chart: Chart) -> dict[str, list[float]]:
    return {one["name"]: one["x" if one.get("orientation") == "h" else "y"] for one in chart.spec["data"]}


def test_the_charts_are_the_reports_numbers() -> None:
    by_rank, waiting, by_step, heat, bandwidth = run_charts(make_run())
    assert (by_rank.spec["data"][0]["y"], by_step.spec["data"][0]["x"]) == (["0", "1"], ["5", "6"])
    before = [0.0, 0.0]
    for bars in by_rank.spec["data"]:  # rows: each bar begins where the one before ends
        assert bars["base"] == before
        before = [base + length for base, length in zip(before, bars["x"], strict=True)]
    assert series(by_step)["compute"] == [60.0, 90.0]
    assert series(by_rank)["idle"] == [5.0, 20.0]
    whole = heat.spec["data"][0]
    assert (whole["name"], whole["visible"], whole["z"]) == ("whole step", True, [[100.0, 130.0], [100.0, 160.0]])
    # Over two steps.
    assert series(waiting) == {"transfer": [12.0, 12.0], "wait": [13.0, 0.0]}
    points, fit = bandwidth.spec["data"]
    assert points["x"] == fit["x"] == [1_024, 4_194_304]
    assert fit["y"] == pytest.approx([1_024 / (1e-3 + 1_024 / 400e6), 4_194_304 / (1e-3 + 4_194_304 / 400e6)])


def comparison_chart() -> Chart:
    side, changed = Side(path="a", runs=["one"]), changes([make_run()], [make_run()])
    compared = Comparison(perfkit_version="0", before=side, after=side, changes=changed, gates=[], findings=[])
    ((found,),) = page_charts(compared).sections
    return found


def test_every_chart_is_a_plotly_specification() -> None:
    several = charts_of(make_scaling_report())
    charts = [*run_charts(make_run()), *several.overview, *several.beside_tables, comparison_chart()]
    assert len(charts) == 10
    for one in charts:
        assert one.spec.keys() == {"data", "layout"}
        json.dumps(one.spec, allow_nan=False)
        assert len(one.figure().data) == len(one.spec["data"])  # plotly checks every attribute
        for axis in ("xaxis", "yaxis"):
            assert "title" in one.spec["layout"][axis]


def test_stacked_bars_have_a_color_each_and_a_unit() -> None:
    charts = [*run_charts(make_run()), comparison_chart()]
    stacks = [one.spec for one in charts if one.spec["data"][0]["type"] == "bar"]
    assert len(stacks) == 4
    for spec in stacks:
        across = "xaxis" if spec["data"][0].get("orientation") == "h" else "yaxis"
        assert spec["layout"][across]["title"]["text"].startswith("ms, exposed")
        colours = [bars["marker"]["color"] for bars in spec["data"]]
        assert len(set(colours)) == len(colours)
        assert set(colours) <= set(COLOURS.values())


def test_a_menu_shows_one_layer_of_the_heat_map() -> None:
    heat = heat_map(make_run())
    ((menu),) = heat["layout"]["updatemenus"]
    assert [button["label"] for button in menu["buttons"]] == [layer["name"] for layer in heat["data"]]
    assert [button["args"][1].index(True) for button in menu["buttons"]] == list(range(6))


def heat_map(run: RunReport) -> dict[str, Any]:
    found = subject_charts()["heat_map"].draw(run)
    assert found
    return found.spec


def test_a_step_that_a_rank_lacks_is_a_hole() -> None:
    run = make_run(ranks=[make_rank(0, [make_step(5), make_step(6)]), make_rank(1, [make_step(6), make_step(7)])])
    whole = heat_map(run)["data"][0]
    assert whole["x"] == ["5", "6", "7"]
    assert [[value is None for value in row] for row in whole["z"]] == [
        [False, False, True],
        [True, False, False],
    ]


@pytest.mark.parametrize("run", [make_run(ranks=[]), make_foreign_run(), make_run(ranks=[make_rank(0, [])])])
def test_no_charts_without_data(run: object) -> None:
    text = page(make_report(run))  # type: ignore[arg-type]
    assert 'class="chart"' not in text


def test_a_large_run_makes_a_page_that_opens() -> None:
    steps = [make_step(number, compute=(60 + number % 7) * MS + number) for number in range(100)]
    text = page(make_report(make_run(ranks=[make_rank(number, steps) for number in range(64)])))
    assert len(text.encode()) < 700_000
    slow = make_rank(500, [make_step(number, compute=200 * MS) for number in range(100)])
    many = make_run(ranks=[make_rank(number, steps) for number in range(499)] + [slow])
    heat = subject_charts()["heat_map"].draw(many)
    assert heat
    whole = heat.spec["data"][0]
    assert len(whole["y"]) * len(whole["x"]) <= MOST_CELLS
    assert whole["y"][-1] == "500"
    assert heat.note == "The 200 of 500 ranks that take longest without communication."


def test_collectives_of_two_groups_are_told_apart() -> None:
    across = make_across()
    other = [replace(row, group="mesh_tp") for row in across.collectives]
    both = subject_charts()["bandwidth"].draw(
        make_run(cross_rank=replace(across, collectives=[*across.collectives, *other]))
    )
    one = subject_charts()["bandwidth"].draw(make_run(cross_rank=across))
    assert both
    assert one
    assert {spec["name"] for spec in both.spec["data"]} == {
        "all_reduce \u00d72, default",
        "all_reduce \u00d72, mesh_tp",
    }
    assert {spec["name"] for spec in one.spec["data"]} == {"all_reduce \u00d72"}


def test_a_bar_of_a_category_has_its_colour_and_pattern() -> None:
    text = page(make_report(make_run()))
    for category, pattern in (("compute", ""), ("communication", "/"), ("data_loading", "."), ("overhead", "")):
        look = f'data-pattern="{pattern}" style="background-color: {COLOURS[category]}; '
        assert f'<span class="bar" {look}width: ' in text
        if category != "overhead":  # of which the ledger has the causes
            assert f"<span {look}flex: " in text
            assert f"<i {look[:-2]}" in text


def test_two_charts_of_few_bars_share_a_row() -> None:
    by_rank, waiting, by_step, heat, bandwidth = run_charts(make_run())
    assert [one.is_narrow for one in (by_rank, waiting, by_step, heat, bandwidth)] == [True, True, True, False, False]
    assert '<figure class="chart narrow">' in page(make_report(make_run()))
    many = make_run(ranks=[make_rank(number) for number in range(MAX_RANKS + 1)])
    wide = subject_charts()["ranks"].draw(many)
    assert wide
    assert not wide.is_narrow
    assert "orientation" not in wide.spec["data"][0]


def test_a_colour_of_a_series_means_nothing_else() -> None:
    assert not set(HUES) & set(COLOURS.values())
    for paper in ("#ffffff", "#12161c"):
        assert all(contrast(colour, paper) >= 3 for colour in HUES)


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours (WCAG 2.2)."""
    low, high = sorted(luminance(colour) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
