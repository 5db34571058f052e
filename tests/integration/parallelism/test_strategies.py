"""Every way to share a model between ranks trains the same model: losses are those of one process.

The reference is a plain loop, without perfkit's training, on the same global batches.
"""

import json
import statistics
import subprocess
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DistributedSampler

import perfkit
from perfkit.options.mesh import lay_out
from perfkit.records.manifest import RunManifest
from tests.integration.test_run import annotations, check_folder, messages, traces
from tests.support.processes.launching import (
    LIMIT_S,
    NOT_THE_MACHINE,
    ROOT,
    environment,
    record_forked,
)
from tests.unit.workloads.conftest import make

STEPS, GLOBAL_BATCH, SAMPLES = 10, 16, 192
SCRIPT = ROOT / "tests" / "integration" / "scripts" / "train_cases.py"
# A high rate from the first step on: after ten steps a wrong gradient shows.
OPTIONS: dict[str, dict[str, Any]] = {
    "gpt": {
        "layers": 4,
        "width": 32,
        "heads": 4,
        "block": 16,
        "vocab_size": 65,
        "samples": SAMPLES,
        "learning_rate": 0.01,
        "warmup_steps": 0,
    },
    "classify": {
        "layers": 2,
        "width": 32,
        "heads": 4,
        "feedforward": 64,
        "length": 32,
        "dropout": 0.0,
        "samples": SAMPLES,
        "learning_rate": 0.01,
    },
    "transformer": {
        "samples": SAMPLES,
        "dropout": 0.0,
        "lr_scale": "none",
        "d_model": 32,
        "heads": 4,
        "target_length": 8,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "feedforward": 64,
    },
}


OPTIONS["gpt-experts"] = OPTIONS["gpt"] | {"experts": 4}


@cache
def reference_losses(name: str) -> list[float]:
    """Return the losses of one process that trains on the global batches."""
    workload = make(name.partition("-")[0], **OPTIONS[name])
    arrays = workload.generate(workload.data_spec(0), 0, SAMPLES)
    sampler: DistributedSampler[Any] = DistributedSampler(
        range(SAMPLES),  # type: ignore[arg-type]
        num_replicas=1,
        rank=0,
        seed=0,
    )
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


def arguments(case: str) -> list[str]:
    """Return the arguments of `perfkit run` for a case: workload, batch size per replica, further options."""
    name, batch, *options = case.split()
    given = [f"--{key.replace('_', '-')}={value}" for key, value in OPTIONS[name].items()]
    steps = [] if "--steps" in options else ["--steps", str(STEPS)]
    return [name.partition("-")[0], *given, "--batch-size", batch, *options, *steps, "--threads", "1"]


def mean_losses(by_rank: list[list[float | None]]) -> list[float]:
    """Return the loss of each step, averaged over the ranks that have one."""
    return [statistics.mean(loss for loss in step if loss is not None) for step in zip(*by_rank, strict=True)]


def train(folder: Path, ranks: int, *cases: str) -> list[dict[str, Any]]:
    texts = []
    for case in cases:
        prefix, _, own = case.rpartition("| ")
        texts.append(" ".join([f"{prefix}|" if prefix else "", *arguments(own), "--trace-dir", str(folder)]))
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(ranks), *texts],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT_S * len(cases),
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def check_losses(folder: Path, ranks: int, *cases: str) -> None:
    for case, result in zip(cases, train(folder, ranks, *cases), strict=True):
        found = mean_losses([rank["losses"] for rank in result["ranks"]])
        # In lower precision a token may go to another expert than in float32.
        lower = 5e-2 if "experts" in case else 1e-2
        tolerance = lower if "--precision" in case else 1e-4
        assert found == pytest.approx(reference_losses(case.split()[0]), rel=tolerance), case
        assert result["error"] is None, case


