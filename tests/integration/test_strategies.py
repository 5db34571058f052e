"""Every way to share a model between ranks trains the same model: losses are those of one process.

The reference is a plain loop, without perfkit's training, on the same global batches.
"""

import statistics
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DistributedSampler

import perfkit
from perfkit.capture.mesh import lay_out
from perfkit.schema.manifest import RunManifest
from tests.integration.test_run import annotations, run_once, traces
from tests.support.launching import MPIEXEC, NOT_THE_MACHINE, PYTHON, needs_mpiexec
from tests.unit.workloads.conftest import make

STEPS, GLOBAL_BATCH, SAMPLES = 10, 16, 192
# A high rate from the first step on: after ten steps a wrong gradient shows.
SIZES: dict[str, Any] = {"layers": 4, "width": 32, "heads": 2, "block": 16, "vocab_size": 64, "samples": SAMPLES}
RATE: dict[str, Any] = {"learning_rate": 0.01, "warmup_steps": 0}
TRANSFORMER: dict[str, Any] = {"samples": SAMPLES, "dropout": 0.0, "lr_scale": "none"}
OPTIONS = {
    "gpt": {**SIZES, **RATE},
    "transformer": {"preset": "tiny", **TRANSFORMER},
}


def reference_losses(name: str) -> list[float]:
    """Return the losses of one process that trains on the global batches."""
    preset = {"preset": None} if name == "gpt" else {}
    options = {key: value for key, value in (OPTIONS[name] | preset).items() if key != "preset"}
    workload = make(name, **options)
    arrays = workload.generate(workload.data_spec(0), 0, SAMPLES)
    sampler = DistributedSampler(range(SAMPLES), num_replicas=1, rank=0, shuffle=True, seed=0, drop_last=True)  # type: ignore[arg-type,var-annotated]
    torch.manual_seed(0)
    model = workload.build()
    done = workload.optimization(model, world_size=1, total_steps=STEPS, device_type="cpu")
    order, losses = list(sampler), []
    for step in range(STEPS):
        chosen = order[step * GLOBAL_BATCH : (step + 1) * GLOBAL_BATCH]
        loss = workload.loss(model, {field: torch.from_numpy(array[chosen]) for field, array in arrays.items()})
        torch.autograd.backward(loss)
        if done.clip_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), done.clip_norm)
        done.optimizer.step()
        if done.scheduler is not None:
            done.scheduler.step()
        done.optimizer.zero_grad()
        losses.append(float(loss.detach()))
    return losses


def losses(manifest: RunManifest) -> list[float]:
    """Return the loss of each step, averaged over the ranks that have one."""
    return [
        statistics.mean(loss for loss in step if loss is not None)
        for step in zip(*(rank.loss for rank in manifest.ranks), strict=True)
    ]


def command(name: str, ranks: int, *options: str, launcher: list[str] | None = None) -> list[str]:
    given = [f"--{key.replace('_', '-')}={value}" for key, value in OPTIONS[name].items()]
    start = [*PYTHON, "run", name, "-n", str(ranks)] if launcher is None else [*launcher, *PYTHON, "run", name]
    return [*start, *given, *options, "--steps", str(STEPS), "--threads", "1"]


def train(folder: Path, name: str, ranks: int, *options: str, launcher: list[str] | None = None) -> RunManifest:
    return run_once([*command(name, ranks, *options, launcher=launcher), "--trace-dir", str(folder)], folder)


def check_same_model(folder: Path, manifest: RunManifest, name: str) -> None:
    """Check losses, mesh and traces of a run."""
    assert losses(manifest) == pytest.approx(reference_losses(name), rel=1e-4)
    layout = lay_out(manifest.config["mesh"], manifest.world.world_size)
    assert manifest.mesh == layout.record()
    (run,) = perfkit.analyze(folder).runs
    assert {finding.code for finding in run.findings} & NOT_THE_MACHINE == set()
    for trace in traces(Path(run.path), manifest):
        for phase in ("data_loading", "to_device", "forward", "backward", "optimizer"):
            assert len(annotations(trace, f"perfkit.{phase}")) >= 3, phase


HSDP = ("--dp", "hsdp", "--mesh", "replicate=2,shard=2")
CASES = [
    pytest.param("gpt", 2, ("--dp", "zero3", "--batch-size", "4", "--accumulate", "2"), id="zero3"),
    *(
        pytest.param(name, ranks, options, marks=pytest.mark.slow, id=f"{name}-{ranks}-{' '.join(options)}")
        for name, ranks, options in [
            *(("gpt", 2, ("--dp", dp, "--batch-size", "8")) for dp in ("ddp", "zero1", "zero2")),
            ("gpt", 2, ("--dp", "zero1", "--batch-size", "4", "--accumulate", "2", "--no-overlap")),
            ("gpt", 2, ("--dp", "zero2", "--batch-size", "8", "--checkpoint-activations")),
            *(("transformer", 2, ("--dp", dp, "--batch-size", "8")) for dp in ("zero1", "zero2", "zero3")),
            ("gpt", 4, (*HSDP, "--batch-size", "4")),
            ("gpt", 4, ("--dp", "zero3", "--mesh", "dp=4", "--batch-size", "4")),
        ]
    ),
]


@pytest.mark.parametrize(("name", "ranks", "options"), CASES)
def test_losses_are_those_of_one_process(name: str, ranks: int, options: tuple[str, ...], tmp_path: Path) -> None:
    manifest = train(tmp_path, name, ranks, *options)
    check_same_model(tmp_path, manifest, name)


@needs_mpiexec
@pytest.mark.slow
def test_under_mpiexec(tmp_path: Path) -> None:
    four = [MPIEXEC[0], "-n", "4"]
    check_same_model(tmp_path, train(tmp_path, "gpt", 4, *HSDP, "--batch-size", "4", launcher=four), "gpt")


@pytest.mark.slow
@pytest.mark.parametrize("dp", ["ddp", "zero1", "zero2", "zero3"])
def test_memory_of_a_rank_is_what_zero_promises(dp: str, tmp_path: Path) -> None:
    manifest = train(tmp_path, "gpt", 4, "--dp", dp, "--batch-size", "4")
    assert manifest.parameters is not None
    whole = 4 * manifest.parameters  # float32; Adam has two such tensors for each
    shared = {"ddp": (1, 1, 1), "zero1": (1, 1, 4), "zero2": (4, 4, 4), "zero3": (4, 4, 4)}[dp]
    held = [rank.memory for rank in manifest.ranks]
    expected = [whole / by * size for by, size in zip(shared, (1, 1, 2), strict=True)]
    for memory in held:
        assert memory is not None
        measured = [memory.parameters_bytes, memory.gradients_bytes]
        assert measured == pytest.approx(expected[:2], rel=0.02)
    # ZeRO-1 gives whole tensors to the ranks, so their parts differ in size: equal on average.
    states = [memory.optimizer_bytes for memory in held if memory is not None]
    assert statistics.mean(states) == pytest.approx(expected[2], rel=0.02)
    if dp != "zero1":
        assert states == pytest.approx([expected[2]] * 4, rel=0.02)
