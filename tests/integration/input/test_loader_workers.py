"""Slow parts of a real loader with worker processes are named."""

import subprocess
import sys
from pathlib import Path

import pytest

from perfkit.engine.runs.data_loading import main_cause
from perfkit.pipeline.analyze import analyze
from perfkit.records.run import RunReport
from perfkit.report.wording import in_words
from tests.support.processes.launching import LIMIT_S

SCRIPT = """
import os, sys, time, torch, torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset, default_collate, get_worker_info

slow, start = sys.argv[1:]

class Numbers(Dataset):
    def __len__(self):
        return 10_000
    def __getitem__(self, index):
        here = slow == "worker" or (slow == "rank" and os.environ["RANK"] == "1")
        if here and get_worker_info().id == 1:
            time.sleep(0.05)
        return torch.full((64,), float(index)), index % 8

def collate(samples):
    if slow == "collate":
        time.sleep(0.5)
    return default_collate(samples)

if __name__ == "__main__":
    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(nn.Linear(64, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(Numbers(), 8, num_workers=2, collate_fn=collate, multiprocessing_context=start)
    for step, (inputs, targets) in enumerate(loader):
        assert inputs[0, 0] == 8 * step
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == 18:
            break
    dist.destroy_process_group()
"""


def record(folder: Path, slow: str, start: str, ranks: int) -> RunReport:
    """A run of the script: with a slow worker of each rank, or of rank 1, or slow collating."""
    script = folder / "train.py"
    script.write_text(SCRIPT)
    schedule = "wait=3,warmup=1,active=10"
    options = ["-n", ranks, "--trace-dir", folder / "t", "--schedule", schedule]
    command = [sys.executable, "-m", "perfkit", "run", script, *options, "--", slow, start]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr
    (run,) = analyze(folder / "t", cache=False).runs
    return run


@pytest.mark.slow
@pytest.mark.flaky(reruns=2)  # beside other programs it takes long to hand batches over
@pytest.mark.parametrize(
    ("slow", "start", "ranks", "cause", "words"),
    [
        # Of two ranks with such a worker, one is a straggler: their workers start at different times.
        ("worker", "spawn", 1, "slow_worker", "worker 1"),
        ("collate", "fork", 2, "collating", "collating batches"),
    ],
)
def test_what_is_slow_is_named(tmp_path: Path, slow: str, start: str, ranks: int, cause: str, words: str) -> None:
    run = record(tmp_path, slow, start, ranks)
    named = main_cause(run.ranks)
    assert named is not None
    assert (named[0], words in in_words((named[1],))) == (cause, True)
    assert run.verdict.bound == "input"
    for rank in run.ranks:
        assert rank.loading is not None
        assert rank.loading.slow_workers == ([1] if slow == "worker" else [])


@pytest.mark.slow
@pytest.mark.flaky(reruns=2)  # other programs on the machine make ranks late, too
def test_a_straggler_is_named_with_its_slow_worker(tmp_path: Path) -> None:
    run = record(tmp_path, "rank", "fork", 2)
    assert run.cross_rank is not None
    assert {row.rank: row.loading and row.loading.cause for row in run.cross_rank.stragglers} == {1: "slow_worker"}
    assert run.ledger is not None
    row = run.ledger.of("late_ranks")
    assert row is not None
    assert (row.ranks, row.late_in) == ([1], "data_loading")
