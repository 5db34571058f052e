"""Memory by category in real runs, against what the runs themselves measured and what the programs allocate."""

import gzip
import json
from pathlib import Path

import msgspec
import pytest

import perfkit
from perfkit.records.per_rank.memory import MemoryBytes
from perfkit.records.rank import MemoryUse
from perfkit.storage.run_folder import read_manifest
from tests.support.processes.launching import PYTHON, execute

pytestmark = pytest.mark.slow

SHORT = ("--schedule", "wait=1,warmup=0,active=2", "--steps", "3")

KEEPS = """
import torch
from torch import nn

kept = []


def remember():
    kept.append(torch.zeros(250_000))  # which takes longer than 10 us: shorter functions are not known


def main():
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(8):
        remember()
        loss = model(torch.randn(32, 64)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


main()
"""


def record(folder: Path, *words: str) -> Path:
    done = execute([*PYTHON, "run", *words, "--profile-memory", "--trace-dir", str(folder), "--name", "run"])
    assert done.returncode == 0, done.stderr
    return folder / "run"


def memory_of(path: Path) -> list[MemoryUse]:
    (run,) = perfkit.analyze(path, cache=False).runs
    uses = [rank.memory[0] for rank in run.ranks]
    for use in uses:
        assert use.at_peak is not None
        assert sum(msgspec.structs.astuple(use.at_peak)) == use.peak.allocated_bytes
    return uses


@pytest.fixture(scope="module")
def on_one_rank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("gpt"), "gpt", "-n", "1", *SHORT)


def check_held(folder: Path) -> None:
    for rank, use in zip(read_manifest(folder).ranks, memory_of(folder), strict=True):
        held, before, largest = rank.memory, use.not_counted, use.largest
        assert held
        assert before
        assert largest
        assert (before.parameters, before.optimizer_state) == (held.parameters_bytes, held.optimizer_bytes)
        assert largest.gradients == held.gradients_bytes
        assert largest.optimizer_state == 0
        assert largest.activations > 5 * held.parameters_bytes  # 32 samples of 64 tokens, of a tiny model


def test_gpt_holds_what_its_run_measured(on_one_rank: Path) -> None:
    check_held(on_one_rank)


def test_sharded_parameters_are_those_of_the_rank(tmp_path: Path) -> None:
    check_held(record(tmp_path, "gpt", "-n", "2", "--dp", "zero3", *SHORT))


def test_what_is_inferred_without_the_runs_notes_is_the_same(on_one_rank: Path, tmp_path: Path) -> None:
    trace = on_one_rank / "rank0.json.gz"
    document = json.loads(gzip.decompress(trace.read_bytes()))
    assert document["perfkit"].pop("tensors")
    bare = tmp_path / "rank0.json"
    bare.write_text(json.dumps(document))
    (noted,), (inferred,) = memory_of(trace), memory_of(bare)
    assert inferred.largest == noted.largest
    assert inferred.at_peak == noted.at_peak
    assert (noted.tensors_noted, inferred.tensors_noted, inferred.not_counted) == (True, False, None)


def test_a_list_that_grows_is_found_with_the_function_that_fills_it(tmp_path: Path) -> None:
    script = tmp_path / "keeps.py"
    script.write_text(KEEPS)
    (use,) = memory_of(record(tmp_path, str(script), "--with-stack", "--schedule", "wait=1,warmup=1,active=3"))
    parameters = 4 * (64 * 256 + 256 + 256 * 64 + 64)
    assert use.not_counted == MemoryBytes(parameters=parameters, optimizer_state=2 * parameters + 4 * 4)
    assert use.largest
    assert use.largest.gradients == parameters
    largest = use.holders[0]
    assert (largest.category, largest.operator, largest.count, largest.bytes) == ("other", "aten::zeros", 3, 3_000_000)
    assert largest.context
    assert largest.context.endswith(": remember")


def test_the_first_steps_state_is_the_optimizers(tmp_path: Path) -> None:
    script = tmp_path / "first.py"
    script.write_text(
        "import torch, perfkit\nfrom torch import nn\nmodel = nn.Linear(64, 64)\n"
        "optimizer = torch.optim.Adam(model.parameters())\n"
        f"folder, schedule = {str(tmp_path / 'own')!r}, 'wait=0,warmup=0,active=2'\n"
        "with perfkit.profile(folder, schedule=schedule, detail='why') as prof:\n"
        "    for _ in range(3):\n"
        "        optimizer.zero_grad()\n"
        "        with prof.phase('forward'):\n            loss = model(torch.randn(8, 64)).sum()\n"
        "        with prof.phase('backward'):\n            loss.backward()\n"
        "        with prof.phase('optimizer'):\n            optimizer.step()\n"
        "        prof.step()\n"
    )
    done = execute([*PYTHON[:1], str(script)])
    assert done.returncode == 0, done.stderr
    config = read_manifest(tmp_path / "own").config
    assert [config.get(name) for name in ("detail", "record_shapes", "profile_memory", "with_stack")] == [
        *("why", True, True, True)
    ]
    (use,) = memory_of(tmp_path / "own")
    parameters = 4 * (64 * 64 + 64)
    assert use.not_counted == MemoryBytes(parameters=parameters)
    assert use.largest
    assert (use.largest.optimizer_state, use.largest.gradients) == (2 * parameters + 2 * 4, parameters)
