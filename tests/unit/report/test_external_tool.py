"""Tables of external tools, and their figures compared with perfkit's."""

import csv
import io
from typing import Any

import pytest

from perfkit.records.run import CrossCheck, CrossCheckRow
from perfkit.records.tools import ExternalTable
from perfkit.report import reporter
from perfkit.report.content.answer import answer
from perfkit.report.renderers import console
from perfkit.subjects.cross_check.tables import cross_check
from tests.support.reports.report_builders import MS, make_report, make_run
from tests.support.traces.hostile import hostile

US = 1000


def make_row(**changes: Any) -> CrossCheckRow:
    """A rank for which both tools agree except for 10 ms at the edges of the window."""
    fields: dict[str, Any] = {
        "rank": 0,
        "window_ns": 100 * MS,
        "compute_ns": 60 * MS,
        "other_ns": 20 * MS,
        "idle_ns": 20 * MS,
        "external_window_ns": 90 * MS,
        "external_compute_ns": 60 * MS,
        "external_other_ns": 20 * MS,
        "external_idle_ns": 10 * MS,
        "rounding_ns": 1 * MS,
    }
    return CrossCheckRow(**(fields | changes))


def reasons(row: CrossCheckRow) -> dict[str, str]:
    table = cross_check(CrossCheck(tool="HTA 1", rows=[row]), 10)
    assert table is not None
    return {cells[1].text: cells[-1].text for cells in table.rows}


def test_equal_figures_need_no_reason() -> None:
    reasons_by_time = reasons(
        make_row(external_window_ns=100 * MS, external_idle_ns=20 * MS, external_compute_ns=60 * MS - 50 * US)
    )
    assert set(reasons_by_time.values()) == {""}


def test_the_short_answer_tells_how_far_the_tools_are_apart_and_where_the_figures_are() -> None:
    checked = make_run(cross_check=CrossCheck(tool="HTA 1", rows=[make_row(), make_row(external_other_ns=19 * MS)]))
    said = (
        "HTA 1 differs by at most 0.0 % in computing, 5.0 % in communication and copies, 10.0 % in the window: "
        "add --section cross-check"
    )
    alone = [hint.command for hint in answer(make_report(checked)).more]
    assert alone[:2] == [said, "All tables: add --full"]
    several = [hint.command for hint in answer(make_report(checked, make_run("other"))).more]
    assert several[0] == f"{checked.run}: {said}"


def test_different_events_are_the_reason_before_any_other() -> None:
    lost = make_row(external_compute_ns=50 * MS, device_events=9_876, external_device_events=9_330)
    assert reasons(lost)["computing"] == "HTA has 9,330 device events, perfkit 9,876"
    same = make_row(external_compute_ns=50 * MS, device_events=9_876, external_device_events=9_876)
    assert reasons(same)["computing"] == "unknown"
    assert reasons(make_row(device_events=9_876, external_device_events=9_330))["computing"] == ""


@pytest.mark.parametrize(
    ("counts", "computing", "other"),
    [
        ({"external_synchronisations": 1}, "unknown", "HTA counts 1 synchronisation as work"),
        ({"computing_events": 7}, "unknown", "unknown"),  # HTA does not tell
        ({"external_host_events": 2}, "HTA counts 2 host operators with a stream as device work", ""),
        (
            {"computing_events": 7, "external_computing_events": 9},
            "HTA, which knows only names, counts 2 more as computing",
            "HTA, which knows only names, counts 2 more as computing",
        ),
    ],
)
def test_a_reason_is_named_only_if_such_events_were_counted(counts: dict[str, int], computing: str, other: str) -> None:
    found = reasons(make_row(external_compute_ns=65 * MS, external_other_ns=15 * MS, **counts))
    assert found["computing"] == computing
    assert other in found["communication, copies"]


def test_a_small_figure_that_is_far_off_needs_a_reason_too() -> None:
    row = make_row(compute_ns=2 * US, external_compute_ns=94 * US, external_host_events=1)
    assert reasons(row)["computing"] == "HTA counts 1 host operator with a stream as device work"
    checked = make_run(cross_check=CrossCheck(tool="HTA 1", rows=[row]))
    assert answer(make_report(checked)).more[0].command.startswith("HTA 1 differs by at most 97.9 % in computing")


