"""What agents are answered: the figures of the report, within bounds, about runs below the folders alone."""

import os
import shutil
from pathlib import Path

import pytest

import perfkit
from perfkit.base.formatting import duration
from perfkit.errors import PerfkitError
from perfkit.tools.mcp.answers import Answers
from perfkit.tools.mcp.text import LONGEST, bounded

TRACES = Path(__file__).parents[4] / "traces"
RUN = str(TRACES / "sample-hdf5")
OTHER = str(TRACES / "sample-memory")


@pytest.fixture(scope="module")
def answers() -> Answers:
    return Answers([TRACES])


def test_every_run_below_the_folders_is_listed(answers: Answers) -> None:
    listed = answers.list_runs("series")
    assert listed.startswith("9 runs")
    assert f"{TRACES / 'series' / 'hdf5-4'}: completed, " in listed
    assert "gpt, 4 ranks, cpu; 4 traces" in listed


def test_the_answer_has_the_figures_of_the_report(answers: Answers) -> None:
    (run,) = perfkit.analyze(RUN).runs
    assert run.step_time
    told = answers.answer(RUN)
    assert "sample-hdf5 (ranks 0-1, recorded steps 2-4)" in told
    assert f"Headline: {run.verdict.sentence}" in told
    assert f"step {duration(run.step_time.mean_ns)}" in told
    assert told.endswith(f"perfkit analyze {RUN}")


def test_the_ledger_has_all_rows_and_what_advice_rests_on(answers: Answers) -> None:
    report = perfkit.analyze(RUN)
    ledger = report.runs[0].ledger
    assert ledger
    told = answers.ledger(RUN)
    assert [line.split()[1].strip(":") for line in told.splitlines() if line.startswith("- ")] == [
        row.cause for row in ledger.rows
    ]
    assert told.count("Change: ") == len(report.insights)
    assert "(replay of rank1=healthy)" in told


def test_a_section_has_its_tables(answers: Answers) -> None:
    told = answers.section(RUN, "collectives", rows=3)
    assert "all_reduce (DDP) | 2 | 172 kB | 3 | " in told
    assert answers.section(RUN, "memory").startswith("sample-hdf5, ranks 0-1, recorded steps 2-4: nothing to show")


def test_comparison_and_prediction_have_the_headline_of_the_commands(answers: Answers) -> None:
    assert "Measured faster: 28.9 ms per step instead of 31.5 ms (-8.2 %)." in answers.compare(OTHER, RUN)
    assert "With rank1=healthy, the step would take 26.7 ms instead of 28.9 ms" in answers.whatif(
        RUN, ["rank1=healthy"]
    )


def test_a_window_has_what_runs_in_it_and_no_more(answers: Answers) -> None:
    step = answers.time_window(RUN, rank=1, step="3")
    assert step.startswith("rank 1, step 3 of rank1.json.gz: 0 to 48.0 ms of 48.0 ms")
    assert "perfkit.backward" in step
    assert step.endswith("rank1.json.gz --step 3")
    part = answers.time_window(RUN, rank=1, step="3", start_ms=5, end_ms=8)
    assert "DistributedDataParallel.forward 3.00 ms" in part
    assert "perfkit.backward" not in part
    with pytest.raises(PerfkitError, match=r"the trace has steps 2-4"):
        answers.time_window(RUN, rank=1, step="9")
    with pytest.raises(PerfkitError, match=r"the step lasts 48.0 ms"):
        answers.time_window(RUN, rank=1, step="3", start_ms=50)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("slack", "[section 16. Critical path] **Critical path**"),
        ("straggler", "straggler: Ranks take longer than the others"),
        ("busy_machine", "| `busy_machine` * |"),
    ],
)
def test_numbers_and_findings_are_defined(answers: Answers, name: str, told: str) -> None:
    assert told in answers.define(name)


def test_what_is_not_defined_is_refused_with_the_sections(answers: Answers) -> None:
    with pytest.raises(PerfkitError, match=r"no definition of 'xyzzy'; .* 16\. Critical path"):
        answers.define("xyzzy")


@pytest.mark.parametrize("path", ["/etc", "/etc/passwd", "..", "traces/../../etc", "~", "nowhere", "\0", "a" * 5000])
def test_nothing_outside_of_the_folders_is_opened(answers: Answers, path: str) -> None:
    with pytest.raises(PerfkitError, match=r"no such run below"):
        answers.answer(path)


def test_links_to_the_outside_are_refused(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    shutil.copytree(RUN, outside)
    (inside / "run").mkdir(parents=True)
    os.symlink(outside / "rank0.json.gz", inside / "run" / "rank0.json.gz")
    os.symlink(outside, inside / "other")
    answers = Answers([inside])
    for run, why in (("run", "is a link"), ("run/rank0.json.gz", "no such run"), ("other", "no such run")):
        with pytest.raises(PerfkitError, match=why):
            answers.answer(run)


def test_an_answer_is_bounded_and_what_is_missing_is_counted() -> None:
    told = bounded([f"line {number} \x1b[31m" + "x" * 3000 for number in range(100)], "perfkit analyze run")
    assert len(told) <= LONGEST
    assert "\x1b" not in told
    assert told.splitlines()[-2:] == ["… 96 more lines", "Show it again: perfkit analyze run"]


def test_tables_are_cut_at_a_row(answers: Answers) -> None:
    told = answers.section(str(TRACES / "series"), "work", rows=500)
    assert len(told) <= LONGEST
    *_, row, more, again = told.splitlines()
    assert row.count(" | ") > 3
    assert more.endswith("more lines")
    assert again.endswith("--section work")
