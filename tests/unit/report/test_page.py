"""The HTML report in a real browser."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from perfkit.cli import main
from perfkit.records.common import Category
from perfkit.records.rank import StepBreakdown
from perfkit.records.run import RunReport
from perfkit.report.renderers.html import write
from perfkit.tables.labels import COLOURS
from tests.support.browser import Visit, chromium, needs_chromium
from tests.support.processes.launching import ROOT
from tests.support.reports.histories import make_history
from tests.support.reports.report_builders import (
    MS,
    make_across,
    make_operator,
    make_rank,
    make_report,
    make_run,
    make_step,
)
from tests.support.reports.scaling_builders import make_scaling_report
from tests.support.traces.trace_builder import TraceBuilder
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
    visit.page.evaluate("location.hash = '#run-2'")  # runs are folded, and a link unfolds its own
    unfolded = visit.page.locator("details[open] > summary h2")
    unfolded.wait_for()  # `hashchange` is an event of its own, after the click's
    assert unfolded.all_text_contents() == ["sample-hdf5"]
    assert visit.draw_all() == 8
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= width  # tables scroll, the page does not
    assert visit.trouble == []


def test_charts_and_tables_answer(browser: Any, tmp_path: Path) -> None:
    operators = [make_operator(name, total_ns=ns) for name, ns in (("a", 900), ("b", 2_000_000), ("c", 30_000))]
    run = make_run(ranks=[make_rank(number, operators=operators) for number in range(2)])
    visit = Visit(browser, make_page(tmp_path / "report.html", run))
    visit.draw_all()
    page = visit.page
    steps = page.locator(".strip.steps .cell")
    measures = (("step time", "130 ms"), ("compute", "90 ms"), ("step time without communication", "110 ms"))
    for measure, expected in measures:
        page.get_by_label("Colour by").select_option(label=measure)
        assert steps.last.get_attribute("aria-label") == f"step 6; {measure}, largest over ranks: {expected}"
    table = page.locator("table", has_text="Top operators")
    header = table.locator("th", has_text="total")
    names = table.locator("tbody td:first-child span")
    for order, in_order in (("descending", ["b", "c", "a"]), ("ascending", ["a", "c", "b"])):
        header.locator("button").focus()
        page.keyboard.press("Enter")
        assert header.get_attribute("aria-sort") == order
        assert names.all_text_contents() == in_order
    page.emulate_media(media="print")
    assert header.locator("button").is_visible()  # it is the heading
    assert not page.locator(".controls").first.is_visible()
    page.emulate_media(media="screen")
    plot = page.locator(".plot").first
    plot.focus()
    page.keyboard.press("ArrowRight")
    assert page.locator(".hint").inner_text().split("\n") == ["rank 0: 75 ms", "compute"]
    assert visit.trouble == []


@pytest.mark.slow  # ten thousand rows
def test_long_tables_are_shown_in_pages_and_filtered(browser: Any, tmp_path: Path) -> None:
    operators = [make_operator(f"aten::op{number}", total_ns=(10_000 - number) * 1000) for number in range(10_000)]
    path = tmp_path / "report.html"
    with path.open("w") as stream:
        write(make_report(make_run(ranks=[make_rank(operators=operators)])), stream, top=10_000)
    visit = Visit(browser, path)
    visit.unfold()
    page = visit.page
    table = page.locator("table", has_text="Top operators")
    controls = page.get_by_label("Filter: Top operators").locator("..")
    names = table.locator("tbody td:first-child span")
    assert names.all_text_contents() == [f"aten::op{number}" for number in range(10)]
    controls.get_by_role("button", name="next").click()
    assert names.first.text_content() == "aten::op10"
    table.locator("th button", has_text="total").click(click_count=2, delay=20)
    assert names.first.text_content() == "aten::op9999"
    controls.locator("input").fill("OP777")
    assert controls.get_by_role("status").text_content() == "rows 1 to 10 of 11, of 10,000"
    assert sorted(names.all_text_contents()) == [f"aten::op777{number}" for number in range(10)]
    controls.get_by_role("button", name="next").click()
    assert names.all_text_contents() == ["aten::op777"]
    assert controls.get_by_role("button", name="next").is_disabled()
    title = page.locator("summary", has_text="Top operators").bounding_box()
    assert title["y"] < controls.bounding_box()["y"] < table.locator("thead").bounding_box()["y"]
    assert page.get_by_role("table", name="Top operators", exact=False).get_attribute("aria-label").startswith("Top ")
    controls.locator("input").fill("nothing")
    assert controls.get_by_role("status").text_content() == "none of 10,000 rows"
    assert visit.trouble == []


def test_a_print_has_more_rows_and_counts_those_left_out(browser: Any, tmp_path: Path) -> None:
    operators = [make_operator(f"aten::op{number}", total_ns=(40 - number) * 1000) for number in range(40)]
    visit = Visit(browser, make_page(tmp_path / "report.html", make_run(ranks=[make_rank(operators=operators)])))
    visit.unfold()
    page = visit.page
    table = page.locator("table", has_text="Top operators")
    names, left_out = table.locator("tbody td:first-child span"), table.locator(".unprinted")

    def printed() -> tuple[int, str]:
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        page.emulate_media(media="print")
        seen = names.count(), left_out.inner_text() if left_out.is_visible() else ""
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        page.emulate_media(media="screen")
        return seen

    assert printed() == (25, "15 of 40 rows are not printed")
    assert names.count() == 10
    assert not left_out.is_visible()
    page.get_by_label("Filter: Top operators").fill("op3")
    assert printed() == (11, "29 of 40 rows are not printed")
    operators = operators[:20]
    visit = Visit(browser, make_page(tmp_path / "short.html", make_run(ranks=[make_rank(operators=operators)])))
    visit.unfold()
    page = visit.page
    table = page.locator("table", has_text="Top operators")
    names, left_out = table.locator("tbody td:first-child span"), table.locator(".unprinted")
    assert printed() == (20, "")
    page.emulate_media(media="print")  # of a head that is repeated on the next sheet, Chromium prints no button
    assert table.locator("th button").first.evaluate("button => getComputedStyle(button).display") == "contents"


@pytest.mark.slow  # `make test` has the page of the samples
def test_series_are_charted(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    with path.open("w") as stream:
        write(make_scaling_report(), stream, top=10)
    visit = Visit(browser, path, 400, color_scheme="dark")
    charts = visit.page.locator("#answer figure.chart")
    count = charts.count()
    assert count == 3  # the picture of both sources, and where each lost points
    for place in range(count):
        charts.nth(place).locator(".plot > svg").wait_for()
    parts = visit.page.eval_on_selector_all("main > section", "all => all.map(one => one.id)")
    assert parts == ["answer", *(["findings"] if "findings" in parts else []), "insights", "comparison"]
    with visit.page.expect_download() as saved:
        charts.first.get_by_role("button", name="SVG").click()
    text = Path(saved.value.path()).read_text()
    assert text.startswith("<svg")
    assert "var(" not in text  # it needs no page
    with visit.page.expect_download() as saved:
        charts.first.get_by_role("button", name="PNG").click()
    assert Path(saved.value.path()).read_bytes().startswith(b"\x89PNG")
    assert visit.page.locator("#insights li").count() == len(make_scaling_report().insights) > 0
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= 400
    assert visit.trouble == []


@pytest.mark.slow  # likewise
def test_memory_is_drawn_up_to_its_limit(browser: Any, tmp_path: Path) -> None:
    run = with_memory(*[[make_use((60 + number) * GB)] for number in range(6)])
    visit = Visit(browser, make_page(tmp_path / "report.html", run), 400, color_scheme="dark")
    visit.draw_all()
    chart = visit.page.locator("figure.chart", has_text="Memory over the step")
    legend = [text.strip() for text in chart.locator(".legend li").all_text_contents()]
    assert legend == [f"rank {number}" for number in (5, 4, 3, 2, 1)]
    assert chart.locator(".note").all_text_contents() == ["device memory"]
    shape = "path => { const box = path.getBBox(); return [box.y, path.getAttribute('d').includes('V')]; }"
    lines = chart.locator(".plot path[stroke-width='1.5']").evaluate_all(f"all => all.map({shape})")
    assert len(lines) == 5
    assert all(steps for _, steps in lines)
    assert [top for top, _ in lines] == sorted(top for top, _ in lines)  # the highest peak first
    limit = chart.locator(".limit").evaluate("path => path.getBBox().y")
    assert 0 < limit < lines[0][0]
    assert visit.page.locator("table", has_text="Memory (").locator("tbody tr").count() == 6
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= 400
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
    levels = "all => all.map(one => Math.round(one.dataset.y))"
    assert visit.page.locator("figure.chart").first.locator(".limit").evaluate_all(levels) == [101, 122]
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= 400
    assert visit.page.query_selector_all("svg b, table b") == []
    assert visit.trouble == []


@pytest.mark.slow  # reads two runs and starts a browser: 9 s
def test_a_comparison_is_drawn(browser: Any, tmp_path: Path) -> None:
    samples = [str(ROOT / "traces" / name) for name in ("sample-memory", "sample-hdf5")]
    assert main(["compare", *samples, "-o", str(tmp_path / "compare.html")]) == 0
    visit = Visit(browser, tmp_path / "compare.html")
    assert visit.draw_all() == 1
    swatches = visit.page.locator(".legend li")
    assert swatches.count() == 4  # on the CPU there are no copies
    drawn = "all => all.map(one => [...one.querySelectorAll('path')].map(path => path.getAttribute('fill')))"
    shapes: dict[Category, str] = {"compute": "", "communication": "/", "data_loading": ".", "overhead": ""}
    assert swatches.evaluate_all(drawn) == [
        [COLOURS[category], *([f"url(#hatch-{ord(shape)})"] if shape else [])] for category, shape in shapes.items()
    ]
    assert visit.page.locator(".plot .axis").first.text_content() == "ms, exposed"
    assert visit.trouble == []


@pytest.fixture(scope="module")
def delayed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a run of 8 ranks and 10 steps, in which rank 5 rests for 30 ms in each forward pass."""
    folder = tmp_path_factory.mktemp("delayed")
    for rank in range(8):
        delayed_trace(rank).write(folder / f"rank{rank}.json")
    assert main(["analyze", str(folder), "-o", str(folder / "page.html")]) == 0
    return folder / "page.html"


