"""Predictions of real runs whose truth is known: a script whose parts take the times that it is told."""

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

import perfkit
from perfkit.pipeline import whatif
from perfkit.records.per_run.whatif import Prediction
from tests.support.attempts import Attempts
from tests.support.processes.launching import LIMIT_S, PYTHON, ROOT, environment, in_real_time
from tests.support.processes.steady_runs import record_steady

SCRIPT = ROOT / "tests" / "support" / "processes" / "timed_training.py"
MS = 10**6
DELAY_MS, LOAD_MS, VALIDATE_MS = 80, 60, 40

# What ranks lose to other programs counts as theirs.
pytestmark = [pytest.mark.slow, pytest.mark.timing, pytest.mark.flaky(reruns=2)]


def record(folder: Path, of_script: Sequence[str]) -> Path:
    """Record two ranks of the script, and again if they were disturbed; returns the run's folder."""

    def once(attempt: int) -> Path:
        command = [*in_real_time(), *PYTHON, "run", str(SCRIPT), "-n", "2", "--name", str(attempt)]
        command += ["--schedule", "wait=1,warmup=1,active=6", "--trace-dir", str(folder)]
        command += ["--", "--steps", "9", *of_script]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False, env=environment())
        assert done.returncode == 0, done.stderr[-2000:]
        return folder / str(attempt)

    return record_steady(once)


@pytest.fixture(scope="module")
def delayed_attempts(tmp_path_factory: pytest.TempPathFactory) -> Attempts[Path]:
    slow = ["--slow-rank", "1", "--slow-ms", str(DELAY_MS), "--load-ms", str(LOAD_MS)]
    options = ["--layers", "2", *slow, "--validate-ms", str(VALIDATE_MS)]
    return Attempts(lambda: record(tmp_path_factory.mktemp("whatif"), options))


@pytest.fixture
def delayed(delayed_attempts: Attempts[Path], request: pytest.FixtureRequest) -> Path:
    """Return a run of two ranks of which rank 1 is late, with slow loading and host work."""
    return delayed_attempts.at(request)


def predict(run: Path, *changes: str) -> Prediction:
    one = whatif.predict(run, changes).prediction
    assert one is not None
    return one


@pytest.mark.parametrize(
    ("changes", "saved_ms"),
    [
        (["rank1=healthy"], DELAY_MS),
        (["input=0"], LOAD_MS),
        (["input=0.5x"], LOAD_MS / 2),
        (["idle:validate=0"], VALIDATE_MS),
        (["compute:timed::layer?=0"], 2 * 20),
        (["rank1=healthy", "input=0"], DELAY_MS + LOAD_MS),
        (["rank0=healthy"], -DELAY_MS),
    ],
)
def test_what_a_change_saves_is_what_it_takes_away(delayed: Path, changes: list[str], saved_ms: float) -> None:
    if saved_ms < 0:  # rank 0 would be as late as rank 1, for which it waits anyway
        assert abs(predict(delayed, *changes).saving_ns) < 10 * MS
        return
    # A healthy rank takes as long as the other one, and how much that is disturbed here differs from rank to rank.
    rel = 0.25 if "rank1=healthy" in changes else 0.15
    assert predict(delayed, *changes).saving_ns == pytest.approx(saved_ms * MS, rel=rel, abs=6 * MS)


def test_the_replay_without_a_change_is_what_was_measured(delayed: Path) -> None:
    result = whatif.predict(delayed, ["compute:*=1x"])
    assert result.replayed_step_ns == pytest.approx(result.measured_step_ns, rel=0.01)
    assert result.prediction is not None
    assert result.prediction.saving_ns == 0


def test_the_ranking_and_the_recommendations_begin_with_the_delay(delayed: Path) -> None:
    ranking = whatif.predict(delayed).ranking
    assert ranking is not None
    assert ranking[0].changes[0].change == "rank1=healthy"
    first = perfkit.analyze(delayed, cache=False).insights[0]
    assert first.predicted_for == "rank1=healthy"
    assert first.potential_saving_ns == pytest.approx(DELAY_MS * MS, rel=0.25)
