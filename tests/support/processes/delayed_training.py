"""One rank that trains under DDP over gloo with known delays and records each job with torch.profiler.

Usage: python -m tests.support.processes.delayed_training RANK RANKS PORT JOBS FOLDER

JOBS is a file with jobs as pickled by the straggler bench. An operator computes by sleeping, so that more ranks than
cores fit on a machine and its load matters little. How long a rank had to wait for a core in each recorded step is
written beside its trace.
"""

import os
import pickle
import random
import sys
import time
from functools import partial
from pathlib import Path

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from tests.support.processes.delayed_jobs import STEP_S, Delay, Job, write_core_waits

_WARMUP = 2
_LOAD_S, _UPDATE_S = 0.002, 0.005
_WEIGHTS = 20_000
_SCHEDSTAT = Path("/proc/thread-self/schedstat")


class Pace:
    """How long each layer takes now."""

    def __init__(self, job: Job, draw: random.Random) -> None:
        self._job, self._draw = job, draw
        self.extra_s = {"forward": 0.0, "backward": 0.0}

    def layer_s(self, phase: str) -> float:
        usual_s = STEP_S * {"forward": 1, "backward": 2}[phase] / 3 / self._job.layers
        varied_s = usual_s * max(0.0, self._draw.gauss(1, self._job.jitter))
        return varied_s + self.extra_s[phase] / self._job.layers


@torch.library.custom_op("delayed::compute", mutates_args=())
def compute(inputs: torch.Tensor, seconds: float) -> torch.Tensor:
    time.sleep(seconds)
    return inputs.clone()


class _Timed(torch.autograd.Function):
    """Passes its input on, in the time that the pace sets for either direction."""

    @staticmethod
    def forward(ctx, inputs, weight, pace):  # type: ignore[no-untyped-def]
        ctx.pace, ctx.size = pace, weight.shape
        return compute(inputs, pace.layer_s("forward")) + weight[0] * 0

    @staticmethod
    def backward(ctx, *gradients):  # type: ignore[no-untyped-def]
        passed = compute(gradients[0], ctx.pace.layer_s("backward"))
        return passed, torch.ones(ctx.size), None


class Layers(nn.Module):
    """Layers that take as long as they are told."""

    def __init__(self, pace: Pace, count: int) -> None:
        super().__init__()
        self.pace = pace
        self.weights = nn.ParameterList(nn.Parameter(torch.zeros(_WEIGHTS)) for _ in range(count))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        for weight in self.weights:
            inputs = _Timed.apply(inputs, weight, self.pace)  # type: ignore[no-untyped-call]
        return inputs.sum()


def delayed_s(delay: Delay | None, rank: int, step: int) -> float:
    """Return how long a rank is held back in a step."""
    if delay is None or step % delay.every:
        return 0.0
    late = (step % distributed.get_world_size(),) if delay.in_turns else delay.ranks
    return delay.seconds if rank in late else 0.0


def waited_for_core_ns() -> int:
    """Return how long this thread was ready to run without a core, in all; 0 where Linux does not count it."""
    return int(_SCHEDSTAT.read_text().split()[1]) if _SCHEDSTAT.exists() else 0


def save(profiler: profile, rank: int, folder: Path) -> None:
    """Write a rank's trace once all ranks have ended their last step, so that writing delays nobody's step."""
    distributed.barrier()
    profiler.export_chrome_trace(str(folder / f"rank{rank}.json"))


def train(job: Job, rank: int, folder: Path) -> None:
    """Run and record one job."""
    draw = random.Random(job.seed * 1000 + rank)  # noqa: S311 - no secret
    pace = Pace(job, draw)
    model = DistributedDataParallel(Layers(pace, job.layers), bucket_cap_mb=job.bucket_mb)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    planned = schedule(wait=0, warmup=_WARMUP, active=job.steps, repeat=1)
    ready = partial(save, rank=rank, folder=folder)
    waits = []
    distributed.barrier()
    with profile(activities=[ProfilerActivity.CPU], schedule=planned, on_trace_ready=ready) as profiler:
        for step in range(_WARMUP + job.steps):
            before_ns = waited_for_core_ns()
            train_step(job, pace, model, optimizer, delayed_s(job.delay, rank, step))
            time.sleep(max(0.0, draw.gauss(0, job.host_jitter_s)))
            waits.append(waited_for_core_ns() - before_ns)
            profiler.step()
    write_core_waits(folder, rank, waits[_WARMUP:])
    distributed.barrier()


def train_step(job: Job, pace: Pace, model: nn.Module, optimizer: torch.optim.Optimizer, late_s: float) -> None:
    """Run one step, in which this rank is `late_s` late."""
    delay = job.delay
    slow = delay is not None and delay.computing
    pace.extra_s = {phase: late_s * (slow and delay is not None and delay.phase == phase) for phase in pace.extra_s}

    def hold_back(phase: str) -> None:
        if late_s and delay is not None and not slow and delay.phase == phase:
            time.sleep(late_s)

    with record_function("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"):
        time.sleep(_LOAD_S)
        hold_back("data")
    inputs = torch.ones(8, requires_grad=True)
    hold_back("forward")
    loss = model(inputs)
    hold_back("backward")
    loss.backward()
    hold_back("optimizer")
    compute(inputs.detach(), _UPDATE_S)
    optimizer.step()
    optimizer.zero_grad()


def main(rank: int, ranks: int, port: str, jobs_file: str, folder: str) -> None:
    """Run all jobs, each in a folder named after it."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "RANK": str(rank), "WORLD_SIZE": str(ranks)}
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    jobs: list[Job] = pickle.loads(Path(jobs_file).read_bytes())  # noqa: S301 - written by the bench
    for job in jobs:
        own = Path(folder, job.name)
        own.mkdir(parents=True, exist_ok=True)
        train(job, rank, own)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:6])
