"""The chart of the critical path: spans in time by rank, and the same in words."""

from typing import Any

import pytest
from msgspec.structs import replace

from perfkit.engine.step_graph.graph import KINDS
from perfkit.records.per_run.critical_path import DrawnPath, PathModuleTime, PathSpan
from perfkit.records.run import RunReport
from perfkit.report import build_document
from perfkit.subjects.critical_path.charts import path_chart
from tests.support.reports.report_builders import MS
from tests.unit.report.content.test_critical_path import run_of

SPANS = [
    PathSpan(rank=1, kind="compute", name="<b>gemm\x1b[2J", start_ns=0, ns=60 * MS),
    PathSpan(rank=1, kind="launch_bound", name="from launch to start", start_ns=60 * MS, ns=10 * MS),
    PathSpan(rank=0, kind="communication", name="all_reduce", start_ns=70 * MS, ns=30 * MS),
]
DRAWN = DrawnPath(step=3, total_ns=100 * MS, spans=SPANS)


def run_with(drawn: DrawnPath | None, **changes: Any) -> RunReport:
    return run_of(drawn=drawn, **changes)


def test_every_span_is_a_bar_of_its_rank_from_its_begin() -> None:
    found = path_chart(run_with(DRAWN))
    assert found is not None
    bars = {
        (y, base, x) for row in found.spec["data"] for y, base, x in zip(row["y"], row["base"], row["x"], strict=True)
    }
    assert bars == {("rank 1", 0, 60), ("rank 1", 60, 10), ("rank 0", 70, 30)}
    assert found.spec["layout"]["yaxis"]["categoryarray"] == ["rank 0", "rank 1"]
    (gemm,) = [row for row in found.spec["data"] if row["name"] == "compute"]
    assert gemm["text"] == ["&lt;b>gemm\\x1b[2J"]


def test_the_words_tell_which_rank_it_runs_through_when() -> None:
    found = path_chart(run_with(DRAWN))
    assert found is not None
    assert found.in_words == (
        "Critical path of step 3, by rank, 100 ms: rank 1 from 0 to 70.0 ms, mostly compute; "
        "rank 0 from 70.0 ms to 100 ms, communication"
    )


def test_a_stretch_that_is_drawn_as_one_part_of_it_is_called_so() -> None:
    found = path_chart(run_with(DRAWN))
    assert found is not None
    assert found.note.endswith("between two launches, waits or collectives shows what took most of it.")


def test_many_changes_of_rank_are_counted() -> None:
    spans = [PathSpan(rank=n % 2, kind="compute", name="a", start_ns=n * MS, ns=MS) for n in range(40)]
    found = path_chart(run_with(DrawnPath(step=None, total_ns=40 * MS, cell_ns=MS, spans=spans)))
    assert found is not None
    assert found.in_words.endswith("; and 28 more changes of rank")
    assert "Each cell of 1.00 ms shows what took most of it." in found.note


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "point"])
def test_every_kind_has_a_colour(kind: Any) -> None:
    assert path_chart(run_with(replace(DRAWN, spans=[replace(SPANS[0], kind=kind)]))) is not None


def test_without_a_path_there_is_no_chart() -> None:
    assert path_chart(run_with(None)) is None
    assert path_chart(run_of(1, device="cpu", drawn=DRAWN)) is None


def test_modules_are_listed_with_their_share() -> None:
    modules = [
        PathModuleTime(depth=0, name="Net", total_ns=150 * MS, self_ns=0),
        PathModuleTime(depth=1, name="layers.* (Block\x1b)", total_ns=150 * MS, self_ns=150 * MS),
        PathModuleTime(depth=0, name="(outside)", total_ns=50 * MS, self_ns=50 * MS),
    ]
    (section,) = build_document(run_with(None, modules=modules), 10).sections
    (table,) = [table for table in section.tables if table.title.startswith("Modules on the critical path")]
    texts = [[cell.text for cell in row] for row in table.rows]
    assert texts[0][:3] == ["Net", "75.0 ms", "75.0 %"]
    assert texts[1][0].strip() == "layers.* (Block\\x1b)"
    assert not [
        table for table in build_document(run_with(None), 10).sections[0].tables if table.title.startswith("Modules on")
    ]