def delayed_trace(rank: int) -> TraceBuilder:
    trace, late = TraceBuilder(rank=rank, world_size=8, backend="gloo", host_name=f"node{rank // 4}"), 30_000
    rests = late if rank == 5 else 0
    for step in range(10):
        begin = step * (100_000 + late) + (step == 7) * 5_000
        trace.step(step, begin, 100_000 + late - 10).annotation("forward", begin, 50_000 + rests)
        trace.op("aten::linear", begin + 100 + rests, 49_000).op(
            "aten::mul", begin + 51_000 + rests, 40_000 + 17 * rank
        )
        started = begin + 92_000 + rests
        trace.op("c10d::allreduce_", started, 10).gloo("all_reduce", started, begin + 128_000 - started)
    return trace


@pytest.mark.slow  # 8 ranks
def test_two_clicks_lead_to_the_stragglers_timeline(browser: Any, delayed: Path) -> None:
    assert delayed.stat().st_size < 700_000
    visit = Visit(browser, delayed)
    page = visit.page
    ranks, steps = page.locator(".strip.ranks .cell"), page.locator(".strip.steps .cell")
    assert (ranks.count(), steps.count()) == (8, 10)
    assert page.locator(".hostname").all_text_contents() == ["node0", "node1"]
    late = page.locator(".strip.ranks .cell.late")
    assert late.all_text_contents() == ["5"]
    colours = ranks.evaluate_all("all => all.map(one => one.style.background)")
    assert colours.count(colours[5]) == 1  # seen at a glance
    late.click()
    steps.nth(6).click()
    assert page.locator(".chosen h4").text_content().startswith("Rank 5, step 6: ")
    drawn = page.locator(".timeline canvas").get_attribute("aria-label")
    assert "idle, by cause: the longest is" in drawn
    assert "30.1 ms" in drawn
    page.locator(".timeline canvas").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert page.locator(".hint").inner_text().endswith("idle, by cause")
    command = page.locator(".command code")
    assert command.text_content() == f"perfkit view {delayed.parent}/rank5.json --step 6"
    page.keyboard.press("+")  # of the 135 ms, the middle two thirds
    assert command.text_content() == f"perfkit view {delayed.parent}/rank5.json --step 6 --at 22.5ms-112.5ms"
    page.keyboard.press("0")
    assert command.text_content() == f"perfkit view {delayed.parent}/rank5.json --step 6"
    assert visit.trouble == []


