"""The HTML report in a real browser."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perfkit.cli import main
from perfkit.report.charts.specs import COLOURS
from perfkit.report.renderers.html import write
from perfkit.schema.common import CATEGORIES
from perfkit.schema.run import RunReport
from tests.support.browser import Visit, chromium, needs_chromium
from tests.support.processes.launching import ROOT
from tests.support.reports.histories import make_history
from tests.support.reports.report_builders import make_operator, make_rank, make_report, make_run
from tests.support.reports.scaling_builders import make_scaling_report
from tests.unit.report.content.test_memory_content import GB, make_use, with_memory
from tests.unit.report.test_html import HOSTILE

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as running:
        yield running


def make_page(path: Path, *runs: RunReport) -> Path:
    with path.open("w") as stream:
        write(make_report(*runs), stream, top=10)
    return path


SCREENS = [(1280, "light"), pytest.param(400, "dark", marks=pytest.mark.slow)]
"""Width in pixels and colour scheme; the narrow dark page is tested by CI, because each page takes 3 to 5 s."""


@pytest.mark.parametrize(("width", "scheme"), SCREENS)
def test_the_samples_are_shown_whole(browser: Any, tmp_path: Path, width: int, scheme: str) -> None:
    path = tmp_path / "report.html"
    samples = [str(ROOT / "traces" / name) for name in ("sample-memory", "sample-hdf5")]
    assert main(["analyze", *samples, "-o", str(path)]) == 0
    visit = Visit(browser, path, width, color_scheme=scheme)
    assert visit.page.eval_on_selector_all("h2", "all => all.map(one => one.textContent)") == [
        "Recommendations (estimated savings)",
        "Runs side by side",
        "sample-memory",
        "sample-hdf5",
        "Definitions",
    ]
    assert visit.draw_all() == 10
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= width  # tables scroll, the page does not
    assert visit.trouble == []


def test_charts_and_tables_answer(browser: Any, tmp_path: Path) -> None:
    operators = [make_operator(name, total_ns=ns) for name, ns in (("a", 900), ("b", 2_000_000), ("c", 30_000))]
    run = make_run(ranks=[make_rank(number, operators=operators) for number in range(2)])
    visit = Visit(browser, make_page(tmp_path / "report.html", run))
    visit.draw_all()
    page = visit.page
    select = page.locator("figure.chart select")
    select.select_option(label="compute")
    page.wait_for_function("document.querySelectorAll('.plot')[2].data.find(one => one.visible).z[1][1] === 90")
    table = page.locator("table", has_text="Top operators")
    header = table.locator("th", has_text="total")
    names = table.locator("tbody td:first-child span")
    for order, expected in (("descending", ["b", "c", "a"]), ("ascending", ["a", "c", "b"])):
        header.locator("button").focus()
        page.keyboard.press("Enter")
        assert header.get_attribute("aria-sort") == order
        assert names.all_text_contents() == expected
    page.locator(".plot").first.scroll_into_view_if_needed()
    page.locator(".plot .bars path").first.hover(force=True)  # the layer above it receives the events
    page.wait_for_selector(".hovertext")
    assert " ms" in page.locator(".hovertext").first.text_content()
    assert visit.trouble == []


@pytest.mark.slow  # loads the page three times; `make test` has that of the samples
@pytest.mark.parametrize(("width", "scheme"), SCREENS)
def test_series_are_charted(browser: Any, tmp_path: Path, width: int, scheme: str) -> None:
    path = tmp_path / "report.html"
    with path.open("w") as stream:
        write(make_scaling_report(), stream, top=10)
    visit = Visit(browser, path, width, color_scheme=scheme)
    charts = visit.page.locator("#comparison figure.chart")
    assert charts.count() == 4
    for place in range(4):
        charts.nth(place).scroll_into_view_if_needed()
        charts.nth(place).locator(".plotly").first.wait_for()
    ticks = charts.first.locator(".xtick text").all_text_contents()
    assert ticks == ["1", "2", "4"]
    assert charts.nth(1).locator(".legendtext").all_text_contents() == [
        "load balance",
        "host / launch",
        "input",
        "dependency (serialisation)",
        "transfer",
        "computation",
    ]
    assert visit.page.locator("#insights li").count() == len(make_scaling_report().insights) > 0
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
    assert visit.trouble == []


@pytest.mark.slow  # likewise
@pytest.mark.parametrize(("width", "scheme"), SCREENS)
def test_memory_is_drawn_up_to_its_limit(browser: Any, tmp_path: Path, width: int, scheme: str) -> None:
    run = with_memory(*[[make_use((60 + number) * GB)] for number in range(6)])
    visit = Visit(browser, make_page(tmp_path / "report.html", run), width, color_scheme=scheme)
    visit.draw_all()
    chart = visit.page.locator("figure.chart", has_text="Memory over the step")
    assert chart.locator(".legendtext").all_text_contents() == [f"rank {number}" for number in (5, 4, 3, 2, 1)]
    assert "device memory" in chart.locator(".annotation-text").all_text_contents()
    drawn = chart.locator(".plot").evaluate("plot => plot.data.map(line => [line.line.shape, Math.max(...line.y)])")
    assert drawn == [["hv", number * GB] for number in (65, 64, 63, 62, 61)]
    top = chart.locator(".plot").evaluate("plot => plot.layout.yaxis.range[1]")
    assert top > 80 * GB
    assert visit.page.locator("table", has_text="Memory (").locator("tbody tr").count() == 6
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
    assert visit.trouble == []


def test_a_hostile_trace_runs_nothing(browser: Any, tmp_path: Path) -> None:
    ranks = [make_rank(number, operators=[make_operator(HOSTILE)]) for number in range(2)]
    visit = Visit(browser, make_page(tmp_path / "report.html", make_run(HOSTILE, ranks=ranks)))
    visit.draw_all()
    assert visit.page.query_selector_all("img") == []
    assert HOSTILE in visit.page.locator("h2").first.text_content()
    assert visit.trouble == []


@pytest.mark.slow  # the same renderer draws the charts of a report in `make test`
def test_a_history_is_drawn(browser: Any, tmp_path: Path) -> None:
    make_history(tmp_path / "runs", [100, 101, 102, 100.5, 120, 121, 122, 123], ["<b>" * 14] * 8)
    assert main(["history", str(tmp_path / "runs"), "-o", str(tmp_path / "history.html")]) == 0
    visit = Visit(browser, tmp_path / "history.html", 400)
    assert visit.draw_all() == 2
    levels = "document.querySelector('.plot').layout.shapes.map(one => Math.round(one.y0))"
    assert visit.page.evaluate(levels) == [101, 122]
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= 400
    assert visit.page.query_selector_all("svg b, table b") == []
    assert visit.trouble == []


@pytest.mark.slow  # reads two runs and starts a browser: 9 s
def test_a_comparison_is_drawn(browser: Any, tmp_path: Path) -> None:
    samples = [str(ROOT / "traces" / name) for name in ("sample-memory", "sample-hdf5")]
    assert main(["compare", *samples, "-o", str(tmp_path / "compare.html")]) == 0
    visit = Visit(browser, tmp_path / "compare.html")
    assert visit.draw_all() == 1
    assert visit.page.evaluate("document.querySelector('.plot').data.length") == 5
    drawn = "document.querySelector('.plot').data.map(one => [one.marker.color, one.marker.pattern.shape])"
    assert [tuple(pair) for pair in visit.page.evaluate(drawn)] == [
        (COLOURS[category], shape) for category, shape in zip(CATEGORIES, ("", "/", "x", ".", ""), strict=True)
    ]
    assert visit.page.evaluate("document.querySelector('.plot').layout.yaxis.title.text") == "ms, exposed"
    assert visit.trouble == []
