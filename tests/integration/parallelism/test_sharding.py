"""Collectives of real sharded runs: their phases and layers are those that the strategy prescribes."""

from collections import Counter
from pathlib import Path

import pytest

import perfkit
from perfkit.records.per_rank.sharding import ROOT_LAYER
from perfkit.records.run import RunReport
from tests.integration.test_run import check_folder, messages
from tests.support.processes import mesh_pipeline
from tests.support.processes.launching import PYTHON, execute, record_forked

LAYERS = (ROOT_LAYER, "blocks.0", "blocks.1")
"""What `perfkit run gpt` gathers, of its preset tiny."""

_TOKENS = 16 * 64
LOGITS_BYTES, ACTIVATION_BYTES = _TOKENS * 256 * 4, _TOKENS * 64 * 4
"""Of all tokens of a step, in float32: over a vocabulary of 256, and of a layer's width of 64."""


OPTIONS = {
    "zero2": "--dp zero2",
    "zero3": "--dp zero3",
    "tp": "--mesh tp=2",
    "sequence": "--mesh tp=2 --sequence-parallel",
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a run of two ranks for each of the options."""
    folder = tmp_path_factory.mktemp("sharded")
    errors = record_forked(folder, 2, {name: f"gpt --steps 5 {options}" for name, options in OPTIONS.items()})
    assert messages(errors) == []
    return folder


def analyzed(folder: Path) -> RunReport:
    check_folder(folder)
    (run,) = perfkit.analyze(folder).runs
    return run


def per_step(run: RunReport) -> dict[tuple[str, str | None, str | None], float]:
    """Return the number of collectives per step and rank by operator, phase and layer, as on every rank."""
    counts: Counter[tuple[str, str | None, str | None]] = Counter()
    for rank in run.ranks:
        for row in rank.issued_collectives:
            counts[row.operator, row.phase, row.layer] += row.count
    steps = sum(len(rank.steps) for rank in run.ranks)
    return {key: count / steps for key, count in counts.items()}


def of_activations(run: RunReport) -> dict[str, float]:
    """Return the number of collectives of a layer's activations per step and rank, by operator."""
    counts: Counter[str] = Counter()
    for row in (row for rank in run.ranks for row in rank.collectives if row.bytes == ACTIVATION_BYTES):
        counts[row.operator] += row.count
    return {operator: count / sum(len(rank.steps) for rank in run.ranks) for operator, count in counts.items()}


def check_sums(run: RunReport) -> None:
    for rank in run.ranks:
        issued, whole = rank.issued_collectives, rank.collectives
        assert sum(row.exposed_ns for row in issued) == sum(row.exposed_ns for row in whole)
        assert sum(row.total_ns for row in issued) == sum(row.total_ns for row in whole)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["zero2", "zero3"])
def test_what_is_gathered_again_in_backward(strategy: str, recorded: Path) -> None:
    """Each layer once in forward, with zero3 again in backward; on the CPU the host waits for each at once."""
    run = analyzed(recorded / strategy)
    expected: dict[tuple[str, str | None, str | None], float] = {
        # Gradients are clipped by their norm over all ranks.
        ("all_reduce", "optimizer", None): 1.0,
    }
    for layer in LAYERS:
        expected |= {("all_gather", "forward", layer): 1.0, ("reduce_scatter", "backward", layer): 1.0}
        expected |= {("all_gather", "backward", layer): 1.0} if strategy == "zero3" else {}
    assert per_step(run) == expected
    check_sums(run)
    for rank in run.ranks:
        sharded = rank.sharded_parameters
        assert sharded is not None
        assert all(row.synchronous_ns == row.exposed_ns and row.waited_ns == row.total_ns for row in sharded.gathers)
        gathered = {row.phase: 0 for row in sharded.gathers}
        for row in sharded.gathers:
            gathered[row.phase] += row.bytes
        once = gathered["forward"] // len(rank.steps)
        assert sharded.regathered_bytes == (once if strategy == "zero3" else 0)
    assert "fsdp_prefetch" not in {insight.rule for insight in perfkit.analyze(recorded / strategy).insights}


@pytest.mark.slow
@pytest.mark.parametrize("sequence", [True, False])
def test_sequence_parallel_is_recognised(sequence: bool, recorded: Path) -> None:
    run = analyzed(recorded / ("sequence" if sequence else "tp"))
    (tensor,) = run.divided_work
    assert (tensor.dimension, tensor.sequence_parallel) == ("tp", sequence)
    assert tensor.tokens is not None
    sizes = {row.bytes for rank in run.ranks for row in rank.collectives if row.operator == "all_gather"}
    assert sizes == ({LOGITS_BYTES, ACTIVATION_BYTES} if sequence else {LOGITS_BYTES})
    # Attention and MLP of 2 layers, and the output head; the embedding is reduced on all ranks either way.
    divided = {"reduce_scatter": 2 * 2 + (2 * 2 + 1), "all_gather": (2 * 2 + 1) + (2 * 2 + 1), "all_reduce": 1}
    assert of_activations(run) == (divided if sequence else {"all_reduce": (1 + 2 * 2) + (2 * 2 + 1)})
    assert tensor.exposed_ns <= tensor.total_ns
    check_sums(run)


@pytest.mark.slow
def test_dimensions_of_a_script_with_a_mesh(tmp_path: Path) -> None:
    """gloo's sends name no group, and the default group no dimension: the named groups and the data tell both."""
    own = ["run", mesh_pipeline.__file__, "-n", "4", "--trace-dir", str(tmp_path)]
    done = execute([*PYTHON, *own, "--schedule", "wait=0,warmup=2,active=3"])
    assert done.returncode == 0, done.stderr
    (run,) = perfkit.analyze(tmp_path).runs
    found = {
        (row.operator, row.dimension): row.count // len(rank.steps) for rank in run.ranks for row in rank.collectives
    }
    batches = {("send", "pp"): mesh_pipeline.BATCHES, ("recv", "pp"): mesh_pipeline.BATCHES}
    assert found == batches | {("all_reduce", name): 1 for name in ("dp", "pp", "pp+dp")}
    assert sorted([rank.rank for rank in one.ranks] for one in run.pipelines) == [[0, 2], [1, 3]]
    assert {(one.schedule, one.stages, one.micro_batches) for one in run.pipelines} == {
        ("1f1b", 2, mesh_pipeline.BATCHES)
    }