@pytest.mark.slow  # the same page again
def test_only_the_timeline_of_the_page_follows_the_colour_scheme(browser: Any, delayed: Path) -> None:
    visit = Visit(browser, delayed, color_scheme="light")
    page = visit.page
    page.locator(".strip.ranks .cell").nth(5).click()
    for step in (6, 7, 6):
        page.locator(".strip.steps .cell").nth(step).click()
    two_frames = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
    page.evaluate(two_frames)  # after which those that are gone have been told of their size
    page.evaluate("() => { window.drawn = new Set(); Timeline.prototype.draw = function() { drawn.add(this); }; }")
    page.emulate_media(color_scheme="dark")
    page.evaluate(two_frames)
    assert page.evaluate("drawn.size") == 1
    assert visit.trouble == []


# Height of what changed in a canvas (CSS pixels) since the last call.
CHANGED = """canvas => {
    const { width, height } = canvas;
    const pen = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
    pen.drawImage(canvas, 0, 0);
    const now = pen.getImageData(0, 0, width, height).data;
    const before = canvas.before ?? now, rows = [];
    for (let at = 0; at < now.length; at++) if (now[at] !== before[at]) rows.push(Math.floor(at / 4 / width));
    canvas.before = now;
    return rows.length ? (rows.at(-1) - rows[0]) / devicePixelRatio : 0;
}"""


