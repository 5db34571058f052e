"""What subjects of packages may do, and what is computed for each output."""

import shutil
from pathlib import Path
from typing import Any

import pytest

import perfkit
from perfkit.cli import main
from perfkit.engine.subject import Subject
from perfkit.engine.trace_context import TraceContext
from perfkit.storage import cache
from perfkit.subjects import table
from tests.support.traces.trace_builder import TraceBuilder


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 0, 5).launch(0, 1, 1).kernel("gemm", 10, 20, 0)
    return builder.write(tmp_path / "rank0.json")


def test_what_compares_traces_is_computed_where_there_are_several(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(TraceContext, "graph", property(lambda context: asked.append(context.file)))
    perfkit.analyze(trace, subjects=["ranks"], cache=False)
    assert asked == []
    other = shutil.copy(trace, tmp_path / "rank1.json")
    perfkit.analyze(trace, other, subjects=["ranks"], cache=False, executor="serial")
    assert asked == ["rank0.json", "rank1.json"]


def add(monkeypatch: pytest.MonkeyPatch, subject: Subject) -> None:
    monkeypatch.setattr(table, "_added", lambda: (("mine", subject),))
    monkeypatch.setattr(table.SUBJECTS, "origin", lambda _: "mypackage 1.0")


def fail(_: Any) -> None:
    raise KeyError(3)


@pytest.mark.parametrize("side", ["rank", "run"])
def test_a_subject_that_fails_costs_one_finding(trace: Path, monkeypatch: pytest.MonkeyPatch, side: str) -> None:
    whole = perfkit.analyze(trace, cache=False, executor="serial").runs[0]
    add(monkeypatch, Subject(rank={"x": fail}) if side == "rank" else Subject(run={"x": fail}))
    run = perfkit.analyze(trace, cache=False, executor="serial").runs[0]
    assert [one.message for one in run.findings if one.code == "subject_failed"] == [
        "subject 'mine' of mypackage 1.0 failed: KeyError: 3"
    ]
    assert run.ranks == whole.ranks


def test_a_package_cannot_fill_perfkits_own_fields(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(monkeypatch, Subject(rank={"idle": lambda _: 1}, run={"verdict": lambda _: 2}))
    run = perfkit.analyze(trace, cache=False, executor="serial").runs[0]
    assert (run.ranks[0].subjects["mine"], run.subjects["mine"]) == ([1], 2)
    assert run.verdict.sentence


def test_names_of_subjects_are_checked(trace: Path) -> None:
    for wrong in ("idle", ["nope"]):
        with pytest.raises(perfkit.UsageError, match="expected names of ranks, "):
            perfkit.analyze(trace, cache=False, subjects=wrong)


def test_a_section_compares_no_runs(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", str(trace), "--section", "idle", "--by", "source"]) == 2
    assert "remove --section" in capsys.readouterr().err


def test_what_determines_a_cached_result_exists() -> None:
    root = Path(perfkit.__file__).parent
    assert all((root / name).exists() for name in cache._ANALYSIS_CODE)
