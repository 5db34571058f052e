"""What the page of a run opens with, in a real browser: tiles, the step as a bar, its timeline, flame graphs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perfkit.cli import main
from tests.support.browser import Visit, chromium, needs_chromium
from tests.support.processes.launching import ROOT
from tests.support.traces.trace_builder import TraceBuilder
from tests.support.traces.work_traces import module_step
from tests.unit.report.test_html import HOSTILE

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sample") / "page.html"
    assert main(["analyze", str(ROOT / "traces" / "sample-hdf5"), "-o", str(path)]) == 0
    return path


@pytest.fixture(scope="module")
def stacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of one step of one rank with a device, whose functions and modules were recorded."""
    folder = tmp_path_factory.mktemp("stacked")
    builder = TraceBuilder(rank=0, world_size=1)
    module_step(builder).python_function(f"train{HOSTILE}.py(3): f", 700, 100).write(folder / "rank0.json")
    assert main(["analyze", str(folder / "rank0.json"), "-o", str(folder / "page.html")]) == 0
    return folder / "page.html"


def test_the_first_screen_has_tiles_the_step_and_the_slowest_ranks_timeline(browser: Any, sample: Path) -> None:
    visit = Visit(browser, sample)
    page = visit.page
    assert page.locator(".tiles dt").all_text_contents() == [
        "step",
        "throughput",
        "parallel efficiency",
        "ranks",
        "device",
    ]
    parts = page.locator(".ledger .shares span")
    keys = page.locator(".ledger .keys li")
    assert parts.count() == keys.count() >= 4
    wide = sum(parts.evaluate_all("all => all.map(one => one.getBoundingClientRect().width)"))
    assert wide == pytest.approx(page.locator(".ledger").bounding_box()["width"], abs=1)  # it fills its row
    assert page.locator(".chosen h4").text_content().startswith("Rank 1, step ")  # the straggler
    canvas = page.locator(".timeline canvas").bounding_box()
    assert canvas["y"] < 900 - 200  # seen without scrolling
    assert page.locator("details[open]").count() == 0  # tables are folded
    assert visit.trouble == []


def test_a_photograph_without_scrolling_has_all_charts(browser: Any, sample: Path) -> None:
    page = Visit(browser, sample).page
    page.wait_for_function("[...document.querySelectorAll('.plot')].every(one => one.querySelector('svg'))")
    assert page.evaluate("scrollY") == 0
    assert page.locator(".plot svg").count() >= 4


def test_charts_fill_their_row(browser: Any, sample: Path) -> None:
    for width, columns in ((1280, 2), (400, 1)):
        visit = Visit(browser, sample, width)
        visit.draw_all()
        charts = [one.bounding_box() for one in visit.page.query_selector_all(".charts > .chart")]
        row = [one for one in charts if one["y"] == charts[0]["y"]]
        box = visit.page.locator(".charts").bounding_box()
        assert len(row) == columns
        ends = (row[0]["x"], row[-1]["x"] + row[-1]["width"])
        assert ends == pytest.approx((box["x"], box["x"] + box["width"]), abs=1)


def test_printing_unfolds_what_is_folded_and_folds_it_again(browser: Any, sample: Path) -> None:
    page = Visit(browser, sample, color_scheme="dark").page
    pixel = "document.querySelector('.timeline canvas').getContext('2d').getImageData(0, 0, 400, 30).data"
    bright = f"Math.max(...[...{pixel}].filter((_, at) => at % 4 < 3))"
    dark_text = page.evaluate(bright)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details:not([open])").count() == 0
    assert page.evaluate(bright) < dark_text  # the canvas has the colours of a light page
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("details[open]").count() == 0
    pages = page.pdf()
    assert pages.startswith(b"%PDF")


def test_one_step_of_one_rank_has_nothing_to_choose_and_no_scale(browser: Any, stacked: Path) -> None:
    visit = Visit(browser, stacked)
    assert visit.page.locator(".timeline canvas").is_visible()
    assert visit.page.locator(".scale:visible, .strip .cell:visible, .explorer select:visible").count() == 0
    assert visit.trouble == []


def shown(page: Any) -> list[str]:
    return page.locator(".frame:not(:empty)").all_text_contents()  # type: ignore[no-any-return]


@pytest.mark.parametrize("width", [1280, 400])
def test_a_flame_graph_is_read_and_enlarged(browser: Any, stacked: Path, width: int) -> None:
    visit = Visit(browser, stacked, width)
    page = visit.page
    flame = page.locator(".flame")
    assert shown(page)[:3] == ["all · 395 µs", "main  train.py:10 · 360 µs", "forward  model.py:5 · 300 µs"]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.locator(".frame", has_text="forward").click()
    callers = page.locator(".frame.caller")
    assert callers.all_text_contents() == ["all · 395 µs", "main  train.py:10 · 360 µs"]
    whole = flame.bounding_box()["width"]
    assert page.locator(".frame", has_text="forward").bounding_box()["width"] == pytest.approx(whole, abs=2)
    flame.focus()
    for key in ("ArrowDown", "ArrowDown", "Escape"):
        page.keyboard.press(key)
    assert callers.count() == 0
    page.get_by_label("Find frames by name").fill("FORWARD")
    assert page.locator(".frame.matching").all_text_contents() == ["forward  model.py:5 · 300 µs"]
    assert page.locator(".flames [role=status]").text_content() == "300 µs, 75.9 %"
    page.get_by_label("Find frames by name").fill("")
    page.get_by_label("Flame graph", exact=True).select_option(label="by module")
    assert any(text.startswith("Net_0") for text in shown(page))
    assert "device time of rank 0 by module" in (flame.get_attribute("aria-label") or "")
    page.get_by_label("Flame graph", exact=True).select_option(label="by function")
    page.locator(".flame").focus()
    page.locator(".frame", has_text="train</script>").click()
    assert HOSTILE in page.locator(".hint").inner_text() or HOSTILE in "".join(shown(page))
    assert page.query_selector_all("main img") == []
    assert visit.trouble == []


def test_a_page_without_stacks_has_no_flame_graph(sample: Path) -> None:
    text = sample.read_text()
    assert '<div class="flames">' not in text
    assert '<div class="shares"' in text


def test_it_is_not_larger_than_before(sample: Path) -> None:
    assert sample.stat().st_size < 520_000


@pytest.mark.slow  # twice the page
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (400, "dark")])
def test_flame_graphs_are_accessible(browser: Any, stacked: Path, width: int, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    visit = Visit(browser, stacked, width, color_scheme=scheme, bypass_csp=True)
    visit.draw_all()
    found = axe.Axe().run(visit.page).response["violations"]
    assert [(one["id"], one["nodes"][0]["html"][:200]) for one in found] == []