@pytest.mark.slow  # the same page again
def test_a_collective_is_linked_to_the_other_ranks(browser: Any, delayed: Path) -> None:
    visit = Visit(browser, delayed)
    page = visit.page
    page.locator(".strip.ranks .cell").nth(5).click()
    page.locator(".strip.steps .cell").nth(6).click()
    canvas, about = page.locator(".timeline canvas"), page.locator(".slice")
    canvas.focus()
    page.keyboard.press("ArrowRight")
    assert "joined last" not in about.inner_text()
    canvas.evaluate(CHANGED)
    for _ in range(2):
        page.keyboard.press("ArrowDown")
    assert page.locator(".hint").inner_text().startswith("all_reduce")
    assert canvas.evaluate(CHANGED) > 40  # in the lanes of another rank too
    assert about.locator(".late").text_content() == "Rank 5 joined last: the others waited for it, up to 30 ms."
    table = about.locator("table")
    assert table.locator("tbody tr").count() == 8
    cells = table.locator("tbody tr").evaluate_all("all => all.map(one => [...one.cells].map(cell => cell.innerText))")
    assert cells[0][0] == "0"
    assert cells[0][1:] == ["92 ms", "128 ms", "36 ms", "30 ms"]
    assert cells[5][1:] == ["122 ms", "128 ms", "6 ms", "0 ns"]
    link = table.locator("button")
    other = link.text_content()
    link.click()
    assert page.locator(".chosen h4").text_content().startswith(f"Rank {other}, step 6: ")
    assert about.locator(".late").text_content().startswith("Rank 5 joined last")
    assert page.evaluate("document.activeElement.tagName") == "CANVAS"
    box = canvas.bounding_box()  # the collective is in the middle; clicking beside it lets it go
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 45)
    assert "joined last" not in about.inner_text()
    assert visit.trouble == []


