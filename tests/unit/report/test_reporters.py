"""The table of formats: suffixes select a format, and installed packages add formats."""

import sys
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

import pytest

import perfkit.plugins
from perfkit import report
from perfkit.cli import main
from perfkit.errors import UsageError
from perfkit.plugins import Registry
from perfkit.records.comparison import Comparison
from perfkit.records.report import Report
from perfkit.report import CHARTS, DOCUMENTS, FORMATS, build_document, builtin_suffixes, reporter, reporter_for
from tests.support.reports.report_builders import make_report, make_run
from tests.support.traces.trace_builder import TraceBuilder


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("r.csv", "csv"),
        ("r.points.csv", "points"),
        ("R.OPTIONS.CSV", "options"),
        ("r.talp.json", "talp"),
        ("r.json", "json"),
        ("r.options.parquet", "options-parquet"),
    ],
)
def test_the_longest_suffix_selects_the_format(file: str, name: str) -> None:
    assert reporter_for(Report, Path(file)) is FORMATS[Report][name]


@pytest.mark.parametrize("record", FORMATS)
def test_every_suffix_and_renderer_of_a_record_is_its_own(record: type) -> None:
    assert len(set(builtin_suffixes(record))) == len(builtin_suffixes(record))
    assert all(row.record is record for row in FORMATS[record].values())
    assert record in DOCUMENTS
    assert (record in CHARTS) == ("html" in FORMATS[record])


def test_a_run_is_drawn_like_a_report_of_it() -> None:
    assert build_document(make_run(), 5) == build_document(make_report(make_run()), 5)


class Prometheus:
    """A reporter of another package."""

    record: type = Report
    suffixes = (".prom",)
    binary = False

    def write(self, record: Report, stream: TextIO, *, top: int) -> None:
        stream.write(f"runs {len(record.runs)} {top}\n")


class Failing(Prometheus):
    """Raises what no reporter should."""

    def write(self, record: Report, stream: TextIO, *, top: int) -> None:
        raise KeyError("gone")


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module with a reporter, installed as the entry point `prometheus`; it is not imported yet."""
    module = ModuleType("prometheus_plugin")
    vars(module)["REPORTER"] = Prometheus()
    entries = [EntryPoint("prometheus", "prometheus_plugin:REPORTER", "perfkit.reporters")]
    monkeypatch.setattr(perfkit.plugins, "_entry_points", lambda _path: EntryPoints(entries))
    old = report.PLUGINS
    fresh: Any = Registry(old.group, old.noun, {}, report._find_problem)
    monkeypatch.setattr(report, "PLUGINS", fresh)
    monkeypatch.setitem(sys.modules, "prometheus_plugin", module)
    return module


def test_names_are_listed_without_importing_a_plug_in(plugin: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, plugin.__name__)
    assert report.format_names(Report)[-1] == "prometheus"
    assert reporter_for(Report, Path("r.json")) is FORMATS[Report]["json"]


def test_a_suffix_unknown_to_perfkit_may_be_a_plug_ins(plugin: Any) -> None:
    for found in (reporter_for(Report, Path("r.prom")), reporter(Report, "prometheus")):
        assert (found.record, found.suffixes, found.binary) == (Report, (".prom",), False)
    with pytest.raises(UsageError, match=r"-o r\.xls: unknown output format: use .*\.prom$"):
        reporter_for(Report, Path("r.xls"))
    with pytest.raises(UsageError, match=r"-o r\.prom: unknown output format: use \.txt"):
        reporter_for(Comparison, Path("r.prom"))
    with pytest.raises(UsageError, match="format 'prometheus' writes a Report, not a Comparison"):
        reporter(Comparison, "prometheus")


def test_analyze_writes_with_a_plug_in(plugin: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = str(TraceBuilder(0, 1).step(0, 0, 100).op("aten::mm", 0, 50).write(tmp_path / "rank0.json"))
    assert main(["analyze", trace, "-f", "prometheus", "--top", "3"]) == 0
    assert capsys.readouterr().out == "runs 1 3\n"
    assert main(["analyze", trace, "-o", str(tmp_path / "r.prom")]) == 0
    assert (tmp_path / "r.prom").read_text() == "runs 1 10\n"


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        (object(), "has no `record` that is one of the types of perfkit.report.FORMATS"),
        (Prometheus, "is a class: the entry point must be an instance of it"),
    ],
)
def test_a_plug_in_that_is_not_a_reporter_is_one_line(
    plugin: Any, broken: object, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = str(TraceBuilder(0, 1).step(0, 0, 100).op("aten::mm", 0, 50).write(tmp_path / "rank0.json"))
    plugin.REPORTER = broken
    assert main(["analyze", trace, "-f", "prometheus"]) == 1
    assert capsys.readouterr().err.endswith(f"{problem}\n")


def test_a_plug_in_that_fails_to_write_is_one_line(
    plugin: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = str(TraceBuilder(0, 1).step(0, 0, 100).op("aten::mm", 0, 50).write(tmp_path / "rank0.json"))
    plugin.REPORTER = Failing()
    assert main(["analyze", trace, "-f", "prometheus"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("perfkit: error: reporter 'prometheus' of ")
    assert error.endswith(" failed: KeyError: 'gone'\n")
