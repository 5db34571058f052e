"""Memory in the reports: the table, the chart, the DataFrame, and nothing if it was not recorded."""

import io
import json
from typing import Any

import pytest
from msgspec.structs import replace

from perfkit.errors import UsageError
from perfkit.records.per_rank.memory import MemoryBlock, MemoryBytes, MemoryHolder
from perfkit.records.rank import MemoryCurve, MemoryPeak, MemoryUse
from perfkit.records.run import RunReport
from perfkit.report.renderers import console, markdown
from perfkit.subjects.memory.charts import CHARTS
from tests.support.reports.report_builders import MS, make_rank, make_report, make_run
from tests.unit.report.test_html import HOSTILE, page, read

GB = 10**9


def make_use(peak: int = 60 * GB, **changes: Any) -> MemoryUse:
    """A device of 80 GB, most of it in use 30 ms into step 6."""
    most = MemoryPeak(step=6, allocated_bytes=peak, reserved_bytes=peak + 5 * GB, at_ns=30 * MS)
    fields: dict[str, Any] = {
        "device": "device 0",
        "limit_bytes": 80 * GB,
        "steps": [MemoryPeak(step=5, allocated_bytes=GB, reserved_bytes=None, at_ns=0), most],
        "peak": most,
        "phase": "perfkit.backward",
        "category": "compute",
        "curve": MemoryCurve(step=6, at_ns=[0, 30 * MS, 60 * MS, 100 * MS], allocated_bytes=[peak // 2, peak, GB, GB]),
    }
    return MemoryUse(**(fields | changes))


def make_host_use() -> MemoryUse:
    return make_use(3 * GB, device="CPU", limit_bytes=None, phase=None, category="data_loading")


def with_memory(*of_ranks: list[MemoryUse]) -> RunReport:
    return make_run(ranks=[make_rank(number, memory=uses) for number, uses in enumerate(of_ranks)])


@pytest.mark.parametrize(("width", "no_room_for"), [(80, "step, after"), (200, "")])
def test_the_terminal_shows_every_figure_whole_or_not_at_all(width: int, no_room_for: str) -> None:
    stream = io.StringIO()
    console.write(make_report(with_memory([make_use(phase=HOSTILE + "\x1b[31m")])), stream, top=10, width=width)
    text = stream.getvalue()
    shown = text.partition("Memory (")[2].partition("\n\n")[0]
    for figure in ("60.0 GB", "75.0 % of 80.0 GB", "65.0 GB"):
        assert figure in shown
    assert ("30.0 ms" in shown) is not bool(no_room_for)
    assert f"no room here for: {no_room_for}" in shown or not no_room_for
    assert all(len(line) <= width for line in shown.splitlines()[1:])
    assert "\x1b[31m" not in text


def test_of_many_ranks_the_highest_and_the_lowest_are_shown() -> None:
    run = with_memory(*[[make_use((10 + number) * GB)] for number in range(40)])
    stream = io.StringIO()
    markdown.write(make_report(run), stream, top=10)
    table = stream.getvalue().partition("### Memory")[2].partition("###")[0]
    assert [int(line.split("|")[1]) for line in table.splitlines()[4:20]] == [0, *range(25, 40)]
    assert "24 more; shown: the 15 highest peaks and the lowest" in table
    drawn = CHARTS["memory"].draw(run)
    assert drawn
    assert [one["name"] for one in drawn.spec["data"]] == [f"rank {number}" for number in (39, 38, 37, 36, 35)]
    assert drawn.note == "device 0, step 6. The 5 highest peaks of 40."


def test_the_chart_has_the_tables_numbers() -> None:
    drawn = CHARTS["memory"].draw(with_memory([make_host_use(), make_use()]))
    assert drawn
    (line,) = drawn.spec["data"]  # of the device: it is its memory that runs out
    assert line["x"] == [0, 30, 60, 100]
    assert line["y"][line["marker"]["size"].index(10)] == max(line["y"]) == 60 * GB
    (limit,) = drawn.spec["layout"]["shapes"]
    assert (limit["y0"], limit["y1"]) == (80 * GB, 80 * GB)
    json.dumps(drawn.spec, allow_nan=False)
    far = CHARTS["memory"].draw(with_memory([make_use(2 * GB)]))
    assert far
    assert "shapes" not in far.spec["layout"]
    host = CHARTS["memory"].draw(with_memory([make_host_use()]))
    assert host
    assert host.note == "CPU, step 6."


def test_line_names_contain_what_differs() -> None:
    later = make_use(70 * GB)
    later = replace(later, curve=replace(later.curve, step=7))
    drawn = CHARTS["memory"].draw(with_memory([make_use(device="device 3")], [later]))
    assert drawn
    assert [one["name"] for one in drawn.spec["data"]] == ["rank 1, device 0, step 7", "rank 0, device 3, step 6"]
    assert drawn.note == ""


def test_a_notebook_has_the_same_chart() -> None:
    figure = with_memory([make_use()], [make_use(GB)]).plot_memory()
    assert list(figure.data[0].y) == [30 * GB, 60 * GB, GB, GB]
    assert figure.data[0].line.shape == "hv"
    assert figure.layout.shapes[0].y0 == 80 * GB
    with pytest.raises(UsageError, match="recorded with profile_memory"):
        make_run().plot_memory()


def test_nothing_is_shown_if_not_recorded() -> None:
    shown = "".join(read(page(make_report())).text)
    assert "Memory (" not in shown
    assert "Memory over the step" not in shown
    assert "Memory allocated by torch's allocators" in shown  # the definitions are the same for all


AT_PEAK = MemoryBytes(parameters=10 * GB, gradients=0, activations=49 * GB, unknown=GB)
HOLDERS = [
    MemoryHolder(
        category="activations",
        operator="aten::linear",
        context="src/train.py(7): main",
        module="Linear_0",
        phase="forward",
        count=1_234,
        bytes=49 * GB,
        largest_bytes=GB,
    )
]


def make_categorized(**changes: Any) -> MemoryUse:
    curve = MemoryCurve(
        step=6,
        at_ns=[0, 30 * MS, 100 * MS],
        allocated_bytes=[10 * GB, 60 * GB, 60 * GB],
        categories={"activations": [0, 49 * GB, 49 * GB], "parameters": [10 * GB] * 3, "unknown": [0, GB, GB]},
    )
    largest = replace(AT_PEAK, gradients=3 * GB)
    fields: dict[str, Any] = {"at_peak": AT_PEAK, "largest": largest, "holders": HOLDERS, "tensors_noted": True}
    return make_use(curve=curve, **(fields | changes))


def table_of(run: RunReport, title: str) -> list[str]:
    stream = io.StringIO()
    markdown.write(make_report(run), stream, top=10)
    return stream.getvalue().partition(f"### {title}")[2].partition("###")[0].splitlines()


def test_the_largest_allocations_at_the_peak_with_their_stacks() -> None:
    stack = ["torch/nn/modules/linear.py(124): forward", "<built-in method x>", "nn.Module: Linear_0", "src/a.py(7): f"]
    fields: dict[str, Any] = {
        "category": "activations",
        "count": 3,
        "operator": "aten::linear",
        "module": None,
        "phase": "forward",
    }
    block = MemoryBlock(bytes=10 * GB, stack=stack, **fields)
    table = table_of(with_memory([make_categorized(blocks=[block])]), "Largest allocations at the peak")
    assert table[4] == "| 3 | 10.0 GB | activations | aten::linear | a.py:7 |"
    assert "in no row" not in "".join(table)
    bare = replace(block, stack=[])
    use = make_categorized(blocks=[bare], at_peak=replace(AT_PEAK, parameters=0, before=10 * GB))
    lines = table_of(with_memory([use]), "Largest allocations at the peak")
    assert lines[4] == "| 3 | 10.0 GB | activations | aten::linear |"
    assert "10.0 GB from before the recording are in no row; who allocated them: record with" in "".join(lines)


def test_what_is_inferred_or_missing_is_said_only_where_it_is() -> None:
    inferred, missing = "backward and the optimizer allocated and kept", "what was allocated before is missing"
    known = "\n".join(table_of(with_memory([make_categorized()]), "Memory at the peak by category"))
    assert inferred not in known
    assert missing not in known
    host = make_categorized(device="CPU", tensors_noted=False)
    unknown = "\n".join(table_of(with_memory([host]), "Memory at the peak by category"))
    assert inferred in unknown
    assert missing in unknown
    counted = replace(host, tensors_noted=True, not_counted=MemoryBytes(parameters=7 * GB))
    besides = "\n".join(table_of(with_memory([counted]), "Memory at the peak by category"))
    assert "| parameters (not counted) | 7.00 GB | – | 7.00 GB |" in besides
    assert missing not in besides


def test_the_stacked_chart_adds_up_to_the_curve() -> None:
    run = with_memory([make_host_use(), make_categorized()])
    drawn = CHARTS["memory_by_category"].draw(run)
    assert drawn
    assert [area["name"] for area in drawn.spec["data"]] == ["parameters", "activations", "unknown"]
    assert [sum(at) for at in zip(*(area["y"] for area in drawn.spec["data"]), strict=True)] == [
        10 * GB,
        60 * GB,
        60 * GB,
    ]
    assert {area["stackgroup"] for area in drawn.spec["data"]} == {"bytes"}
    assert drawn.note == "Rank 0, device 0, step 6."
    json.dumps(drawn.spec, allow_nan=False)
    assert len(run.plot_memory_by_category().data) == 3
    assert CHARTS["memory_by_category"].draw(with_memory([make_use()])) is None
