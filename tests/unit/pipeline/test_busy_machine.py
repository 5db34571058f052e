"""Nothing is put down to storage, the network or a rank where other processes kept the machine busy."""

import pytest
from msgspec.structs import replace

from perfkit.engine.ranks.findings import cross_rank_findings
from perfkit.engine.ranks.matching import match
from perfkit.pipeline.words import find_insights
from perfkit.records.common import Finding
from perfkit.records.cross_rank import OneOffStraggler
from perfkit.records.run import Doubt, RunReport
from perfkit.report.content.answer import answer, run_answer
from tests.support.reports.report_builders import MS, make_rank, make_report
from tests.unit.pipeline.test_insights import waiting_run
from tests.unit.subjects.input.test_losses import COMPUTES, READS, loading_rank, loading_run, straggler

BUSY = Doubt(code="busy_machine", overrules=True, what="other processes used 1.6 of 2 cores")
MISSING = Doubt(code="ranks_missing", what="2 of 4 ranks have no trace", findings=["ranks_missing"])


def rules(run: RunReport) -> set[str]:
    return {insight.rule for insight in find_insights([run], None).insights}


@pytest.mark.parametrize(
    ("run", "rule"),
    [
        (waiting_run(128, 32), "waiting"),
        (waiting_run(32, 128, slow=False), "transfer"),
        (loading_run(loading_rank(0, 30, READS), loading_rank(1, 30, READS)), "input"),
        (loading_run(loading_rank(0, 30), loading_rank(1, 30)), "input"),
    ],
)
def test_time_that_is_waited_for_something_else_has_no_remedy_on_a_busy_machine(run: RunReport, rule: str) -> None:
    assert rule in rules(run)
    assert rule in rules(replace(run, trust=[MISSING]))
    assert rule not in rules(replace(run, trust=[BUSY]))


def test_the_programs_own_work_has_its_remedy_on_a_busy_machine_too() -> None:
    run = loading_run(loading_rank(0, 30, COMPUTES), loading_rank(1, 30, COMPUTES), late=straggler(1, 30))
    (one,) = [one for one in find_insights([replace(run, trust=[BUSY])], None).insights if one.rule == "input"]
    assert "storage" not in one.recommendation
    assert "late" not in one.sentence


def test_no_rank_is_called_late_on_a_busy_machine() -> None:
    once = OneOffStraggler(rank=1, step=6, category="compute", category_ns=50 * MS, lag_ns=50 * MS)
    compared = replace(straggler(1, 30), one_off_stragglers=[once])
    nothing = match({})
    codes = [one.code for one in cross_rank_findings(nothing, compared, None, {})]
    assert codes[:2] == ["straggler", "one_off_straggler"]
    assert list(cross_rank_findings(nothing, compared, None, {}, busy=True)) == []
    late = Finding(code="straggler", severity="warning", message="rank 1 is late")
    run = replace(loading_run(make_rank(0), make_rank(1), late=compared), findings=[late])
    assert "(a straggler)" in {hint.remark for hint in answer(make_report(run)).more}
    assert "(a straggler)" not in {hint.remark for hint in answer(make_report(replace(run, trust=[BUSY]))).more}


def test_a_doubt_on_the_first_screen_stands_for_its_findings() -> None:
    missing = Finding(code="ranks_missing", severity="warning", message="trace missing for 2 of 4 ranks; excluded")
    other = Finding(code="damaged_header", severity="warning", message="the header breaks off")
    run = replace(loading_run(make_rank(0), make_rank(1)), findings=[missing, other])
    assert [line.text.split(":")[0] for line in run_answer(run).doubts] == ["damaged_header", "ranks_missing"]
    shown = run_answer(replace(run, trust=[MISSING]))
    assert [line.text.split(":")[0] for line in shown.doubts] == ["damaged_header"]
    assert shown.trust == "Trust: 2 of 4 ranks have no trace"