HSDP = "--dp hsdp --mesh replicate=2,shard=2"
# Each value of an option occurs, and each pair of a dimension of the mesh with a strategy or an option that changes
# what is reduced in it.
ON_TWO = [
    "gpt 8",
    "gpt 4 --dp zero3 --accumulate 2",
    "gpt 4 --dp zero1 --accumulate 2 --no-overlap",
    "gpt 8 --dp zero2 --checkpoint-activations",
    "transformer 8 --dp zero3",
    "gpt 16 --mesh tp=2 --sequence-parallel --checkpoint-activations",
    "gpt 16 --mesh tp=2 --dp zero1 --static-graph",
    *(f"gpt 16 --mesh pp=2 --pp-schedule {name}" for name in ("1f1b", "zbv")),
    "gpt 16 --mesh pp=2 --pp-schedule zero-bubble --micro-batches 8",
    "gpt 16 --mesh pp=2 --dp zero3 --checkpoint-activations",
    "gpt-experts 8 --mesh ep=2",
]
ON_FOUR = [
    f"gpt 4 {HSDP}",
    "gpt 8 --mesh dp=2,tp=2 --sequence-parallel --dp zero2",
    "gpt 4 --mesh dp=2,tp=2 --accumulate 2 --no-overlap",
    "gpt 8 --mesh dp=2,tp=2 --loss-parallel --sequence-parallel --dp zero3 --checkpoint-activations",
    "gpt 4 --dp zero2 --precision bfloat16 --prefetch-layers 1",
    "gpt 8 --mesh dp=2,tp=2 --loss-parallel --dp zero3 --precision bfloat16",
    "gpt 8 --mesh dp=2,cp=2 --precision float16",
    "gpt-experts 4 --mesh dp=2,ep=2 --precision bfloat16",
]
PIPELINES_ON_FOUR = [
    "gpt 8 --mesh pp=2,dp=2 --dp zero1",
    "gpt 8 --mesh pp=2,dp=2 --dp zero3 --pp-schedule interleaved",
    "gpt 8 --mesh pp=2,dp=2 --dp zero2 --pp-schedule zbv",
    "gpt 16 --mesh pp=2,tp=2 --sequence-parallel",
    "gpt 16 --mesh pp=4 --pp-schedule gpipe",
    "gpt 8 --mesh pp=2,dp=2 --pp-schedule none --dp zero3",
]
SEQUENCES_AND_EXPERTS_ON_FOUR = [
    "gpt 16 --mesh cp=4 --dp zero1",
    "gpt 4 --mesh dp=2,cp=2 --accumulate 2 --checkpoint-activations --no-overlap",
    "gpt-experts 8 --mesh dp=2,cp=2",
    "gpt-experts 4 --mesh ep=4 --static-graph",
    "gpt-experts 2 --mesh dp=2,ep=2 --accumulate 2 --checkpoint-activations",
    "gpt-experts 4 --dp zero3",
]
ON_EIGHT = [
    "gpt-experts 2 --mesh dp=2,ep=4",
    "gpt 8 --mesh pp=2,dp=2,tp=2 --dp zero3 --sequence-parallel",
    "gpt 4 --dp hsdp --mesh replicate=2,shard=2,tp=2 --sequence-parallel",
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "cases"),
    [(2, ON_TWO), (4, ON_FOUR), (4, PIPELINES_ON_FOUR), (4, SEQUENCES_AND_EXPERTS_ON_FOUR), (8, ON_EIGHT)],
)
def test_losses_are_those_of_one_process(ranks: int, cases: list[str], tmp_path: Path) -> None:
    check_losses(tmp_path, ranks, *cases)


@pytest.mark.slow
def test_one_gradient_that_is_not_reduced_is_noticed(tmp_path: Path) -> None:
    wrong = {
        "gpt 8": "module.blocks.1.mlp.expand.weight",
        "gpt 8 --dp zero1": "module.tokens.weight",
        "gpt 16 --mesh cp=2": "module.blocks.1.attention.qkv.weight",
    }
    results = train(tmp_path, 2, *(f"unreduced {parameter} | {case}" for case, parameter in wrong.items()))
    for case, result in zip(wrong, results, strict=True):
        found = mean_losses([rank["losses"] for rank in result["ranks"]])
        assert found != pytest.approx(reference_losses("gpt"), rel=1e-4), case
        # With ZeRO-1 the owner of a parameter broadcasts it, so that the ranks agree on what is wrong.
        assert ("differ from those of rank 0" in (result["error"] or "")) == ("zero1" not in case), case


