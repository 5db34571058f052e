"""The sentence about what was not recorded: there only if no trace has it."""

from pathlib import Path

import perfkit
from perfkit.records.run import RunReport
from perfkit.report.content.report import document
from perfkit.report.content.run_facts import not_recorded
from tests.support.reports.report_builders import make_rank, make_report, make_run
from tests.support.traces.trace_builder import TraceBuilder

ALL = ["profile_memory", "record_shapes", "with_stack"]


def run_of(*recorded: list[str]) -> RunReport:
    return make_run(ranks=[make_rank(number, recorded=options) for number, options in enumerate(recorded)])


def test_what_no_trace_has_is_named_with_its_option() -> None:
    (sentence,) = not_recorded([run_of([], [])])
    for option in ALL:
        assert f"({option})" in sentence
    assert "`perfkit run --detail why` records these" in sentence
    assert not_recorded([run_of(["with_stack"], ["record_shapes"])]) == [
        "not recorded: allocations (profile_memory): `perfkit run --detail why` records them, at a cost per step "
        "(docs/detail.md)."
    ]


def test_it_is_silent_where_everything_was_recorded_or_there_are_no_traces() -> None:
    assert not_recorded([run_of(ALL)]) == []
    assert not_recorded([run_of()]) == []
    assert not_recorded([]) == []


def test_it_is_one_sentence_for_all_runs_of_a_report() -> None:
    report = make_report(run_of([]), run_of([]))
    assert sum(note.startswith("not recorded") for note in document(report, 10).footnotes) == 1


def test_it_comes_from_the_headers_of_the_traces(tmp_path: Path) -> None:
    headers: list[dict[str, object]] = [{"with_stack": 1, "record_shapes": 1}, {"with_stack": 1, "record_shapes": "x"}]
    for rank, options in enumerate(headers):
        builder = TraceBuilder(rank, 2).header(**options).op("aten::mm", 0, 10)
        builder.write(tmp_path / f"rank{rank}.json")
    (run,) = perfkit.analyze(tmp_path, cache=False).runs
    assert [rank.recorded for rank in run.ranks] == [["record_shapes", "with_stack"], ["with_stack"]]
