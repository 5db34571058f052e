"""The table of the slowest steps: which are in it, and how often a median is taken for it."""

from collections.abc import Sequence

import pytest

from perfkit.records.rank import StepBreakdown
from perfkit.tables import aggregates
from tests.support.reports.report_builders import MS, make_rank, make_run, make_step
from tests.support.reports.tables import table_of


def test_each_rank_has_one_median(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    median_wall = aggregates.median_wall

    def note(steps: Sequence[StepBreakdown]) -> float | None:
        taken.append(len(steps))
        return median_wall(steps)

    monkeypatch.setattr(aggregates, "median_wall", note)
    ranks = [
        make_rank(rank, [make_step(number, compute=(100 + 10 * number + 5 * rank) * MS) for number in range(20)])
        for rank in range(2)
    ]
    table = table_of(make_run(ranks=ranks), "steps", "Slowest", 3)
    assert table is not None
    assert [(row[0].text, row[1].text) for row in table.rows] == [("19", "1"), ("18", "1"), ("17", "1")]
    assert table.remark == "7 more above the median"
    assert taken == [20, 20]