@pytest.mark.slow  # the same page again
def test_a_tables_row_leads_to_its_longest(browser: Any, delayed: Path) -> None:
    visit = Visit(browser, delayed)
    page = visit.page
    found, chosen = page.locator(".found"), page.locator(".chosen h4")
    visit.unfold()

    def follow(table: str, name: str) -> None:
        rows = page.locator("table", has=page.locator("caption", has_text=table)).locator("tbody tr", has_text=name)
        rows.first.locator("button.find").click()

    follow("Annotated phases", "forward")  # the straggler's are the longest; only names are known of phases
    assert found.text_content() == "forward: the longest in the timelines of this page is chosen below."
    assert chosen.text_content().startswith("Rank 5, step ")
    assert page.locator(".slice > p").first.text_content().startswith("forward; 80 ms, from 0")
    follow("Top operators", "aten::mul")  # longest on rank 7, in the first step: of neither is there a timeline
    where = "aten::mul: the largest self time is 40.12 ms, on rank 7 in step 0, 51 ms after the step's start"
    assert found.text_content() == f"{where}; the longest in the timelines of this page is chosen below."
    follow("Collectives (", "all_reduce")  # the others wait for rank 5
    assert found.text_content().startswith("all_reduce: the longest is 36 ms, on rank 0 in step 0, 92 ms")
    assert page.locator(".slice > p").first.text_content().startswith("all_reduce; 36 ms, from 92 ms")
    assert page.evaluate("document.activeElement.tagName") == "CANVAS"
    assert visit.trouble == []


@pytest.mark.slow  # reads the traces again
def test_without_timelines_a_row_leads_to_the_command(browser: Any, delayed: Path) -> None:
    path = delayed.with_name("bare.html")
    assert main(["analyze", str(delayed.parent), "--no-timelines", "-o", str(path)]) == 0
    visit = Visit(browser, path)
    visit.unfold()
    page = visit.page
    operators = page.locator("table", has=page.locator("caption", has_text="Top operators"))
    operators.locator("tbody tr", has_text="aten::mul").locator("button.find").click()
    assert page.locator(".found").text_content().endswith("on rank 7 in step 0, 51 ms after the step's start.")
    shown = page.locator(".command code").text_content()
    assert shown == f"perfkit view {delayed.parent}/rank7.json --step 0 --at 0ms-171.4ms"
    phases = page.locator("table", has=page.locator("caption", has_text="Annotated phases"))
    assert phases.locator("button.find").count() == 0
    assert visit.trouble == []


@pytest.mark.slow  # the same page again
def test_a_step_without_a_timeline_leads_to_others(browser: Any, delayed: Path) -> None:
    visit = Visit(browser, delayed)
    page = visit.page
    page.locator(".strip.ranks .cell").nth(0).click()
    page.locator(".strip.steps .cell").nth(1).click()
    assert page.locator(".timeline").count() == 0
    page.locator(".chosen button", has_text="rank 5, step").first.click()
    assert page.locator(".timeline canvas").is_visible()
    assert page.locator(".strip.ranks .cell[aria-pressed=true]").all_text_contents() == ["5"]
    page.get_by_label("Order of the ranks").select_option(label="largest first")
    assert page.locator(".strip.ranks .cell").first.text_content() == "5"
    assert visit.trouble == []


