"""The callbacks with the real libraries: two micro-batches per step, pauses beside the steps, ranks of any launcher."""

import gzip
import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from perfkit.records.manifest import RunManifest
from perfkit.storage.run_folder import read_manifest
from tests.support.processes.launching import PYTHON, ROOT, TORCHRUN, execute

pytestmark = pytest.mark.slow  # the libraries take seconds to import, on each of two ranks

SCRIPTS = ROOT / "tests" / "integration" / "scripts"
KINDS = ["cold", "warmup", "active", "active", "active", "cold", "plain", "plain"]
STEP = ["forward", "backward", "forward", "backward", "optimizer"]


def needs(package: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(find_spec(package) is None, reason=f"{package} is not installed")


def script(name: str, *arguments: str | Path) -> list[str]:
    return [str(SCRIPTS / name), *map(str, arguments)]


def phases_by_step(trace: Path) -> list[list[str]]:
    """Return the phases that a trace annotates within each recorded step, in order of time."""
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    spans = [event for event in events if event.get("ph") == "X" and event.get("cat") == "user_annotation"]
    steps = sorted((event["ts"], event["dur"]) for event in spans if event["name"].startswith("ProfilerStep#"))
    phases = sorted((event["ts"], event["name"]) for event in spans if event["name"].startswith("perfkit."))
    return [
        [name.removeprefix("perfkit.") for ts, name in phases if begin <= ts < begin + duration]
        for begin, duration in steps
    ]


def check_run(folder: Path, first_pauses: list[str]) -> RunManifest:
    """Check the run of two ranks whose pauses follow the fourth of eight steps."""
    manifest = read_manifest(folder)
    assert (manifest.state, manifest.world.world_size) == ("completed", 2)
    assert manifest.step_kinds == KINDS
    for rank in (0, 1):
        assert phases_by_step(folder / f"rank{rank}.json.gz") == [STEP, STEP, [*first_pauses, *STEP]]
        assert [(pause.phase, pause.step) for pause in manifest.ranks[rank].pauses][: len(first_pauses)] == [
            (name, 4) for name in first_pauses
        ]
    return manifest


@needs("transformers")
@needs("accelerate")
def test_hugging_faces_trainer(tmp_path: Path) -> None:
    given: list[str | Path] = ["--traces", tmp_path / "run", "--out", tmp_path / "out"]
    done = execute([*TORCHRUN, *script("frameworks/callback_trainer.py", *given)])
    assert done.returncode == 0, done.stderr
    assert "trained 8\n" in done.stdout
    manifest = check_run(tmp_path / "run", ["logging", "evaluation", "checkpoint"])
    assert manifest.workload == "DistilBertForSequenceClassification"
    assert manifest.batch_size == 8  # two micro-batches of four
    assert manifest.throughput is not None


@needs("accelerate")
def test_a_loop_with_accelerate(tmp_path: Path) -> None:
    done = execute([*TORCHRUN, *script("with_accelerate.py", "--traces", tmp_path / "run")])
    assert done.returncode == 0, done.stderr
    check_run(tmp_path / "run", [])


@needs("lightning")
def test_lightning_that_starts_its_ranks_itself(tmp_path: Path) -> None:
    done = execute([PYTHON[0], *script("frameworks/callback_lightning.py", "--traces", tmp_path / "run")])
    assert done.returncode == 0, done.stderr
    assert "trained 8\n" in done.stdout
    assert check_run(tmp_path / "run", ["evaluation"]).workload == "Digits"


@needs("lightning")
def test_an_error_in_lightnings_loop_marks_the_run_as_failed(tmp_path: Path) -> None:
    given: list[str | Path] = ["--traces", tmp_path / "run", "--devices", "1", "--fail-in", "5"]
    done = execute([PYTHON[0], *script("frameworks/callback_lightning.py", *given)])
    assert done.returncode == 1
    manifest = read_manifest(tmp_path / "run")
    assert manifest.state == "failed"
    assert manifest.failure is not None
    assert manifest.failure.message == "ValueError: no luck"


@needs("lightning")
def test_under_perfkit_run_the_callback_only_marks_steps(tmp_path: Path) -> None:
    options = ["--trace-dir", str(tmp_path), "--name", "recorded", "--no-report"]
    given: list[str | Path] = ["--", "--traces", tmp_path / "own", "--devices", "1"]
    done = execute([*PYTHON, "run", script("frameworks/callback_lightning.py")[0], *options, *map(str, given)])
    assert done.returncode == 0, done.stderr
    manifest = read_manifest(tmp_path / "recorded")
    assert (manifest.state, len(manifest.step_kinds)) == ("completed", 8)
    assert not (tmp_path / "own").exists()


def test_a_loop_that_never_stops_the_recording_leaves_a_failed_run(tmp_path: Path) -> None:
    loop = "\n".join(
        [
            "import sys, torch, perfkit",
            "prof = perfkit.start(sys.argv[1])",
            "for number in range(8):",
            "    torch.randn(8, 8).sum(); prof.step(1.0)",
            "    if number == int(sys.argv[2]): raise ValueError('no luck')",
        ]
    )
    messages: dict[str, Any] = {}
    for name, last in (("forgotten", "99"), ("raised", "3")):
        execute([PYTHON[0], "-c", loop, str(tmp_path / name), last])
        manifest = read_manifest(tmp_path / name)
        assert manifest.failure is not None
        messages[name] = (manifest.state, manifest.failure.message)
    assert messages == {
        "forgotten": ("failed", "the program ended without a call of prof.stop()"),
        "raised": ("failed", "ValueError: no luck"),
    }
