"""What sampling the main thread costs: processor time of the same work with and without it, in turn.

Usage: python -m tests.benchmarks.bench_sampling [PAIRS]

At the default rate the cost is below what single runs vary by, so it is also measured at 5,000 samples per second and
divided by their number. Others than the process's own time are not counted: the figures hold on a busy machine too.
"""

import statistics
import sys
import time
from collections.abc import Callable
from typing import Final

import torch

from perfkit.record.recording.host_sampler import INTERVAL_NS, HostSampler

_DEEP: Final = 20
"""Calls around the work."""
_OFTEN_NS: Final = 200_000


def main(pairs: int) -> None:
    """Print one row per kind of work."""
    torch.set_num_threads(1)
    model = torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(20)])
    batch = torch.randn(8, 32)
    kinds = {
        "a loop in Python": lambda: sum(k * k for k in range(2_000_000)),
        "small operators": lambda: [model(batch).sum().backward() for _ in range(200)],
    }
    print(f"{'':20} {'default rate':>13} {'per sample':>11} {'so per step':>12}")
    for name, work in kinds.items():
        default, _ = _measure(work, pairs, INTERVAL_NS)
        often, samples = _measure(work, pairs, _OFTEN_NS)
        each_ns = often * _deep_ns(work) / samples
        print(f"{name:20} {default:+13.2%} {each_ns / 1000:8.1f} us {each_ns / INTERVAL_NS:12.2%}", flush=True)


def _measure(work: Callable[[], object], pairs: int, interval_ns: int) -> tuple[float, float]:
    """Return by how much longer the work takes while it is sampled, the median of pairs, and its samples."""
    ratios, counts = [], []
    for _ in range(pairs):
        plain_ns = _deep_ns(work)
        sampler = HostSampler(interval_ns)
        sampler.start()
        ratios.append(_deep_ns(work) / plain_ns - 1)
        sampler.stop()
        counts.append(len(sampler.take()))
    return statistics.median(ratios), statistics.fmean(counts)


def _deep_ns(work: Callable[[], object], depth: int = _DEEP) -> int:
    """Return the processor time of the work (ns), called that deep."""
    if depth:
        return _deep_ns(work, depth - 1)
    begin = time.process_time_ns()
    work()
    return time.process_time_ns() - begin


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
