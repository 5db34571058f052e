"""Communication by dimension: shown where it says something, and only then."""

from typing import Any

import pytest

from perfkit.records.per_run.communication import DimensionStat, DimensionSummary
from perfkit.records.run import RunReport
from tests.support.reports.report_builders import MS, make_collective, make_efficiency, make_rank, make_run
from tests.support.reports.tables import table_of, tables_of


def make_dimension(name: str | None, **changes: Any) -> DimensionStat:
    fields: dict[str, Any] = {
        "dimension": name,
        "across_hosts": False,
        "group_size": 2,
        "groups": 4,
        "calls": 80,
        "bytes": 4_000_000,
        "total_ns": 60 * MS,
        "exposed_ns": 40 * MS,
        "exposed_wait_ns": 30 * MS,
        "exposed_transfer_ns": 10 * MS,
        "wait_unknown_ns": 0,
        "share": 0.1,
        "busbw": 1e9,
        "serialisation_lost_ns": 13 * MS,
        "transfer_lost_ns": 0,
    }
    return DimensionStat(**(fields | changes))


def run_with(*rows: DimensionStat, outside: float = 0.0) -> RunReport:
    summary = DimensionSummary(
        rows=list(rows),
        rank_steps=4,
        outside_ns=round(outside * 400 * MS),
        outside_share=outside,
        outside_lost_ns=0,
    )
    return make_run(dimensions=summary, efficiency=make_efficiency(own_ns=247 * MS))


@pytest.mark.parametrize("names", [["dp"], [None], []])
def test_nothing_is_shown_of_data_parallelism_alone_or_of_what_is_not_known(names: list[str | None]) -> None:
    for run in (run_with(*map(make_dimension, names)), make_run()):
        titles = [table.title for table in tables_of(run, "collectives")]
        assert not any("by dimension" in title for title in titles)


@pytest.mark.parametrize("names", [["tp"], ["dp", "tp"], ["dp", None], ["shard"]])
def test_anything_else_is_shown_with_figures_per_step_and_rank(names: list[str | None]) -> None:
    times, groups = tables_of(run_with(*map(make_dimension, names), outside=0.05), "collectives")[:2]
    first = [cell.text for cell in times.rows[0]]
    assert first == [names[0], "15.0 ms", "10.0 ms", "7.50 ms", "2.50 ms", "5.0 %"]
    assert [cell.text for cell in times.rows[-1]][::2] == ["(outside)", "5.00 ms", "–"]
    assert [cell.text for cell in groups.rows[0]] == [names[0], "2", "4", "20", "1.00 MB", "1.00 GB/s"]
    assert ("unknown:" in times.remark) == (None in names)
    assert "5.0 % in total" in times.remark


def test_groups_across_hosts_are_named_and_so_is_waiting_that_may_be_more() -> None:
    rows = make_dimension("dp"), make_dimension("dp", across_hosts=True, wait_unknown_ns=10 * MS)
    times, groups = tables_of(run_with(*rows), "collectives")[:2]
    assert [row[0].text for row in times.rows] == ["dp", "dp, across hosts"]
    assert [row[3].note for row in times.rows] == ["", "or more"]
    assert [row[3].text for row in groups.rows] == ["one", "several"]


def test_tables_of_collectives_name_the_dimension_where_it_differs() -> None:
    def titles(*names: str | None) -> list[str]:
        rows = [make_collective(dimension=name, bytes=place) for place, name in enumerate(names)]
        table = table_of(make_run(ranks=[make_rank(0, collectives=rows)]), "collectives", "Collectives")
        assert table is not None
        return [column.title for column in table.columns]

    assert "dim" in titles("dp", "tp")
    assert "dim" in titles("dp", None)
    assert "dim" not in titles("tp", "tp")
    table = table_of(make_run(), "collectives", "Collectives across")
    assert table is not None
    assert "dim" not in [column.title for column in table.columns]
