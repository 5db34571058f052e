"""The short answer: one screen for one run, and what stands on it."""

import io
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.cells import cell_len

import perfkit
from perfkit.records.common import Finding
from perfkit.records.cross_rank import Straggler
from perfkit.records.report import Insight, Report
from perfkit.records.run import RunReport, StepTimes
from perfkit.report.content.answer import run_answer
from perfkit.report.renderers import answer
from tests.support.monitor.made_runs import own_times, write_run
from tests.support.reports.report_builders import MS, make_foreign_run, make_rank, make_report, make_run, make_step
from tests.unit.report.test_golden import REPORTS

LONG = "a sentence that goes on for very long " * 30


def drawn(report: Report, width: int = 80) -> str:
    stream = io.StringIO()
    answer.write(report, stream, top=10, width=width)
    return stream.getvalue()


def insight(number: int, sentence: str = "time is lost") -> Insight:
    return Insight(
        rule=f"rule_{number}",
        run="run",
        sentence=f"{sentence} for reason {number}",
        evidence={},
        recommendation=f"do {number}",
        potential_saving_ns=number * 1e6,
    )


def finding(severity: str, message: str, code: str = "some_code") -> Finding:
    return Finding(code=code, severity=severity, message=message)  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [80, 100, 200])
@pytest.mark.parametrize("name", REPORTS)
def test_no_line_is_wider_than_the_terminal(name: str, width: int) -> None:
    assert max(cell_len(line) for line in drawn(REPORTS[name], width).splitlines()) <= width


