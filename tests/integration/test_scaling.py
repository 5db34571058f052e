"""A scaling series of real runs, from training to the report."""

import json
from pathlib import Path

import pytest

import perfkit
from tests.support.processes.launching import PYTHON, SHORT, execute

TRAIN = [*PYTHON, "run", "gpt", "--preset", "tiny", "--threads", "1", "--batch-size", "4", "--steps", "12", *SHORT]


@pytest.mark.slow  # two runs
def test_runs_of_one_and_two_ranks_are_a_weak_series(tmp_path: Path) -> None:
    for size in (1, 2):
        done = execute([*TRAIN, "-n", str(size), "--trace-dir", str(tmp_path), "--name", f"gpt-{size}"])
        assert done.returncode == 0, done.stderr
    report = perfkit.analyze(tmp_path)
    assert report.multi_run is not None
    (series,) = report.multi_run.series
    assert (series.kind, series.batch_size, [point.world_size for point in series.points]) == ("weak", 4, [1, 2])
    one, two = series.points
    assert (one.step_time.measured_on, one.threads, two.threads) == ("plain", 1, 1)
    assert two.speedup.value == pytest.approx(2 * one.step_time.step_ns.value / two.step_time.step_ns.value)
    assert one.factors is not None
    assert two.factors is not None
    (lost,) = series.lost
    lost_points = 100 * (one.factors.global_efficiency - two.factors.global_efficiency)
    assert lost.total == pytest.approx(lost_points, abs=1e-6)
    shown = execute([*PYTHON, "analyze", str(tmp_path), "--full"])
    assert "Scaling: gpt weak (batch 4 per rank)" in shown.stdout
    out = tmp_path / "one.talp.json"
    assert execute([*PYTHON, "analyze", str(tmp_path / "gpt-2"), "-o", str(out)]).returncode == 0
    exported = json.loads(out.read_text())["Application"]["Global"]
    run = next(run for run in report.runs if run.world_size == 2)
    assert run.efficiency is not None
    assert exported["parallelEfficiency"] == pytest.approx(run.efficiency.parallel)
