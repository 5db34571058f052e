"""The efficiency table of runs of which ranks are missing."""

from perfkit.report.content.breakdown import efficiency
from tests.support.reports.report_builders import make_efficiency, make_foreign_run

REASON = "traces of 1 of 64 ranks: load balance and parallel efficiency are not known"


def test_factors_that_need_all_ranks_are_not_shown_and_the_reason_is() -> None:
    partial = make_efficiency(parallel=None, load_balance=None, reason=REASON)
    table = efficiency([make_foreign_run(efficiency=partial)])
    assert table is not None
    shown = {row[0].text.strip(): row[1].text for row in table.rows}
    assert (shown["parallel efficiency"], shown["load balance"]) == ("–", "–")
    assert shown["transfer"] == "88.0 %"
    assert REASON in (table.remark or "")


def test_of_several_runs_the_reason_names_which() -> None:
    partial = make_efficiency(parallel=None, load_balance=None, reason=REASON)
    table = efficiency([make_foreign_run(efficiency=one) for one in (make_efficiency(), partial)])
    assert table is not None
    assert f"2: {REASON}" in (table.remark or "")
