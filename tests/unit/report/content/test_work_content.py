"""The tables of whose time it is."""

from pathlib import Path

import perfkit
from perfkit.records.run import RunReport
from perfkit.report import build_document
from perfkit.tables.specification import Table
from tests.support.reports.report_builders import make_run
from tests.support.traces.trace_builder import TraceBuilder
from tests.support.traces.work_traces import module_step


def analyzed(folder: Path, *ranks: TraceBuilder) -> RunReport:
    folder.mkdir()
    for number, builder in enumerate(ranks):
        builder.write(folder / f"rank{number}.json")
    (run,) = perfkit.analyze(folder, cache=False, executor="serial").runs
    return run


def tables(run: RunReport, top: int = 20) -> dict[str, Table]:
    (section,) = build_document(run, top).sections
    return {table.title.partition(" (")[0]: table for table in section.tables}


def rows(table: Table) -> list[list[str]]:
    return [[cell.text for cell in row] for row in table.rows]


def two_ranks(folder: Path) -> RunReport:
    return analyzed(folder, *(module_step(TraceBuilder(rank=rank, world_size=2)) for rank in (0, 1)))


def test_no_sentence_where_it_is_false_on_a_rank(tmp_path: Path) -> None:
    """Rank 1 has other work, so that the module has less than half of its time."""
    other = module_step(TraceBuilder(rank=1, world_size=2))
    other.op("aten::mm", 600, 5).launch(50, 601, 2).kernel("big", 610, 900, 50, stream=8)
    run = analyzed(tmp_path / "run", module_step(TraceBuilder(rank=0, world_size=2)), other)
    assert "is in" not in tables(run)["Device time by module"].remark


def test_few_rows_are_the_largest_of_the_tree(tmp_path: Path) -> None:
    table = tables(two_ranks(tmp_path / "run"), top=2)["Device time by module"]
    assert [row[0] for row in rows(table)] == ["Net", "\u2003Block"]
    assert table.remark.endswith("4 more rows")


def test_without_modules_there_is_no_table_of_them(tmp_path: Path) -> None:
    run = analyzed(tmp_path / "run", TraceBuilder(backend="gloo").step(1, 0, 100).op("aten::mm", 0, 10))
    found = tables(run)
    assert "Operators' time by module" not in found
    assert "Operators' time by phase" not in found
    assert "Operators' time by operator" in found


def test_a_module_of_one_rank_alone_is_not_shown_as_that_of_the_run(tmp_path: Path) -> None:
    plain = TraceBuilder(rank=1, world_size=2).step(1, 0, 100).op("aten::mm", 0, 10).launch(1, 1, 2)
    run = analyzed(tmp_path / "run", module_step(), plain.kernel("k", 5, 10, 1))
    assert "Device time by module" not in tables(run)


def test_reports_of_older_versions_have_no_tables() -> None:
    assert not [title for title in tables(make_run()) if " time by " in title and "Idle" not in title]
