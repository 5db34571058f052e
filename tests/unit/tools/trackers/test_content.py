"""What trackers are sent, and which targets of -o are trackers."""

from pathlib import Path

import pytest

import perfkit
from perfkit.cli import main
from perfkit.errors import LaunchEnvironmentError
from perfkit.tools.trackers import split_address
from perfkit.tools.trackers.content import import_client, tracked_runs
from tests.support.processes.launching import ROOT

SAMPLES = ROOT / "traces"


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("mlflow:http://host:5000", ("mlflow", "http://host:5000")),
        ("mlflow:sqlite:///runs.db", ("mlflow", "sqlite:///runs.db")),
        ("mlflow:", ("mlflow", "")),
        ("tensorboard:runs/a", ("tensorboard", "runs/a")),
        ("report.html", None),
        ("wandb", None),
        ("./mlflow:x.html", None),
        ("other:x.html", None),
    ],
)
def test_a_target_with_the_name_of_a_tracker_is_an_address(target: str, expected: tuple[str, str] | None) -> None:
    assert split_address(target) == expected


def test_scalars_are_those_of_the_comparison_and_the_page_has_its_own_run_only() -> None:
    report = perfkit.analyze(SAMPLES / "sample-memory", SAMPLES / "sample-hdf5")
    runs = tracked_runs(report)
    assert [run.name for run in runs] == [run.run for run in report.runs]
    for run, record in zip(runs, report.runs, strict=True):
        assert record.throughput is not None
        assert run.scalars["samples_per_s"] == pytest.approx(record.throughput.samples_per_s, rel=1e-6)
        assert run.scalars["step_time_ms"] == pytest.approx(record.throughput.step_ns / 1e6, rel=1e-6)
        assert record.step_times is not None
        assert run.step_ms == [ns / 1e6 for ns in record.step_times.plain_ns]
        assert run.options["config.batch_size"] == "8"
        assert run.options["source"] == record.source
        other = next(one for one in runs if one.name != run.name)
        assert run.name in run.page
        assert other.name not in run.page


def test_names_from_a_trace_are_safe(tmp_path: Path) -> None:
    report = perfkit.analyze(SAMPLES / "sample-memory")
    (run,) = report.runs
    from msgspec.structs import replace

    odd = replace(report, runs=[replace(run, run="../\x1b[31mx", config={"a\nb": "\x1b"})])
    (tracked,) = tracked_runs(odd)
    assert tracked.name == "..-31mx"
    assert tracked.options["config.a\\nb"] == "\\x1b"


@pytest.mark.parametrize(
    ("name", "expected"), [(".", "run"), ("..", "run"), ("...", "run"), ("", "run"), ("..a", "..a")]
)
def test_a_name_of_dots_leads_nowhere(name: str, expected: str) -> None:
    from msgspec.structs import replace

    report = perfkit.analyze(SAMPLES / "sample-memory")
    (tracked,) = tracked_runs(replace(report, runs=[replace(report.runs[0], run=name)]))
    assert tracked.name == expected


def test_a_client_that_is_not_installed_is_named_with_its_extra() -> None:
    with pytest.raises(
        LaunchEnvironmentError, match=r"-o mlflow: needs no_such_client: pip install 'perfkit\[mlflow\]'"
    ):
        import_client("no_such_client.part", "mlflow")


def test_a_tracker_without_an_address_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", str(SAMPLES / "sample-memory"), "-o", "tensorboard:"]) == 2
    assert "-o tensorboard: needs a folder" in capsys.readouterr().err
