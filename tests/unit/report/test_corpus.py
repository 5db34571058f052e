"""The corpus: what `perfkit analyze` shows first in each situation, to be read as one text; and what holds of all."""

import io
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec
import pytest
from rich.cells import cell_len

from perfkit.base.formatting import duration
from perfkit.cli import main
from perfkit.pipeline.whatif import predict
from perfkit.records.report import BESIDES_STEPS, Insight, Report
from perfkit.records.run import RunReport
from perfkit.report.content.answer import advice
from perfkit.report.content.ledger import parts
from perfkit.report.renderers import answer
from tests.conftest import TRACES
from tests.support.processes.launching import ROOT
from tests.support.situations import SITUATIONS

COLUMNS: Final = 80
LINES: Final = 20
_PLACE: Final = re.compile(
    r"node\d|[Ss]teps? \d[\d, and-]*|[Rr]anks? \d[\d, and-]*|`[^`]*`|\S+:\d+|\d+ ranks|\d/\d|[\d.]+ times|Host \S+"
)
"""Numbers that name something: hosts, steps, ranks, lines of code; and how many times as much a late rank does."""
_UNIT: Final = re.compile(r"(?<=\d) (?=\w?s\b|%)")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: tmp_path_factory.mktemp("situation") for name in SITUATIONS}


@pytest.fixture(scope="module")
def reports(folders: dict[str, Path]) -> dict[str, Report]:
    made = {}
    with pytest.MonkeyPatch.context() as patch:
        for name, make in SITUATIONS.items():
            patch.chdir(folders[name])
            made[name] = make(folders[name])
    return made


def screen(report: Report) -> list[str]:
    stream = io.StringIO()
    answer.write(report, stream, top=10, width=COLUMNS)
    return [line.rstrip() for line in stream.getvalue().splitlines()]


def alone(reports: dict[str, Report]) -> dict[str, RunReport]:
    return {name: report.runs[0] for name, report in reports.items() if len(report.runs) == 1}


def test_the_corpus(reports: dict[str, Report], golden: Callable[[str, str], None]) -> None:
    golden("\n".join("\n".join([f"# {name}", *screen(report)]) for name, report in reports.items()), "corpus.txt")


def test_the_first_screen_is_short_and_cuts_nothing(reports: dict[str, Report]) -> None:
    for name, report in reports.items():
        lines = screen(report)
        commands = [line for line in lines if "perfkit " in line]
        assert max(cell_len(line) for line in lines if line not in commands) <= COLUMNS, name
        if len(report.runs) == 1:
            assert len(lines) <= LINES, name
            assert "…" not in "".join(lines), name


def test_a_headline_has_fifteen_words_and_two_numbers(reports: dict[str, Report]) -> None:
    for name, run in alone(reports).items():
        sentence = run.verdict.sentence
        assert len(_UNIT.sub("", sentence).split()) <= 15, name  # a figure and its unit are one
        assert len(re.findall(r"\d[\d.,]*", _PLACE.sub("", sentence))) <= 2, name


def test_rows_add_up_to_the_step(reports: dict[str, Report]) -> None:
    for name, run in alone(reports).items():
        if run.ledger is not None:
            assert sum(row.ns for row in run.ledger.rows) == run.ledger.step_ns, name


def test_one_step_time_stands_on_the_screen(reports: dict[str, Report]) -> None:
    for name, run in alone(reports).items():
        found = re.findall(r"^(?:profiled )?step (\S+ \S?s)\b", "\n".join(screen(reports[name])), re.MULTILINE)
        assert found == ([duration(run.ledger.step_ns)] if run.ledger else []), name


def test_a_recommendation_has_one_figure_no_larger_than_its_row(reports: dict[str, Report]) -> None:
    for name, report in reports.items():
        shown = [f"{item.text} ({item.potential_saving})" for item in advice(report)]
        for insight, text in zip(report.insights, shown, strict=True):
            check_figure(name, report, insight, text)


def check_figure(name: str, report: Report, insight: Insight, text: str) -> None:
    run = next((run for run in report.runs if run.run == insight.run), None)
    if run is None or run.ledger is None or insight.rule == BESIDES_STEPS:
        return
    row = run.ledger.of(insight.row) if insight.row else None
    saving_ns = 0.0 if insight.potential_saving_ns is None else insight.potential_saving_ns
    assert saving_ns <= (row.ns if row else run.ledger.step_ns), name
    if row is not None:
        figure = row.ns if insight.potential_saving_ns is None or insight.only_finds_out else saving_ns
        assert text.count(duration(figure)) == 1, (name, text)


def test_whatif_has_the_figures_of_the_answer(reports: dict[str, Report], folders: dict[str, Path]) -> None:
    checked = 0
    for name, run in alone(reports).items():
        path = folders[name] / run.path
        if run.ledger is None or run.predicted_savings == [] or not path.exists():
            continue  # a record, or nothing to predict
        checked += check_predictions(name, path, run, reports[name].insights)
    assert checked > 40


def check_predictions(name: str, path: Path, run: RunReport, insights: Sequence[Insight]) -> int:
    """Compare a report with `perfkit whatif`, and return how many figures were compared.

    The row of late ranks is what the step gains if all are healthy, and an insight has the saving of its change.
    """
    assert run.ledger is not None
    expected = {one.predicted_for: one.potential_saving_ns for one in insights if one.predicted_for}
    late = run.ledger.of("late_ranks")
    if late is not None and not run.pipelines:  # what stages of a pipeline cost is no late rank's
        healthy = " ".join(f"rank{rank}=healthy" for rank in sorted(late.ranks))
        assert expected.setdefault(healthy, late.ns) == late.ns, name
    for change, saving_ns in expected.items():
        found = predict(path, change.split() if change.startswith("rank") else [change])
        assert found.prediction is not None, name
        assert duration(found.measured_step_ns) == duration(run.ledger.step_ns), name
        assert duration(found.prediction.saving_ns) == duration(saving_ns), (name, change)
    return len(expected)


SAMPLES: Final = sorted([*(ROOT / "traces").glob("sample-*"), *(path for path in TRACES.iterdir() if path.is_dir())])


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_screen_page_json_and_whatif_have_the_same_figures(path: Path, tmp_path: Path) -> None:
    page, data = tmp_path / "page.html", tmp_path / "report.json"
    assert main(["analyze", str(path), "-o", str(page), "-o", str(data)]) == 0
    report = msgspec.json.decode(data.read_bytes(), type=Report)
    shown = "\n".join(screen(report))
    drawn = " ".join(re.sub(r"<[^>]*>", " ", page.read_text(encoding="utf-8")).split())
    for run in report.runs:
        assert run.ledger is not None
        assert run.step_time is not None
        step = duration(run.step_time.mean_ns)
        assert step == duration(run.ledger.step_ns)
        assert f"step {step}" in shown
        assert f"step of {step} goes" in drawn
        rows = parts(run.ledger)
        assert [duration(row.ns) for row in run.ledger.rows][: len(rows) - 1] == [part.time for part in rows][:-1]
        for part in rows:
            assert part.percent in shown
            assert part.percent in drawn
            assert part.time in drawn
        assert sum(row.ns for row in run.ledger.rows) == run.ledger.step_ns
        if len(report.runs) == 1:
            check_predictions(path.name, path, run, report.insights)
    for insight in report.insights:
        if insight.predicted_for is not None:
            assert f"saves {duration(insight.potential_saving_ns)}" in drawn
