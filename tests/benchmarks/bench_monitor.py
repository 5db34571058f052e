"""What the monitor costs per step: the same loop with and without it, in turn.

Usage: python -m tests.benchmarks.bench_monitor [PAIRS]

Rows: a user's own loop and the hooks of a script, on one rank and on two (gloo). Each pair is a block of steps
without and one with the monitor, in the same process; the cost is the median over pairs of the difference between the
medians of their steps. A step is short, so that the difference shows beside the noise; its share is that of a step of
50 ms. On two ranks a step's time contains the waiting for the other, so that the cost is that of both; the cost in
processor time of the thread that trains is that of one.
"""

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import torch
import torch.distributed as dist
from torch import nn
from torch.multiprocessing.spawn import spawn

from perfkit.record.monitor.step_monitor import StepMonitor

STEPS: Final = 100
STEP_NS: Final = 50e6
"""A step of which the cost must be below 1 %."""
_WARM_UP: Final = 300


def main(pairs: int) -> None:
    """Print one row per kind of loop and number of ranks."""
    print(
        f"{'':28} {'step µs':>8} {'cost µs':>8} {'of 50 ms':>9} {'processor µs':>13}"
        "   10th to 90th percentile of the pairs' cost, µs"
    )
    for ranks in (1, 2):
        for script in (False, True):
            with tempfile.TemporaryDirectory() as scratch:
                if ranks == 1:
                    _measure(0, 1, pairs, script, scratch)
                else:
                    spawn(_measure, (ranks, pairs, script, scratch), nprocs=ranks)  # type: ignore[no-untyped-call]
    _print_parts()


def _measure(rank: int, ranks: int, pairs: int, script: bool, scratch: str) -> None:
    torch.set_num_threads(1)
    model: nn.Module = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    if ranks > 1:
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        dist.init_process_group("gloo", init_method=f"file://{scratch}/store", rank=rank, world_size=ranks)
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    inputs = torch.randn(16, 64)

    def step() -> torch.Tensor:
        loss: torch.Tensor = model(inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return loss.detach()

    _time_steps(step, _WARM_UP)
    plain, costs, own_costs = [], [], []
    for _ in range(pairs):
        lasts, own = _time_steps(step, STEPS)
        monitored, own_monitored = _time_monitored(step, Path(scratch), rank, ranks, script)
        plain.append(lasts)
        costs.append(monitored - lasts)
        own_costs.append(own_monitored - own)
    if rank == 0:
        name = f"{ranks} rank{'s' if ranks > 1 else ''}, {'script' if script else 'own loop'}"
        _print_row(name, plain, costs, own_costs)
    if ranks > 1:
        dist.destroy_process_group()


def _time_monitored(
    step: Callable[[], torch.Tensor], folder: Path, rank: int, ranks: int, script: bool
) -> tuple[float, float]:
    monitor = StepMonitor()
    monitor.losses.wanted = script
    monitor.install()
    monitor.open(folder, rank, ranks, torch.device("cpu"))
    monitor.begin_step()
    numbers = iter(range(STEPS))

    def monitored() -> torch.Tensor:
        loss = step()
        monitor.end_step(next(numbers), "plain", monitor.losses.get() if script else loss)
        monitor.begin_step()
        return loss

    times = _time_steps(monitored, STEPS)
    if monitor.has_failed:
        raise SystemExit("the monitor has stopped")
    monitor.close()
    return times


def _time_steps(step: Callable[[], torch.Tensor], steps: int) -> tuple[float, float]:
    """Return the median duration and the mean processor time of this thread, in ns."""
    durations = []
    used = time.thread_time_ns()
    for _ in range(steps):
        begin = time.perf_counter_ns()
        step()
        durations.append(time.perf_counter_ns() - begin)
    return statistics.median(durations), (time.thread_time_ns() - used) / steps


def _print_row(name: str, plain: list[float], costs: list[float], own_costs: list[float]) -> None:
    cost = statistics.median(costs)
    tenths = statistics.quantiles(costs, n=10)
    print(
        f"{name:28} {statistics.median(plain) / 1e3:8.0f} {cost / 1e3:8.1f} {cost / STEP_NS:9.4%} "
        f"{statistics.median(own_costs) / 1e3:13.1f}   "
        f"{tenths[0] / 1e3:.1f} to {tenths[-1] / 1e3:.1f}",
        flush=True,
    )


def _print_parts() -> None:
    """Print what the end of a step alone takes, called in a row: nothing else uses the processor's caches between."""
    with tempfile.TemporaryDirectory() as scratch:
        monitor = StepMonitor()
        monitor.open(Path(scratch), 0, 1, torch.device("cpu"))
        durations = []
        for number in range(20_000):
            begin = time.perf_counter_ns()
            monitor.end_step(number, "plain", 1.0)
            monitor.begin_step()
            durations.append(time.perf_counter_ns() - begin)
        monitor.close()
    print(f"end and beginning of a step, called in a row: {statistics.median(durations) / 1e3:.1f} µs (median)")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