def test_equal_figures_are_called_equal() -> None:
    row = make_row(external_window_ns=100 * MS, external_idle_ns=20 * MS)
    checked = make_run(cross_check=CrossCheck(tool="HTA 1", rows=[row]))
    said = "HTA 1 has the same window, computing, communication and copies"
    assert answer(make_report(checked)).more[0].command.startswith(said)


def test_edges_of_the_window_are_idle() -> None:
    reasons_by_time = reasons(make_row())
    assert reasons_by_time["window"].startswith("HTA's window spans the first")
    assert reasons_by_time["idle"] == "+10.0 ms at the window's edges, 0 from the rows above"
    assert reasons_by_time["computing"] == ""


@pytest.mark.parametrize(
    ("peer_ms", "starts"),
    [
        (59.5, "HTA rounds each event"),  # less than ours, within what rounding can take
        (58, "unknown"),  # more than rounding can take
        (60.5, "unknown"),  # rounding inwards never adds
    ],
)
def test_rounding_explains_only_what_it_can(peer_ms: float, starts: str) -> None:
    assert reasons(make_row(external_compute_ns=round(peer_ms * MS)))["computing"].startswith(starts)


def test_of_many_ranks_those_that_differ_most_are_shown() -> None:
    rows = [make_row(rank=number, external_idle_ns=(10 + number) * MS) for number in range(20)]
    table = cross_check(CrossCheck(tool="HTA 1", rows=rows), 2)
    assert table is not None
    assert [cells[0].text for cells in table.rows if cells[0].text] == ["0", "1"]
    assert table.remark == "18 more ranks with smaller differences"


def test_a_report_shows_it_in_eighty_columns() -> None:
    run = make_run(cross_check=CrossCheck(tool="HTA 1", rows=[make_row()]))
    stream = io.StringIO()
    console.write(make_report(run), stream, top=10, width=80)
    assert "Cross-check: HTA 1, summed over all steps" in stream.getvalue()
    assert max(map(len, stream.getvalue().splitlines())) <= 80


def make_table(**changes: Any) -> ExternalTable:
    fields: dict[str, Any] = {
        "tool": "HTA 1",
        "analysis": "queue-length",
        "run": "run",
        "ranks": [0, 1],
        "columns": ["rank", "name", "queue_length.mean", "idle_time(us)", "idle_time_pctg"],
        "rows": [[0, "Memcpy", 0.12345, 1222847.0, None], [1, "", 512.7, 3, 12.5]],
    }
    return ExternalTable(**(fields | changes))


def written(table: ExternalTable, name: str, top: int = 10) -> str:
    stream = io.StringIO()
    reporter(ExternalTable, name).write(table, stream, top=top)
    return stream.getvalue()


def test_names_are_short_on_the_terminal_and_whole_in_files() -> None:
    shown = written(make_table(), "rich")
    assert "queue-length, 2 ranks: queue_length" in shown
    assert [line.split() for line in shown.splitlines() if line.startswith(("rank", "   0", "   1"))] == [
        ["rank", "name", "mean", "idle", "µs", "idle", "%"],
        ["0", "Memcpy", "0.123", "1222847", "–"],
        ["1", "–", "513", "3", "12.5"],
    ]
    rows = list(csv.reader(written(make_table(), "csv").splitlines()))
    assert rows[0] == make_table().columns
    assert rows[1] == ["0", "Memcpy", "0.12345", "1222847.0", ""]
    assert "1 more row" in written(make_table(), "rich", top=1)


@pytest.mark.parametrize("name", ["rich", "csv", "json"])
def test_a_table_without_rows_is_written(name: str) -> None:
    assert "queue_length" in written(make_table(rows=[]), name)


def test_a_table_without_rows_says_so() -> None:
    assert "no rows: it found nothing of the kind in this trace" in written(make_table(rows=[]), "rich")


def test_a_hostile_table_is_text() -> None:
    table = make_table(run=hostile(), columns=[hostile(), hostile("@"), "c", "d", "e"], tool=hostile())
    table.rows[0][1] = hostile("-")
    for name in ("rich", "csv", "json"):
        assert {character for character in written(table, name) if not character.isprintable()} <= {"\n"}
    cells = [cell for row in csv.reader(written(table, "csv").splitlines()) for cell in row]
    assert not {cell.lstrip()[:1] for cell in cells} & set("=+-@")