@pytest.mark.slow  # twice the page
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (400, "dark")])
def test_it_is_accessible(browser: Any, delayed: Path, width: int, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    visit = Visit(browser, delayed, width, color_scheme=scheme, bypass_csp=True)
    visit.draw_all()
    visit.page.locator(".strip.ranks .cell.late").click()
    visit.page.locator(".timeline canvas").focus()
    for _ in range(3):  # the collective, with its table
        visit.page.keyboard.press("ArrowDown")
    assert visit.page.locator(".linked table").is_visible()
    found = axe.Axe().run(visit.page).response["violations"]
    assert [(one["id"], one["nodes"][0]["html"][:200]) for one in found] == []
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.slow  # 1,024 ranks
def test_a_thousand_ranks_are_cells_of_their_hosts(browser: Any, tmp_path: Path) -> None:
    def steps(rank: int) -> list[StepBreakdown]:
        late = 40 * MS if rank == 700 else 0
        return [
            make_step(step, compute=60 * MS + 1000 * rank + late, communication=50 * MS - late) for step in range(20)
        ]

    ranks = [make_rank(rank, steps(rank), host=f"node{rank // 8:03d}") for rank in range(1024)]
    path = make_page(tmp_path / "report.html", make_run(ranks=ranks, world_size=1024))
    assert path.stat().st_size < 1_000_000
    visit = Visit(browser, path)
    page = visit.page
    cells = page.locator(".strip.ranks .cell")
    assert cells.count() == 1024
    assert page.locator(".hostname").count() == 128
    colours = cells.evaluate_all("all => all.map(one => one.style.background)")
    assert colours.count(colours[700]) == 1
    assert page.locator(".strip.ranks [tabindex='0']").count() == 1  # one stop of the Tab key
    page.get_by_label("Order of the ranks").select_option(label="largest first")
    cells.first.focus()
    page.keyboard.press("Enter")
    assert page.locator(".chosen h4").text_content().startswith("Rank 700, ")
    assert "compute 100.7 ms (+40.19 ms)" in page.locator(".chosen").inner_text()
    title = page.locator("figcaption", has_text="Mean profiled step per rank").inner_text()
    assert "The 256 of 1024 ranks that take longest without communication." in title
    assert visit.trouble == []


def test_labels_beside_a_chart_are_shown_whole(browser: Any, tmp_path: Path) -> None:
    across = make_across()
    rows = [replace(row, busbw=row.busbw and row.busbw * 60) for row in across.collectives]
    visit = Visit(browser, make_page(tmp_path / "report.html", make_run(cross_rank=replace(across, collectives=rows))))
    visit.draw_all()
    labels = visit.page.locator("text.tick.y")
    assert "100 MB/s" in labels.all_text_contents()
    assert min(labels.evaluate_all("all => all.map(one => one.getBBox().x)")) >= 0


def test_dark_marks_stand_out_from_a_dark_page(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    assert main(["analyze", str(ROOT / "traces" / "sample-memory"), "--no-timelines", "-o", str(path)]) == 0
    for scheme, fill in (("dark", "rgb(125, 135, 146)"), ("light", "rgb(68, 68, 68)")):
        visit = Visit(browser, path, color_scheme=scheme)
        visit.draw_all()
        fills = visit.page.locator('.chart [fill="#444444"]').evaluate_all(
            "all => all.map(one => getComputedStyle(one).fill)"
        )
        assert set(fills) == {fill}
        assert len(fills) == 2  # the mark, and the legend's


def test_a_narrow_page_shows_the_buttons_beside_names_and_a_print_is_light(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    assert main(["analyze", str(ROOT / "traces" / "sample-memory"), "--no-timelines", "-o", str(path)]) == 0
    visit = Visit(browser, path, 400, color_scheme="dark")
    visit.unfold()
    beyond = visit.page.locator("td.name:first-child button.find").evaluate_all(
        "all => all.map(one => one.getBoundingClientRect().right - one.closest('td').getBoundingClientRect().right)"
    )
    assert max(beyond) <= 0
    paper = "getComputedStyle(document.body).backgroundColor"
    assert visit.page.evaluate(paper) == "rgb(18, 22, 28)"
    visit.page.emulate_media(media="print")
    assert visit.page.evaluate(paper) == "rgb(255, 255, 255)"
