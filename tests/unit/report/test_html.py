"""The page: self-contained, whole, and never more than text where a trace speaks."""

import io
import json
import re
from html.parser import HTMLParser
from importlib import resources
from typing import Any

import pytest

from perfkit.comparison.changes import changes
from perfkit.report.charts.plotly_figures import COLOURS
from perfkit.report.charts.run import MOST_CELLS, figures
from perfkit.report.renderers.html import write
from perfkit.report.views.comparison import write_html as write_comparison
from perfkit.schema.comparison import Comparison, Side
from perfkit.schema.report import Report
from perfkit.schema.run import RunReport
from tests.support.report_builders import (
    MS,
    make_foreign_run,
    make_operator,
    make_rank,
    make_report,
    make_run,
    make_step,
)

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

    def handle_endtag(self, tag: str) -> None:  # noqa: ARG002
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


def test_a_hostile_trace_stays_text() -> None:
    ranks = [make_rank(number, operators=[make_operator(HOSTILE)]) for number in range(2)]
    hostile, harmless = (page(make_report(make_run(name, ranks=ranks))) for name in (HOSTILE, "harmless"))
    reader = read(hostile)
    assert [tag for tag, _ in reader.tags] == [tag for tag, _ in read(harmless).tags]
    assert "".join(reader.text).count(HOSTILE) >= 2
    assert HOSTILE not in hostile


def test_the_figures_are_the_reports_numbers() -> None:
    by_rank, by_step, heat, waiting, bandwidth = figures(make_run())
    assert (by_rank["x"], by_step["x"]) == (["0", "1"], ["5", "6"])
    compute = {one["colour"]: one["ms"] for one in by_step["series"]}["compute"]
    assert compute == [60.0, 90.0]
    overhead = {one["colour"]: one["ms"] for one in by_rank["series"]}["overhead"]
    assert overhead == [5.0, 20.0]
    assert heat["layers"][0] == {"name": "whole step", "ms": [[100.0, 130.0], [100.0, 160.0]]}
    # Over two steps.
    assert {one["name"]: one["ms"] for one in waiting["series"]} == {"transfer": [12.0, 12.0], "wait": [13.0, 0.0]}
    (points,) = bandwidth["series"]
    assert points["bytes"] == [1_024, 4_194_304]
    assert points["fit"] == pytest.approx([1_024 / (1e-3 + 1_024 / 400e6), 4_194_304 / (1e-3 + 4_194_304 / 400e6)])
    for chart in (by_rank, by_step, heat, waiting, bandwidth):
        json.dumps(chart, allow_nan=False)


def test_charts_of_stacks_have_all_that_the_page_reads() -> None:
    side, changed = Side(path="a", runs=["one"]), changes([make_run()], [make_run()])
    compared = Comparison(perfkit_version="0", before=side, after=side, changes=changed, gates=[], findings=[])
    stream = io.StringIO()
    write_comparison(compared, stream, top=10)
    on_page = [json.loads(text) for text in read(stream.getvalue()).data]
    charts = [*figures(make_run()), *(one for one in on_page if "kind" in one)]
    stacks = [chart for chart in charts if chart["kind"] == "stack"]
    assert len(stacks) == 4
    script = resources.files("perfkit.report").joinpath("assets", "report.js").read_text("utf-8")
    (drawing,) = re.findall(r"^function stack\(.*?^}$", script, re.MULTILINE | re.DOTALL)
    for chart in stacks:
        assert set(re.findall(r"\bit\.(\w+)", drawing)) <= chart.keys()
        assert chart["y"]
        for one in chart["series"]:
            assert {*re.findall(r"\bone\.(\w+)", drawing)} == one.keys()
            assert one["colour"] in COLOURS


def heat_map(run: RunReport) -> dict[str, Any]:
    (found,) = [chart for chart in figures(run) if chart["kind"] == "heat"]
    return found


def test_a_step_that_a_rank_lacks_is_a_hole() -> None:
    run = make_run(ranks=[make_rank(0, [make_step(5), make_step(6)]), make_rank(1, [make_step(6), make_step(7)])])
    heat = heat_map(run)
    assert heat["x"] == ["5", "6", "7"]
    assert [[value is None for value in row] for row in heat["layers"][0]["ms"]] == [
        [False, False, True],
        [True, False, False],
    ]


@pytest.mark.parametrize("run", [make_run(ranks=[]), make_foreign_run(), make_run(ranks=[make_rank(0, [])])])
def test_what_there_is_not_is_not_drawn(run: object) -> None:
    text = page(make_report(run))  # type: ignore[arg-type]
    assert 'class="chart"' not in text


def test_a_large_run_makes_a_page_that_opens() -> None:
    steps = [make_step(number, compute=(60 + number % 7) * MS + number) for number in range(100)]
    text = page(make_report(make_run(ranks=[make_rank(number, steps) for number in range(64)])))
    assert len(text.encode()) < 6_000_000
    slow = make_rank(500, [make_step(number, compute=200 * MS) for number in range(100)])
    many = make_run(ranks=[make_rank(number, steps) for number in range(499)] + [slow])
    heat = heat_map(many)
    assert len(heat["y"]) * len(heat["x"]) <= MOST_CELLS
    assert heat["y"][-1] == "500"
    assert re.fullmatch(r"The 200 of 500 ranks with the longest steps\.", heat["note"])
