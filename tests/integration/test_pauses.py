"""Checkpoints and evaluations of real runs: how long they took, what they wrote, and that they are part of no step."""

import subprocess
import sys
from pathlib import Path

import pytest

from perfkit.pipeline.analyze import analyze
from perfkit.records.per_run.pauses import RankPauses
from perfkit.storage.run_folder import read_manifest
from tests.support.processes.command import run_command
from tests.support.processes.launching import LIMIT_S
from tests.support.processes.script_pairs import run_forked

SCRIPT = """
import io, sys, time, torch, torch.distributed as dist
from torch import nn

class SlowFile(io.FileIO):
    slept = False
    def write(self, data):
        if not self.slept:
            self.slept = True
            time.sleep(2)
        return super().write(data)

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)))
optimizer = torch.optim.Adam(model.parameters())
for step in range(14):
    inputs, targets = torch.randn(64, 64), torch.randint(0, 8, (64,))
    nn.functional.cross_entropy(model(inputs), targets).backward()
    optimizer.step()
    optimizer.zero_grad()
    if step == 5 and dist.get_rank() == 0:
        model.eval()
        with torch.no_grad():
            for _ in range(10):
                model.module(inputs)
                time.sleep(0.15)
        model.train()
    if step == 7:
        torch.save(model.state_dict(), SlowFile(f"{sys.argv[1]}/{dist.get_rank()}.pt", "w"))
dist.destroy_process_group()
"""


def perfkit(*args: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "perfkit", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S)


def rows(folder: Path) -> dict[tuple[str, int | None], RankPauses]:
    (run,) = analyze(folder, cache=False).runs
    return {(row.phase, row.rank): row for row in run.pauses}


@pytest.mark.slow
@pytest.mark.flaky(reruns=2)  # other programs on the machine change wall times
def test_a_script_that_evaluates_on_rank_0_and_writes_a_slow_checkpoint(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    schedule = "wait=1,warmup=1,active=8"
    done = perfkit("run", script, "-n", 2, "--trace-dir", tmp_path / "t", "--schedule", schedule, "--", tmp_path)
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "t").glob("train-*")
    found = rows(folder)
    assert set(found) == {("checkpoint", 0), ("checkpoint", 1), ("evaluation", 0)}
    for rank in range(2):
        row = found["checkpoint", rank]
        assert 2e9 <= row.total_ns < 2.8e9
        assert row.recorded_ns == pytest.approx(row.total_ns, rel=0.02)
        assert row.bytes is not None
        assert row.bytes > 4 * (64 * 64 + 64 * 8)
        assert row.caller is not None
        assert row.caller.startswith("train.py:")
    evaluation = found["evaluation", 0]
    assert 1.5e9 <= evaluation.total_ns < 2.3e9
    assert evaluation.waited_ns is not None
    assert evaluation.waited_ns > 1e9
    # Nobody is late by them (two ranks that share cores may differ a little), and neither the recorded steps nor those
    # by the run's own clock have the pauses.
    (run,) = analyze(folder).runs
    assert run.cross_rank is not None
    assert [row for row in run.cross_rank.stragglers if row.lag_ns > 50e6] == []
    own_clock = read_manifest(folder).ranks[0].step_wall_ns
    assert max(own_clock[1:]) < 1e9


OFTEN = """
import sys, torch
from torch import nn

how = sys.argv[1]
model = nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if how == "always":
    import perfkit
    model.eval()
for step in range(24):
    if how == "always":
        model(torch.randn(4, 8))
        perfkit.step()
        continue
    if how == "each" or step % 10 == 5:
        model.eval()
        model(torch.randn(4, 8))
        model.train()
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
model.train()
"""


@pytest.mark.slow
def test_what_a_script_evaluates_within_its_steps_is_part_of_them(tmp_path: Path) -> None:
    script, expected = tmp_path / "train.py", {"each": 0, "tenth": 2, "always": 0}
    script.write_text(OFTEN)
    options = ["run", str(script), "--no-report", "--schedule", "wait=3,warmup=1,active=15", "--"]
    done = run_forked([([*options, how], tmp_path / how) for how in expected])
    assert [ended.code for ended in done] == [0, 0, 0], done
    for how, evaluations in expected.items():
        (run,) = analyze(tmp_path / how / "traces", cache=False).runs
        assert (how, sum(row.count for row in run.pauses)) == (how, evaluations)
        assert len(run.ranks[0].steps) == 15


@pytest.mark.slow
def test_a_workload_evaluates_and_writes_checkpoints(tmp_path: Path) -> None:
    done = perfkit(
        *("run", "gpt", "-n", 2, "--threads", 1, "--steps", 8, "--schedule", "wait=1,warmup=1,active=4"),
        *("--trace-dir", tmp_path, "--eval-interval", 4, "--eval-batches", 2, "--checkpoint-interval", 3),
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if "val loss" in line]
    assert [line.partition(":")[0] for line in lines] == ["step 4", "step 8"]
    (folder,) = tmp_path.glob("gpt-*")
    found = rows(folder)
    assert {key: row.count for key, row in found.items()} == {
        ("checkpoint", 0): 2,
        ("evaluation", 0): 2,
        ("evaluation", 1): 2,
    }
    assert found["checkpoint", 0].bytes == 2 * (folder / "checkpoint.pt").stat().st_size


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("transformer", "--eval-interval", 2), "transformer has no samples for evaluation"),
        (("gpt", "--dp", "zero1", "--checkpoint-interval", 2), "--checkpoint-interval does not work with --dp zero1"),
        (("gpt", "--mesh", "pp=2", "-n", 2, "--eval-interval", 2), "--eval-interval does not work with pp in --mesh"),
    ],
)
def test_what_does_not_work_together_is_refused(tmp_path: Path, options: tuple[object, ...], message: str) -> None:
    done = run_command("run", *map(str, options), "--trace-dir", tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