@pytest.mark.slow
def test_an_expert_whose_gradient_is_not_reduced_is_noticed(tmp_path: Path) -> None:
    """What reaches an expert's gradient before it is reduced is the sum over the ranks of `ep`."""
    case = "gpt-experts 8 --mesh ep=2"  # without replicas only the scale is wrong
    replicated = "gpt-experts 4 --mesh dp=2,ep=2"
    name = "module.blocks.1.mlp.experts.expand.weight"
    results = train(tmp_path, 4, f"unreduced {name} | {replicated}") + train(tmp_path, 2, f"unreduced {name} | {case}")
    for result in results:
        found = mean_losses([rank["losses"] for rank in result["ranks"]])
        assert found != pytest.approx(reference_losses("gpt-experts"), rel=1e-4)


@pytest.mark.slow
def test_the_tokens_of_experts_are_counted_once(tmp_path: Path) -> None:
    cases = ["gpt-experts 8", "gpt-experts 8 --mesh ep=2", "gpt-experts 4 --accumulate 2 --checkpoint-activations"]
    alone, divided, recomputed = train(tmp_path, 2, *cases)
    for layer in range(4):
        load, other, third = (result["experts"][layer] for result in (alone, divided, recomputed))
        # Each of 16 samples has 16 tokens, and each of these two experts.
        assert sum(load["expert_tokens"]) == pytest.approx(512)
        assert load["rank_tokens"] == pytest.approx([256, 256])
        assert other["expert_tokens"] == pytest.approx(load["expert_tokens"])
        assert third["expert_tokens"] == pytest.approx(load["expert_tokens"])
        by_rank = [sum(load["expert_tokens"][:2]), sum(load["expert_tokens"][2:])]
        assert other["rank_tokens"] == pytest.approx(by_rank)


@pytest.mark.slow
def test_memory_of_a_rank_is_what_zero_promises(tmp_path: Path) -> None:
    shared = {"ddp": (1, 1, 1), "zero1": (1, 1, 4), "zero2": (4, 4, 4), "zero3": (4, 4, 4)}
    results = train(tmp_path, 4, *(f"gpt 4 --dp {dp} --steps 1 --no-profile" for dp in shared))
    model = make("gpt", **OPTIONS["gpt"]).build()
    parameters = sum(parameter.numel() for parameter in model.parameters())
    layer = sum(parameter.numel() for parameter in model.blocks[0].parameters())  # type: ignore[union-attr, index]
    for (dp, by), result in zip(shared.items(), results, strict=True):
        # float32; Adam has two such tensors for each parameter.
        expected = [4 * parameters / ranks * size for ranks, size in zip(by, (1, 1, 2), strict=True)]
        held = [rank["memory"] for rank in result["ranks"]]
        assert [[own[:2] for own in held]] == [[pytest.approx(expected[:2], rel=0.02)] * 4], dp
        # ZeRO-1 gives whole tensors to the ranks, so their parts differ in size: equal on average.
        assert statistics.mean(own[2] for own in held) == pytest.approx(expected[2], rel=0.02), dp
        assert dp == "zero1" or [own[2] for own in held] == pytest.approx([expected[2]] * 4, rel=0.02), dp
        # What is gathered besides: with stage 3 a layer and what belongs to none, with stage 2 everything in the end.
        gathered = {"zero2": 4 * parameters, "zero3": 4 * (parameters - 3 * layer)}.get(dp, 0)
        assert [rank["gathered"] for rank in result["ranks"]] == [gathered] * 4, dp


