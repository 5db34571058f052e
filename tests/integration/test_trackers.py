"""`perfkit analyze -o TRACKER:…` with the real clients, writing to local files."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import perfkit
from tests.support.processes.launching import LIMIT_S, PYTHON, ROOT, environment

pytestmark = pytest.mark.slow  # the clients take seconds to import

SAMPLE = ROOT / "traces" / "sample-hdf5"


def needs(package: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(find_spec(package) is None, reason=f"{package} is not installed")


def run(command: list[str], folder: Path, variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


def sent(target: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [*PYTHON, "analyze", str(SAMPLE), "-o", target]
    settings = environment() | {"HOME": str(folder)} | variables
    done = run(command, folder, settings)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("sample-hdf5")  # the answer is still there
    return done


def read_back(code: str, *arguments: str | Path, **variables: str) -> list[str]:
    """Run a reader in a separate process: the clients warn, which fails a test."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(
        command, env=os.environ | variables, capture_output=True, text=True, timeout=LIMIT_S, check=True
    ).stdout.splitlines()


def step_ms() -> float:
    (run,) = perfkit.analyze(SAMPLE).runs
    assert run.throughput is not None
    return run.throughput.step_ns / 1e6


@needs("tensorboard")
def test_tensorboard(tmp_path: Path) -> None:
    done = sent("tensorboard:logs", tmp_path)
    assert "perfkit: tensorboard: tensorboard --logdir logs" in done.stderr
    folder = tmp_path / "logs" / "sample-hdf5"
    assert (folder / "report.html").read_text(encoding="utf-8").lstrip().startswith("<!doctype html>")
    code = """
import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1]); events.Reload()
print(events.Scalars("perfkit/step_time_ms")[0].value)
print(len(events.Scalars("perfkit/step_ms")))
print(events.Tensors("perfkit/verdict")[0].tensor_proto.string_val[0].decode().splitlines()[0])
"""
    time_ms, steps, verdict = read_back(code, folder)
    assert float(time_ms) == pytest.approx(step_ms(), rel=1e-5)
    assert int(steps) == 54
    assert "compute" in verdict


@needs("tensorboard")
@pytest.mark.parametrize("place", ["sample-hdf5", "sample-hdf5/report.html"])
def test_tensorboard_follows_no_link_in_its_folder(tmp_path: Path, place: str) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    link = tmp_path / "logs" / place
    link.parent.mkdir(parents=True)
    link.symlink_to(mine)
    done = run([*PYTHON, "analyze", str(SAMPLE), "-o", "tensorboard:logs"], tmp_path, environment())
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"perfkit: error: logs/{place} is a link or a device: ")
    assert "Traceback" not in done.stderr
    assert not list(mine.iterdir())


@needs("mlflow")
def test_mlflow(tmp_path: Path) -> None:
    local = {"MLFLOW_ALLOW_FILE_STORE": "true"}
    done = sent("mlflow:runs", tmp_path, **local)
    assert "perfkit: mlflow: MLflow run " in done.stderr
    code = """
import sys, mlflow
client = mlflow.MlflowClient(tracking_uri=sys.argv[1])
(run,) = client.search_runs([client.get_experiment_by_name("perfkit").experiment_id])
print(run.info.run_name, run.info.status)
print(run.data.metrics["step_time_ms"])
print(len(client.get_metric_history(run.info.run_id, "step_ms")))
print(run.data.params["config.batch_size"])
print(*(file.path for file in client.list_artifacts(run.info.run_id)))
"""
    named, time_ms, steps, batch, files = read_back(code, tmp_path / "runs", **local)
    assert (named, batch, files, int(steps)) == ("sample-hdf5 FINISHED", "8", "report.html", 54)
    assert float(time_ms) == pytest.approx(step_ms(), rel=1e-6)


@needs("wandb")
def test_weights_and_biases_offline(tmp_path: Path) -> None:
    done = sent("wandb:team/demo", tmp_path, WANDB_MODE="offline", WANDB_DIR=str(tmp_path))
    (log,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    assert f"perfkit: wandb: wandb sync {log.parent}" in done.stderr
    written = log.read_bytes()
    assert all(name in written for name in (b"samples_per_s", b"step_ms", b"report.html", b"sample-hdf5", b"demo"))


@needs("mlflow")
def test_a_server_that_cannot_be_reached_is_one_line(tmp_path: Path) -> None:
    command = [*PYTHON, "analyze", str(SAMPLE), "-o", "mlflow:http://127.0.0.1:9"]
    settings = environment() | {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0"}
    done = run(command, tmp_path, settings)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("perfkit: error: -o mlflow:http://127.0.0.1:9: ")
