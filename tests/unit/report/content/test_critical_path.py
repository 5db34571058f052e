"""The critical path in reports: tables, and what is said of ranks that are missing or not linked."""

from typing import Any

from msgspec.structs import replace

from perfkit.records.per_run.critical_path import (
    CommunicationSlack,
    CriticalPath,
    PathKindTime,
    PathNameTime,
    PathRankTime,
)
from perfkit.records.run import RunReport
from perfkit.report import build_document
from perfkit.tables.specification import Table
from tests.support.reports.report_builders import MS, make_rank, make_run

PATH = CriticalPath(
    steps=[3, 4],
    recorded_steps=2,
    total_ns=200 * MS,
    kinds=[PathKindTime(kind="compute", total_ns=150 * MS), PathKindTime(kind="host_work", total_ns=50 * MS)],
    ranks=[PathRankTime(rank=1, total_ns=120 * MS), PathRankTime(rank=0, total_ns=80 * MS)],
    names=[
        PathNameTime(kind="compute", name="gemm\x1b[2J", total_ns=150 * MS),
        PathNameTime(kind="host_work", name="train.py(7): log", total_ns=50 * MS),
    ],
    communication=[
        CommunicationSlack(
            operator="all_reduce",
            dimension="dp",
            count=8,
            transfer_ns=20 * MS,
            path_ns=4 * MS,
            never_waited_for=0,
            slack_ns=7 * MS,
        ),
        CommunicationSlack(
            operator="broadcast",
            dimension=None,
            count=2,
            transfer_ns=2 * MS,
            path_ns=0,
            never_waited_for=2,
            slack_ns=None,
        ),
    ],
    linked=True,
)


def run_of(count: int = 2, device: str = "gpu", **changes: Any) -> RunReport:
    reports = [make_rank(rank, device=device) for rank in range(count)]
    return make_run(ranks=reports, critical_path=replace(PATH, **changes))


def tables(run: RunReport, top: int = 10) -> list[Table]:
    (section,) = build_document(run, top).sections
    return [table for table in section.tables if "ritical path" in table.title]


def cells(table: Table) -> list[list[str]]:
    return [[cell.text for cell in row] for row in table.rows]


def test_of_many_names_the_largest_are_shown() -> None:
    names = tables(run_of(), top=1)[1]
    assert len(names.rows) == 1
    assert names.remark == "1 more, 25.0 ms"


def test_a_part_of_the_steps_is_called_so() -> None:
    assert tables(run_of(recorded_steps=9))[0].title == "Critical path of steps 3-4 (mean per step), of 9 recorded"
    assert tables(run_of(steps=[None], recorded_steps=1))[0].title == "Critical path of the whole trace"


def test_ranks_that_nothing_links_are_not_said_to_be_on_one_path() -> None:
    remark = tables(run_of(linked=False, ranks=[PathRankTime(rank=1, total_ns=200 * MS)]))[0].remark
    assert remark == "nothing in the traces links the ranks: this is rank 1, which ended last"


def test_missing_and_unaligned_ranks_are_said() -> None:
    remark = tables(run_of(missing_ranks=6, unaligned_ranks=[4, 5]))[0].remark
    assert "6 ranks have no trace: waiting for what is missing counts as communication" in remark
    assert "1 rank has no trace" in tables(run_of(missing_ranks=1))[0].remark
    assert "without ranks 4-5, whose clocks nothing links to the others'" in remark


def test_contradicted_dependencies_are_said() -> None:
    assert "without 1 dependency that the measured times contradict" in tables(run_of(violated=1))[0].remark
    assert "without 1,200 dependencies that" in tables(run_of(violated=1200))[0].remark
    assert "contradict" not in tables(run_of())[0].remark


def test_a_single_thread_has_no_tables() -> None:
    assert tables(run_of(1, device="cpu", linked=None)) == []
    assert len(tables(run_of(1, linked=None))) == 3
