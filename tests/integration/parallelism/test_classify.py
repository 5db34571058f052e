"""The classify workload, and DeepSpeed: losses are those of one process, memory is what ZeRO promises."""

import json
import statistics
from collections import Counter
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DistributedSampler

import perfkit
from perfkit.storage.run_folder import read_manifest
from tests.integration.parallelism.test_strategies import (
    GLOBAL_BATCH,
    OPTIONS,
    SAMPLES,
    arguments,
    check_losses,
    check_run,
    mean_losses,
    train,
)
from tests.integration.test_run import annotations, traces
from tests.support.processes.launching import NOT_THE_MACHINE, PYTHON, ROOT, SHORT, execute
from tests.unit.workloads.conftest import make

pytestmark = [
    pytest.mark.slow,  # transformers and deepspeed take seconds to import
    pytest.mark.skipif(find_spec("transformers") is None, reason="transformers is not installed"),
]

# Below, all stages train with SGD, whose updates are as large as the gradients.
ON_TWO = [
    "classify 4 --dp deepspeed --zero 1 --accumulate 2",
    "classify 4 --dp deepspeed --zero 3 --accumulate 2 --checkpoint-activations",
    "gpt 8 --dp deepspeed --zero 3",  # its tied weights
    "transformer 8 --dp deepspeed --zero 2",
]
ON_FOUR = ["classify 4 --dp zero3", "classify 4 --dp deepspeed --zero 2"]
DIVIDED: dict[str, object] = {"zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0}}
"""Without this, stage 3 keeps every parameter of so small a model on every rank."""


needs_deepspeed = pytest.mark.skipif(find_spec("deepspeed") is None, reason="deepspeed is not installed")


def test_losses_without_deepspeed(tmp_path: Path) -> None:
    check_losses(tmp_path, 2, "classify 8", "classify 8 --dp zero1", "classify 8 --dp zero2")


@needs_deepspeed
@pytest.mark.parametrize(("ranks", "cases"), [(2, ON_TWO), (4, ON_FOUR)])
def test_losses_with_deepspeed(ranks: int, cases: list[str], tmp_path: Path) -> None:
    check_losses(tmp_path, ranks, *cases)


RATE = 0.3


@cache
def losses_with_sgd() -> list[float]:
    """Return the losses of one process whose updates, unlike Adam's, are as large as the gradients."""
    workload = make("classify", **OPTIONS["classify"])
    arrays = workload.generate(workload.data_spec(0), 0, SAMPLES)
    sampler: DistributedSampler[Any] = DistributedSampler(range(SAMPLES), num_replicas=1, rank=0, seed=0)  # type: ignore[arg-type]
    torch.manual_seed(0)
    model = workload.build()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    order, losses = [*sampler], []
    for step in range(10):
        chosen = order[step * GLOBAL_BATCH : (step + 1) * GLOBAL_BATCH]
        loss = workload.loss(model, {field: torch.from_numpy(array[chosen]) for field, array in arrays.items()})
        torch.autograd.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()))
    return losses


def write(path: Path, **values: object) -> str:
    path.write_text(json.dumps(values))
    return str(path)


@needs_deepspeed
def test_gradients_have_the_right_size(tmp_path: Path) -> None:
    own = {
        "optimizer": {"type": "SGD", "params": {"lr": RATE}},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "gradient_clipping": 0.0,
    }
    files = [write(tmp_path / f"{stage}.json", zero_optimization={"stage": stage}, **own) for stage in range(4)]
    summed = write(tmp_path / "summed.json", **(own | {"optimizer": {"type": "SGD", "params": {"lr": 2 * RATE}}}))
    cases = [f"classify 4 --accumulate 2 --dp deepspeed --ds-config {file}" for file in [*files, summed]]
    results = train(tmp_path, 2, *cases)
    found = [mean_losses([rank["losses"] for rank in result["ranks"]]) for result in results]
    for case, losses in zip(cases[:-1], found, strict=False):
        assert losses == pytest.approx(losses_with_sgd(), rel=1e-4), case
    # Gradients that are summed over two ranks, or over two micro-steps, would be noticed.
    assert found[-1] != pytest.approx(losses_with_sgd(), rel=1e-4)


