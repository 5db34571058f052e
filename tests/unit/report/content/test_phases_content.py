"""The table of phases: how often, and what an optimizer step may contain."""

import pytest

from perfkit.base.formatting import MISSING
from perfkit.records.common import Finding
from perfkit.records.rank import PhaseStat
from perfkit.report.content.run_facts import finding_lines
from tests.support.reports.report_builders import MS, make_rank, make_run, make_step
from tests.support.reports.tables import table_of

OPTIMIZER = "Optimizer.step#SGD.step"


@pytest.mark.parametrize(("share", "said"), [(0.68, True), (0.3, False)])
def test_an_optimizer_step_that_takes_most_of_the_step_may_hold_a_closure(share: float, *, said: bool) -> None:
    steps = [make_step(number) for number in range(6)]
    rows = [
        PhaseStat(name=OPTIMIZER, count=6, total_ns=round(600 * MS * share), max_ns=100 * MS),
        PhaseStat(name="evaluate", count=1, total_ns=5 * MS, max_ns=5 * MS),
    ]
    table = table_of(make_run(ranks=[make_rank(0, steps, phases=rows)]), "phases", "Annotated")
    assert table is not None
    assert [row[1].text for row in table.rows] == ["1", "1 in 6"]
    assert ("closure" in table.remark) == said


def test_a_phase_of_a_report_from_elsewhere_may_have_occurred_never() -> None:
    row = PhaseStat(name="evaluate", count=0, total_ns=5 * MS, max_ns=5 * MS)
    table = table_of(make_run(ranks=[make_rank(0, [make_step(0)], phases=[row])]), "phases", "Annotated")
    assert table is not None
    assert table.rows[0][4].text == MISSING


def test_a_finding_does_not_repeat_the_rank_and_file_that_it_names() -> None:
    texts = [
        line.text
        for line in finding_lines(
            [
                Finding(code="a", severity="info", message="rank 0 recorded 3 steps", rank=0),
                Finding(code="b", severity="info", message="rank0.json is odd", file="rank0.json"),
                Finding(code="c", severity="info", message="rank 10 waits", rank=1),
            ]
        )
    ]
    assert texts == ["a: rank 0 recorded 3 steps", "b: rank0.json is odd", "c: rank 10 waits (rank 1)"]