def check_run(folder: Path, manifest: RunManifest, name: str) -> None:
    """Check losses, mesh and traces of a run with the options `name`."""
    assert mean_losses([rank.loss for rank in manifest.ranks]) == pytest.approx(reference_losses(name), rel=1e-4)
    layout = lay_out(manifest.config["mesh"], manifest.world.world_size)
    assert manifest.mesh == layout.record()
    assert manifest.parameters == sum(p.numel() for p in make(manifest.workload, **OPTIONS[name]).build().parameters())
    assert len(manifest.experts) == (4 if "experts" in name else 0)
    assert None not in [rank.memory for rank in manifest.ranks]
    assert manifest.throughput is not None
    samples = manifest.throughput.samples_per_s * manifest.throughput.step_ns / 1e9
    assert samples == pytest.approx(GLOBAL_BATCH)
    (run,) = perfkit.analyze(folder).runs
    # torch's flight recorder does not record gloo's sends and receives.
    known = {"collective_sizes_unmatched"} if {"pp", "cp"} & {*layout.sizes} else set()
    assert {finding.code for finding in run.findings} & NOT_THE_MACHINE <= known
    for trace in traces(Path(run.path), manifest):
        for phase in ("data_loading", "to_device", "forward", "backward", "optimizer"):
            assert len(annotations(trace, f"perfkit.{phase}")) >= 3, phase


RUNS = {
    "experts": "gpt-experts 4 --mesh dp=2,ep=2",
    "context": "gpt 8 --mesh dp=2,cp=2",
    "tensor": "gpt 8 --mesh dp=2,tp=2 --dp zero2",
    "pipeline": "gpt 8 --mesh pp=2,dp=2",
}


@pytest.mark.slow
def test_runs_and_their_traces(tmp_path: Path) -> None:
    errors = record_forked(tmp_path, 4, {name: " ".join(arguments(case)) for name, case in RUNS.items()})
    assert messages(errors, pipeline=True) == []
    for name, case in RUNS.items():
        check_run(tmp_path / name, check_folder(tmp_path / name, pipeline=name == "pipeline"), case.split()[0])


@pytest.fixture(scope="module")
def on_two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with runs of two ranks: a pipeline without a schedule, and layers that are gathered ahead."""
    cases = {
        "unscheduled": "gpt 16 --mesh pp=2 --pp-schedule none",
        "ahead": "gpt 8 --dp zero3 --prefetch-layers 2 --precision bfloat16",
    }
    folder = tmp_path_factory.mktemp("two")
    record_forked(folder, 2, {name: " ".join(arguments(case)) for name, case in cases.items()})
    return folder


def spans(trace: dict[str, Any], name: str) -> list[tuple[float, float]]:
    """Return begin and end of an annotation's spans in us; ranks on one host share the clock."""
    found = [event for event in trace["traceEvents"] if event.get("name") == f"perfkit.{name}"]
    return sorted((event["ts"], event["ts"] + event["dur"]) for event in found)


@pytest.mark.slow
def test_without_a_schedule_one_rank_of_a_pipeline_computes_at_a_time(on_two: Path) -> None:
    folder = on_two / "unscheduled"
    first, last = traces(folder, check_folder(folder, pipeline=True))
    steps = zip(
        spans(first, "forward"),
        spans(last, "forward")[::2],  # each is followed by that of the loss
        spans(last, "backward")[::2],  # each is followed by the sum of the tied gradients
        spans(first, "backward")[::2],
        strict=True,
    )
    for in_order in steps:
        assert [*in_order] == sorted(in_order)
        assert all(end <= begin for (_, end), (begin, _) in pairwise(in_order)), in_order


@pytest.mark.slow
def test_layers_are_gathered_ahead_and_in_the_precision_of_the_forward_pass(on_two: Path) -> None:
    folder = on_two / "ahead"
    model = make("gpt", **OPTIONS["gpt"]).build()
    layer = sum(parameter.numel() for parameter in model.blocks[0].parameters())  # type: ignore[union-attr, index]
    for trace in traces(folder, check_folder(folder)):
        gathered = [one["bytes"] for one in trace["perfkit"]["collectives"] if one["op"] == "all_gather"]
        assert 2 * layer in gathered, "two bytes per parameter"
        assert 4 * layer not in gathered
        ordered = sorted((one for one in trace["traceEvents"] if one.get("ph") == "X"), key=lambda one: one["ts"])
        names = [one["name"] for one in ordered]
        begin = next(at for at, name in enumerate(names) if name.startswith("ProfilerStep#"))
        computes = next(at for at, name in enumerate(names) if at > begin and "attention" in name)
        # The root's own parameters, the first layer's, and two ahead of it.
        assert names[begin:computes].count("c10d::_allgather_base_") == 4
