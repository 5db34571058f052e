"""The page of a plan: its chart has the plan's numbers, and it opens in a real browser."""

import io
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from perfkit.records.plan import Plan
from perfkit.report.charts.plan import page_charts
from perfkit.report.renderers.html import write
from perfkit.tools.plan.hardware import find_hardware
from perfkit.tools.plan.planner import Request, make_plan
from perfkit.tools.plan.precision import PRECISIONS
from perfkit.tools.plan.shape import gpt_shape
from tests.support.browser import Visit, chromium, needs_chromium


def plan(name: str = "gpt", *, device: bool = True) -> Plan:
    precision = PRECISIONS["bfloat16"]
    shape = gpt_shape(name=name, layers=8, width=4096, heads=32, block=2048, vocabulary=32_000, bias=False)
    hardware = find_hardware(precision, device=None, cluster="polaris") if device else None
    return make_plan(Request(shape=shape, ranks=16, global_batch=64, precision="bfloat16", device=hardware))


def points(shown: Plan) -> list[dict[str, Any]]:
    [[chart]] = page_charts(shown).sections
    return list(chart.spec["data"])


def test_the_chart_has_every_layout_and_the_devices_memory() -> None:
    shown = plan()
    *groups, limit = points(shown)
    drawn = sorted((x, y) for group in groups for x, y in zip(group["x"], group["y"], strict=True))
    assert drawn == sorted((one.memory.needed_bytes, one.step.step_ns) for one in shown.layouts if one.step is not None)
    assert len(drawn) == len(shown.layouts)
    assert (limit["name"], limit["x"]) == ("the device's memory", [40 * 10**9] * 2)
    assert shown.device is not None
    assert [size for group in groups for size in group["marker"]["size"]].count(16) == (shown.best is not None)
    unlimited = replace(shown, device=replace(shown.device, memory_bytes=None))
    assert "the device's memory" not in [group["name"] for group in points(unlimited)]


def test_long_steps_are_in_minutes_and_hours() -> None:
    shown = plan()
    slow = [
        replace(one, step=replace(one.step, step_ns=31e12 * 10**place)) if one.step else one
        for place, one in enumerate(shown.layouts[:2])
    ]
    [[chart]] = page_charts(replace(shown, layouts=slow, best=None)).sections
    axes = chart.spec["layout"]
    assert axes["yaxis"]["title"]["text"] == "time per step"
    assert {"10 h", "50 h"} <= {*axes["yaxis"]["ticktext"]}
    assert all(text.endswith((" min", " h")) for text in axes["yaxis"]["ticktext"])
    assert all(text.endswith("GB") for text in axes["xaxis"]["ticktext"])


def test_context_and_expert_parallelism_have_series_of_their_own() -> None:
    names = [group["name"] for group in points(plan())]
    assert "context parallel" in names
    assert "expert parallel" not in names


def test_without_times_there_is_no_chart() -> None:
    assert page_charts(plan(device=False)).sections == [[]]


def test_the_page_defines_nothing_that_a_plan_does_not_have() -> None:
    stream = io.StringIO()
    write(plan(device=False), stream, top=5)
    assert "wall time" not in stream.getvalue().partition("<script")[0]


@needs_chromium
@pytest.mark.slow  # starts a browser
def test_it_is_drawn(tmp_path: Path) -> None:
    page = tmp_path / "plan.html"
    with page.open("w") as stream:
        write(plan("<b>bold</b>"), stream, top=10)
    with chromium() as browser:
        visit = Visit(browser, page, 400)
        assert visit.draw_all() == 1
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= 400
        assert visit.page.query_selector_all("svg b, table b, h2 b") == []
        drawn = [text.text_content() for text in visit.page.query_selector_all(".plot > svg text")]
        [[chart]] = page_charts(plan("<b>bold</b>")).sections
        given = chart.spec["layout"]["yaxis"]["ticktext"]
        assert len({*drawn} & {*given}) >= 2
        assert not any(" k" in text or " m" in text.removesuffix(" min").removesuffix(" ms") for text in drawn if text)
        assert visit.trouble == []
