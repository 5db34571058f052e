"""What run.json and sweep.json tell by themselves: step times, host usage, and findings on data quality."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final

from msgspec.structs import replace

from perfkit.records.aggregate import clock_step_times, real_steps_ns, step_time_ns
from perfkit.records.common import Observation
from perfkit.records.facts import Statement, statement
from perfkit.records.manifest import Compiled, RankMemory, RankRecord, RunManifest, StepKind, Throughput
from perfkit.records.rank import RankReport
from perfkit.records.run import HostUsage, StepTimes
from perfkit.records.sweep import SweepPoint

_MIN_COMPILING_SHARE: Final = 0.1
"""Smallest share of a step that is reported."""


def compile_findings(compiled: Compiled | None, kinds: Sequence[StepKind]) -> Iterable[Observation]:
    """Yield what went wrong in a run that asked for compilation.

    Args:
        compiled: what was compiled in which steps; None without `--compile`.
    """
    if compiled is None:
        return
    if compiled.graphs == 0:
        yield Observation("not_compiled")
    if recorded := [step for step in compiled.steps if 0 <= step < len(kinds) and kinds[step] == "active"]:
        yield Observation("compilation_recorded", {"recorded": recorded}, "manifest")


def compiled_steps(ranks: Sequence[RankReport]) -> Iterator[Observation]:
    """Yield a finding about recorded steps in which a rank was idle for long because code was compiled or loaded."""
    found = [
        (step.idle_ns.compilation, rank.rank, step.step)
        for rank in ranks
        for step in rank.steps
        if step.step is not None and step.idle_ns.compilation > _MIN_COMPILING_SHARE * step.wall_ns
    ]
    if not found:
        return
    steps = sorted({step for _, _, step in found})
    longest_ns, rank, step = max(found, key=lambda one: one[0])
    yield Observation("compilation_recorded", {"steps": steps, "longest_ns": longest_ns, "step": step, "rank": rank})


def oversubscription(ranks: Sequence[RankRecord]) -> Iterator[Observation]:
    """Yield one finding per host that computes on its CPU with more threads than cores.

    Threads that spin while they wait slow each other down.

    Args:
        ranks: record of each rank; hosts with an unknown number of cores are skipped.
    """
    for host in dict.fromkeys(rank.host for rank in ranks):
        local = [rank for rank in ranks if rank.host == host and rank.device == "cpu"]
        threads, cores = sum(rank.threads for rank in local), local[0].node_cores if local else None
        # Single-threaded ranks only share the cores: no thread spins while it waits for one without a core.
        if cores is not None and threads > max(cores, len(local)):
            values = {"ranks": len(local), "host": host, "threads": threads, "cores": cores}
            yield Observation("oversubscribed", values)


def shared_cores(hosts: Sequence[HostUsage]) -> Statement | None:
    """Return what oversubscribes the first such host; None if none is."""
    for host in hosts:
        if host.cores is None:
            continue
        if host.ranks > host.cores:
            return statement("ranks_on_cores", ranks=host.ranks, cores=host.cores)
        if host.device == "cpu" and host.threads > host.cores:
            return statement("threads_on_cores", threads=host.threads, cores=host.cores)
    return None


def missing_sweep_points(sweep: str, points: Sequence[SweepPoint], analysed: Collection[str]) -> Iterator[Observation]:
    """Yield one finding per point that failed without leaving a run, and one for all pending points.

    Args:
        analysed: names of the run folders that are analysed; their own reports contain their failures.
    """
    absent = [point for point in points if point.run not in analysed]
    for point in absent:
        if point.state == "failed":
            values = {"sweep": sweep, "run": point.run, "reason": point.reason or "cause unknown"}
            yield Observation("point_failed", values)
    pending = sum(point.state != "failed" for point in absent)
    if pending:
        yield Observation("sweep_points_pending", {"sweep": sweep, "pending": pending, "points": len(points)})


def manifest_metrics(manifest: RunManifest) -> dict[str, Any]:
    """Return the fields of a run's report that come from its manifest only."""
    times = clock_step_times(manifest.ranks, manifest.step_kinds) if _all_ranks(manifest) else None
    return {
        "batch_size": manifest.batch_size,
        "batch_size_from": manifest.batch_size_from,
        "started_at": manifest.started_at,
        "commit": manifest.commit,
        "versions": manifest.versions,
        "device_names": sorted({rank.device_name for rank in manifest.ranks}),
        "hosts": host_usage(manifest.ranks) if _all_ranks(manifest) else [],
        "rank_memory": _rank_memory(manifest),
        "step_times": times,
        "throughput": manifest.throughput and at_mean_step(manifest.throughput, times),
    }


def at_mean_step(rates: Throughput, times: StepTimes | None) -> Throughput:
    """Return rates for the mean step: manifests of earlier versions have those for the median one."""
    mean_ns = step_time_ns(
        (real_steps_ns(times) if rates.measured_on == "plain" else times.recorded_ns) if times else []
    )
    step_ns = rates.step_ns if mean_ns is None else max(1, round(mean_ns))
    if step_ns == rates.step_ns:
        return rates
    names = ("samples_per_s", "tokens_per_s", "flops_per_s", "mfu")
    known = {name: rate for name in names if (rate := getattr(rates, name)) is not None}
    return replace(rates, step_ns=step_ns, **{name: rate * rates.step_ns / step_ns for name, rate in known.items()})


def host_usage(ranks: list[RankRecord]) -> list[HostUsage]:
    """Return the devices, threads and cores that the ranks use on each host."""
    usage = []
    for host in dict.fromkeys(rank.host for rank in ranks):
        local = [rank for rank in ranks if rank.host == host]
        usage.append(
            HostUsage(
                host=host,
                device=local[0].device.partition(":")[0],
                device_name=local[0].device_name,
                ranks=len(local),
                threads=sum(rank.threads for rank in local),
                cores=local[0].node_cores,
            )
        )
    return usage


def _rank_memory(manifest: RunManifest) -> list[RankMemory]:
    held = [rank.memory for rank in sorted(manifest.ranks, key=lambda rank: rank.rank) if rank.memory is not None]
    return held if len(held) == manifest.world.world_size else []


def _all_ranks(manifest: RunManifest) -> bool:
    """Return whether the manifest has a record of every rank; of a failed run it may have only some."""
    return len(manifest.ranks) == manifest.world.world_size
