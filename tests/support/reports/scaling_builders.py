"""Sets of runs that scale by known laws."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.support.reports.worded import scaling
from perfkit.pipeline.words import find_insights
from perfkit.records.common import Finding
from perfkit.records.manifest import Throughput
from perfkit.records.rank import RankReport
from perfkit.records.report import Report
from perfkit.records.run import HostUsage, ProfilerCost, RunReport, StepTimes
from tests.support.reports.report_builders import (
    MS,
    make_across,
    make_efficiency,
    make_loading,
    make_rank,
    make_run,
    make_step,
)

CONFIG: dict[str, Any] = {
    "accumulate": 1,
    "precision": "float32",
    "compile": False,
    "overlap": True,
    "schedule": "wait=1,warmup=1,active=3",
    "trace_dir": "traces",
    "data_dir": "traces/.data",
    "read": "batched",
    "num_workers": 0,
    "pin_memory": False,
    "steps": 12,
    "timeout": "10m",
}


def make_hosts(ranks: int, *, cores: int | None = 64, threads: int = 1, a_host: int = 64) -> list[HostUsage]:
    return [
        HostUsage(
            host=f"node{number}",
            device="cpu",
            device_name="cpu model",
            ranks=(here := min(a_host, ranks - first)),
            threads=here * threads,
            cores=cores,
        )
        for number, first in enumerate(range(0, ranks, a_host))
    ]


def make_scaled(
    size: int,
    step_ms: float,
    *,
    batch: int = 32,
    source: str = "memory",
    name: str | None = None,
    walls_ms: Sequence[float] | None = None,
    config: dict[str, Any] | None = None,
    **changes: Any,
) -> RunReport:
    """A completed run of `size` ranks whose plain steps take `step_ms`, or each of `walls_ms`; `batch` is a rank's."""
    walls = [round(ms * MS) for ms in (walls_ms or [step_ms] * 6)]
    chosen = CONFIG | {"batch_size": batch, "source": source, "name": name} | (config or {})
    fields: dict[str, Any] = {
        "workload": "gpt",
        "source": source,
        "world_size": size,
        "ranks": [make_rank(rank, [make_step(5), make_step(6)]) for rank in range(size)] if size <= 8 else [],
        "config": chosen,
        "batch_size": batch,
        "hosts": make_hosts(size),
        "versions": {"torch": "2.13.0", **({"h5py": "3.16"} if source == "hdf5" else {})},
        "step_times": StepTimes(plain_ns=walls, recorded_ns=[2 * wall for wall in walls]),
        "throughput": make_throughput(size, batch, walls[0]),
        "data_loading": make_loading(source=source),
        "profiler_cost": ProfilerCost(plain_step_ns=None, recorded_step_ns=None, ratio=None, reason="not measured"),
        "efficiency": make_efficiency(),
        "cross_rank": make_across() if size > 1 else None,
        "injections": [],
        "findings": [],
    }
    return make_run(name or f"gpt-{source}-{size}ranks-{batch}", **(fields | changes))


def make_throughput(ranks: int, batch: int, step_ns: int) -> Throughput:
    return Throughput(
        samples_per_s=ranks * batch * 1e9 / step_ns,
        tokens_per_s=64 * ranks * batch * 1e9 / step_ns,
        flops_per_s=None,
        mfu=None,
        mfu_reason=None,
        read_bytes_per_s=None,
        measured_on="plain",
        step_ns=step_ns,
    )


def make_weak(
    step_ms: Callable[[int], float],
    sizes: Sequence[int],
    *,
    repeats: int = 1,
    noise: float = 0.0,
    seed: int = 0,
    **changes: Any,
) -> list[RunReport]:
    """Repeats at every world size; whole runs are longer or shorter by `noise` (a relative standard deviation)."""
    draw = np.random.default_rng(seed)
    return [
        make_scaled(size, step_ms(size) * float(np.exp(draw.normal(0, noise))), name=f"weak-{size}-{n}", **changes)
        for size in sizes
        for n in range(repeats)
    ]


def make_strong(
    step_ms: Callable[[int], float],
    sizes: Sequence[int],
    *,
    batch: int = 512,
    repeats: int = 1,
    noise: float = 0.0,
    seed: int = 0,
    **changes: Any,
) -> list[RunReport]:
    draw = np.random.default_rng(seed)
    return [
        make_scaled(
            size,
            step_ms(size) * float(np.exp(draw.normal(0, noise))),
            batch=batch // size,
            name=f"strong-{size}-{n}",
            **changes,
        )
        for size in sizes
        for n in range(repeats)
    ]


def make_factored(
    size: int, computation_ms: float, factors: dict[str, float], *, step_ms: float = 100, **changes: Any
) -> RunReport:
    """A run with these factors; `computation_ms` is per step, summed over ranks."""
    parallel = float(np.prod(list(factors.values())))
    found = make_efficiency(parallel=parallel, sum_compute_ns=round(2 * computation_ms * MS), **factors)
    return make_scaled(size, step_ms, efficiency=found, **changes)


def make_ranks(parts: Sequence[dict[str, int]]) -> list[RankReport]:
    """One rank per row, each of four steps with these parts in ns."""
    return [
        make_rank(rank, [make_step(number, hidden=0, **part) for number in range(4)]) for rank, part in enumerate(parts)
    ]


def make_together(runs: Sequence[RunReport], by: Sequence[str] = (), forecast: Sequence[int] = ()) -> Report:
    together = scaling(runs, by, forecast)
    return Report(
        perfkit_version="0.0.0", runs=list(runs), multi_run=together, insights=find_insights(runs, together).insights
    )


def make_scaling_report() -> Report:
    """Two sources at three world sizes with three repeats, on four cores, and a run that failed."""
    steps_ms = {"memory": {1: 100, 2: 110, 4: 125}, "hdf5": {1: 140, 2: 160, 4: 190}}
    factors = {"load_balance": 0.98, "host": 0.95, "serialisation": 0.99}
    runs = [
        make_factored(
            size,
            60.0 * size * (1 + 0.05 * size),
            factors | {"input": 0.98 if source == "memory" else 0.7, "transfer": 1 - 0.04 * size},
            step_ms=ms + repeat,
            source=source,
            name=f"{source}-{size}-{repeat}",
            hosts=make_hosts(size, cores=4),
            data_loading=make_loading(source=source, median_ns=(2 if source == "memory" else 30) * MS),
            cross_rank=None,
        )
        for source, sizes in steps_ms.items()
        for size, ms in sizes.items()
        for repeat in range(3)
    ]
    why = Finding(code="run_failed", severity="error", message="the run failed (rank 3: no space left on device)")
    failed = make_scaled(
        8, 1, source="hdf5", name="hdf5-8", state="failed", hosts=[], step_times=None, ranks=[], findings=[why]
    )
    return make_together([*runs, failed], forecast=[8])