@needs_deepspeed
def test_memory_of_a_rank_is_what_zero_promises(tmp_path: Path) -> None:
    divided = write(tmp_path / "divided.json", **DIVIDED)
    size = 4 * sum(p.numel() for p in make("classify", **OPTIONS["classify"]).build().parameters())
    # Parameters, gradients, and Adam's two tensors, with a float32 copy of the rank's part where there is one.
    expected = {
        "--zero 0": (1, 1, 2),
        "--zero 1": (1, 1 / 4, 3 / 4),
        "--zero 2": (1, 1 / 4, 3 / 4),
        "--zero 2 --precision bfloat16": (1 / 2, 1 / 8, 3 / 4),
        f"--ds-config {divided}": (1 / 4, 1 / 4, 2 / 4),
        "--zero 3": (1 + 1 / 4, 1 / 4, 2 / 4),
    }
    results = train(tmp_path, 4, *(f"classify 4 --dp deepspeed {case} --steps 1 --no-profile" for case in expected))
    for (case, shares), result in zip(expected.items(), results, strict=True):
        held = [statistics.mean(values) for values in zip(*(rank["memory"] for rank in result["ranks"]), strict=True)]
        assert held == pytest.approx([share * size for share in shares], rel=0.02), case
        assert result["error"] is None, case


@needs_deepspeed
def test_a_run_and_its_traces(tmp_path: Path) -> None:
    given = [*arguments("classify 8 --dp deepspeed --zero 2"), "--trace-dir", str(tmp_path), "--name", "run"]
    done = execute([*PYTHON, "run", *given, "-n", "2", "--no-report"])
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{tmp_path}/run: done; to see where the time went: perfkit analyze {tmp_path}/run\n"
    assert "Warning" not in done.stderr
    manifest = read_manifest(tmp_path / "run")
    assert {"deepspeed", "transformers"} <= manifest.versions.keys()
    check_run(tmp_path, manifest, "classify")


@needs_deepspeed
@pytest.mark.skipif(find_spec("accelerate") is None, reason="accelerate is not installed, which Trainer needs")
def test_a_script_with_hugging_faces_trainer(tmp_path: Path) -> None:
    auto = ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping")
    file = write(tmp_path / "ds.json", zero_allow_untested_optimizer=True, **DIVIDED, **dict.fromkeys(auto, "auto"))
    options = ["--trace-dir", str(tmp_path), "--name", "trainer", "-n", "2", "--timeout", "2m", *SHORT]
    script = str(ROOT / "tests" / "integration" / "scripts" / "frameworks" / "with_trainer.py")
    done = execute([*PYTHON, "run", script, *options, "--", "--deepspeed", file, "--out", str(tmp_path / "out")])
    assert done.returncode == 0, done.stderr
    assert "trained 9\n" in done.stdout
    manifest = read_manifest(tmp_path / "trainer")
    assert (manifest.state, len(manifest.step_kinds)) == ("completed", 9)
    (run,) = perfkit.analyze(tmp_path / "trainer").runs
    assert [len(rank.steps) for rank in run.ranks] == [3, 3]
    assert {finding.code for finding in run.findings} & NOT_THE_MACHINE == set()
    for trace in traces(tmp_path / "trainer", manifest):
        assert [len(annotations(trace, f"perfkit.{phase}")) for phase in ("forward", "backward")] == [3, 3]
        issued = Counter(event["name"] for event in trace["traceEvents"] if event["name"].startswith("c10d::"))
        assert issued["c10d::_reduce_scatter_base_"] >= 3, issued
        assert issued["c10d::_allgather_base_"] >= 3, issued