@pytest.mark.parametrize("count", [1, 2, 5])
def test_one_screen_and_little_for_each_further_run_however_long_everything_is(count: int) -> None:
    doubts = [finding("error", f"{number} {LONG}") for number in range(5)] + [finding("warning", LONG)]
    run = make_run(LONG, path="traces/run", workload=LONG, findings=doubts)
    run = replace(run, verdict=replace(run.verdict, sentence=LONG))
    report = replace(make_report(*[run] * count), insights=[insight(number, LONG) for number in range(5)])
    lines = drawn(report).splitlines()
    assert sum(max(1, -(-cell_len(line) // 80)) for line in lines) <= 24 + 12 * (count - 1)


def test_a_command_is_in_one_piece_however_long() -> None:
    run = make_run("r", path="traces/" + "long/" * 40)
    assert f"perfkit analyze {run.path} --full\n" in drawn(make_report(run))


def test_what_stands_on_the_screen() -> None:
    run = make_run("fast", findings=[finding("warning", "the clock jumped"), finding("info", "all is well")])
    shown = drawn(replace(make_report(run), insights=[insight(1), insight(2), insight(3), insight(4)]))
    assert shown.startswith("fast ─")
    assert " ".join(shown.split()).count(run.verdict.sentence[:40]) == 1
    assert "warning  some_code: the clock jumped" in shown
    assert "all is well" not in shown
    assert "1. time is lost for reason 1 (saves up to 1.00 ms)\n   do 1\n" in shown
    assert "3. time is lost" in shown
    assert "4. time is lost" not in shown
    assert "All tables: perfkit analyze traces/fast --full" in shown
    assert "Timeline: perfkit view " in shown


def of_parts(**parts: float) -> RunReport:
    none = {"compute": 0, "communication": 0, "memcpy": 0, "data_loading": 0, "overhead": 0, "hidden": 0}
    step = make_step(3, **none | {name: round(ms * MS) for name, ms in parts.items()})
    return make_foreign_run(ranks=[make_rank(0, [step])])


def bar(shown: str) -> str:
    return next(line for line in shown.splitlines() if set(line) <= set("█▓▚▒░▞▛·") and line)


def test_the_bar_is_as_wide_as_the_screen_and_shows_shares() -> None:
    shown = drawn(make_report(of_parts(compute=75, overhead=24, memcpy=1)))
    assert len(bar(shown)) == 80
    assert bar(shown).count("█") == pytest.approx(60, abs=1)
    assert 1 <= bar(shown).count("▚") <= 2  # what is there is seen
    assert "█ compute              75.0 ms  75.0 %\n" in shown
    assert "communication" not in shown
    assert len(bar(drawn(make_report(of_parts(compute=1)), 200))) == 200


def test_figures_keep_their_units_on_the_line() -> None:
    run = make_run()
    words = "x" * 74
    run = replace(run, verdict=replace(run.verdict, sentence=f"{words} 1234 % of it"))
    assert "\n1234 % of it" in drawn(make_report(run))


def test_what_is_cut_says_so() -> None:
    report = replace(make_report(make_run(findings=[finding("error", "bad", f"code_{n}") for n in range(9)])))
    assert "7 more errors or warnings: see --full" in drawn(report)


def test_many_runs_are_a_table() -> None:
    runs = [make_run(f"run-{number}", findings=[]) for number in range(60)]
    runs[7] = replace(runs[7], findings=[finding("error", "it broke")])
    shown = drawn(make_report(*runs))
    assert "run-39" in shown
    assert "run-40" not in shown
    assert "20 more runs: see --full" in shown
    assert "error  run-7: some_code: it broke" in shown


def test_the_slowest_step_is_named_with_its_command() -> None:
    steps = [make_step(4), make_step(5, overhead=900 * MS)]
    run = make_run("r", path="traces/my run", ranks=[make_rank(0), make_rank(1, steps, traces=["rank1.json"])])
    assert "perfkit view 'traces/my run/rank1.json' --step 5  (the slowest step)" in drawn(make_report(run), 200)


def test_of_a_rank_with_several_traces_no_step_is_claimed() -> None:
    run = make_run("r", ranks=[make_rank(0, [make_step(4), make_step(5)], traces=["a.json", "b.json"])])
    shown = drawn(make_report(run), 200)
    assert "a.json" in shown
    assert "the slowest step" not in shown


def test_a_trace_that_was_given_itself_is_named_once() -> None:
    run = make_run("r", path="traces/rank1.json", ranks=[make_rank(1, traces=["rank1.json"])])
    assert "perfkit view traces/rank1.json --step 6  (" in drawn(make_report(run), 200)


def test_the_timeline_is_that_of_the_worst_straggler() -> None:
    waits = [make_step(4, compute=10 * MS, communication=900 * MS), make_step(5, compute=70 * MS)]
    ranks = [
        make_rank(0, [make_step(4), make_step(5, overhead=900 * MS)]),
        *(make_rank(number, waits, traces=[f"rank{number}.json"]) for number in (1, 2)),
    ]
    fields = {"category": "compute", "share": 0, "gain_ns": 0, "steps_late": 2, "steps_last": 2, "steps": 2}
    late = [Straggler(rank=rank, lag_ns=lag_ns, **fields) for rank, lag_ns in ((1, 4), (2, 5))]  # type: ignore[arg-type]
    run = make_run("r", ranks=ranks)
    assert run.cross_rank is not None
    run = replace(run, cross_rank=replace(run.cross_rank, stragglers=late))
    # Its longest step is 4, in which it waits: in 5 it computes.
    assert "perfkit view traces/r/rank2.json --step 5  (a straggler)" in drawn(make_report(run), 200)


def test_the_timelines_command_finds_the_step() -> None:
    foreign = make_foreign_run()  # a trace without steps
    assert "--step" not in drawn(make_report(foreign), 200).rpartition("Timeline: ")[2]
    marked = make_run("r", ranks=[make_rank(0, [make_step(4)])], step_marker="^my step")
    assert drawn(make_report(marked), 200).endswith("--step 4 --step-marker '^my step'\n")


def test_the_tables_command_finds_the_same_loading() -> None:
    marked = make_run("r", ranks=[make_rank(0, [make_step(4)])], step_marker="^my step", data_marker="get|load")
    assert " --step-marker '^my step' --data-marker 'get|load' --full" in drawn(make_report(marked), 200)
    assert drawn(make_report(marked), 200).count("--data-marker") == 1  # a timeline does not depend on it


def test_the_answer_comes_first_and_a_short_line_keeps_the_step_time() -> None:
    run = make_run("r", workload=LONG)
    lines = drawn(make_report(run)).splitlines()
    assert lines[1].startswith(run.verdict.sentence[:30])
    assert sum(line.startswith("profiled step 130 ms, ") for line in lines) == 1


def test_what_would_be_shown_as_nothing_is_not_in_the_bar() -> None:
    shares = {part.cause: part.percent for part in run_answer(of_parts(compute=1000, memcpy=0.01)).parts}
    assert shares == {"compute": "100.0 %"}
    shares = {part.label: part.percent for part in run_answer(of_parts(compute=1000, memcpy=1)).parts}
    assert shares == {"compute": "99.9 %", "other": "0.1 %"}


def test_findings_are_told_in_full_where_there_is_room() -> None:
    text = "the clock jumped; " * 12
    run = make_run("fast", findings=[finding("warning", text.strip())])
    lines = drawn(make_report(run)).splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("warning"))
    told = [lines[first].removeprefix("warning  some_code: ")]
    told += [line[9:] for line in lines[first + 1 :] if line.startswith(" " * 9)]
    assert " ".join(told) == text.strip()
    assert len(lines) <= answer.SCREEN


def test_one_step_time_stands_in_the_answer_of_a_run_without_traces(tmp_path: Path) -> None:
    (logged,) = perfkit.analyze(write_run(tmp_path, own_times(2, 80))).runs
    timed = make_run("r", ranks=[], step_times=StepTimes(plain_ns=[40 * MS], recorded_ns=[]))
    assert run_answer(timed).facts.startswith("step ")
    assert "step" not in run_answer(replace(timed, monitor=logged.monitor)).facts
