"""How long the ranks of a run wait for data, for what (metrics.md section 24), and how fast samples are read."""

from collections.abc import Sequence
from statistics import median

import numpy as np

from perfkit.base.statistics.bootstrap import FEWEST_STEPS, median_interval
from perfkit.records.aggregate import MAJORITY
from perfkit.records.common import MeasuredOn
from perfkit.records.facts import Fact, Facts, fact
from perfkit.records.manifest import RunManifest
from perfkit.records.per_rank.loading import WAIT_CAUSES, RankLoading, SlowSample, SlowWorker, WaitCause
from perfkit.records.rank import RankReport
from perfkit.records.run import CacheState, DataLoading, LoadTimes


def data_loading(ranks: list[RankReport], manifest: RunManifest | None, source: str | None) -> DataLoading | None:
    """Return how the ranks' steps load data; None if no load was seen.

    Args:
        manifest: the run's manifest; None for foreign traces.
    """
    loads = [
        (span_ns, rank.rank, step.step) for rank in ranks for step in rank.steps for span_ns in step.loads.spans_ns
    ]
    if not loads:
        return None
    max_ns, max_rank, max_step = max(loads, key=lambda load: load[0])
    wall_ns = sum(step.wall_ns for rank in ranks for step in rank.steps)
    exposed_ns = sum(step.exposed_ns.data_loading for rank in ranks for step in rank.steps)
    sum_ns = sum(span_ns for span_ns, _, _ in loads)
    rate, speed = _read_rate(manifest, ranks, sum_ns), manifest.file_bandwidth if manifest else None
    plain = _plain_loads(manifest)
    spans = [(step.step, span_ns) for rank in ranks for step in rank.steps for span_ns in step.loads.spans_ns]
    return DataLoading(
        source=source,
        count=len(loads),
        median_ns=round(median(span_ns for span_ns, _, _ in loads)),
        max_ns=max_ns,
        max_rank=max_rank,
        max_step=max_step,
        exposed_share=exposed_ns / wall_ns if wall_ns else 0.0,
        read_bytes_per_s=rate,
        times=_by_cache(plain or spans, "plain" if plain else "recorded", manifest.cold_steps if manifest else None),
        file_bandwidth=speed,
        file_share=rate / len(ranks) / speed.bytes_per_s if rate and speed and speed.bytes_per_s > 0 else None,
    )


def _plain_loads(manifest: RunManifest | None) -> list[tuple[int | None, int]]:
    """Return step and time of the loads without the profiler (ns); empty where a step has several, or none is known."""
    if manifest is None or (manifest.config or {}).get("accumulate", 1) != 1:
        return []
    plain = [step for step, kind in enumerate(manifest.step_kinds) if kind == "plain"]
    return [(step, rank.load_ns[step]) for rank in manifest.ranks for step in plain if step < len(rank.load_ns)]


def _by_cache(
    loads: Sequence[tuple[int | None, int]], measured_on: MeasuredOn, cold_steps: int | None
) -> list[LoadTimes]:
    """Return the times of loads, apart where steps up to `cold_steps` read what was not in the page cache."""
    if cold_steps is None:
        return [load_times([ns for _, ns in loads], measured_on, None)]
    by_state: dict[CacheState, list[int]] = {"warm": [], "cold": []}
    for step, ns in loads:
        by_state["cold" if step is not None and step < cold_steps else "warm"].append(ns)
    return [load_times(ns, measured_on, state) for state, ns in by_state.items() if ns]


def load_times(loads_ns: Sequence[float], measured_on: MeasuredOn, cache: CacheState | None) -> LoadTimes:
    """Return how loads are distributed."""
    low, middle, high = np.percentile(loads_ns, (25, 50, 75)).tolist()
    return LoadTimes(
        cache=cache,
        measured_on=measured_on,
        count=len(loads_ns),
        least_ns=min(loads_ns),
        quartiles_ns=(low, middle, high),
        interval_ns=median_interval(loads_ns) if len(loads_ns) >= FEWEST_STEPS else None,
        max_ns=max(loads_ns),
    )


def _read_rate(manifest: RunManifest | None, ranks: list[RankReport], sum_ns: int) -> float | None:
    """Return bytes of samples per second of waiting for them, summed over ranks.

    Batches are counted by steps, not by loads: the load that hits the end of an epoch returns no batch.
    """
    if manifest is None or manifest.batch_size is None or manifest.sample_bytes is None or not sum_ns:
        return None
    if manifest.throughput is None or manifest.throughput.read_bytes_per_s is None:
        return None  # waiting time is not reading time
    batches = sum(len(rank.steps) for rank in ranks)
    return batches * manifest.batch_size * manifest.sample_bytes * 1e9 / (sum_ns / len(ranks))


def slowest_worker(loading: RankLoading, ranks: int, of: int) -> SlowWorker:
    """Return the slowest worker of a rank that has a slow one.

    Args:
        ranks: how many ranks have a slow worker.
        of: number of all ranks.
    """
    slow = max((row for row in loading.workers if row.worker in loading.slow_workers), key=lambda row: row.median_ns)
    others = sorted(row.median_ns for row in loading.workers if row.worker not in loading.slow_workers)
    usual_ns = others[len(others) // 2] if others else None
    return SlowWorker(worker=slow.worker, ns=slow.median_ns, usual_ns=usual_ns, ranks=ranks, of=of)


def slow_worker(found: SlowWorker, rank: int | None = None) -> Fact:
    """Return a slow worker, and how long its batches take; of which rank, if that is to be named."""
    usual = () if found.usual_ns is None else (fact("usual_batch", ns=found.usual_ns),)
    where = () if rank is None else (fact("of_rank", rank=rank),)
    also: Facts = ()
    if found.ranks > 1:
        all_slow = found.ranks == found.of
        also = (fact("all_slow", of=found.of) if all_slow else fact("also_slow", ranks=found.ranks, of=found.of),)
    return fact("slow_worker", worker=found.worker, where=where, ns=found.ns, usual=usual, also=also)


def slow_samples(slowest: SlowSample | None, others: int) -> Fact:
    """Return the slowest sample that a step waited for, and how many others are slow."""
    if slowest is None:
        return fact("slow_samples")
    more = (fact("and_more", count=others),) if others > 0 else ()
    return fact("slow_sample", index=slowest.index, ns=slowest.ns, more=more)


def main_cause(ranks: Sequence[RankReport]) -> tuple[WaitCause, Fact] | None:
    """Return the cause of most of the waiting, and with who; None if none has half, or causes are unknown."""
    known = [(rank, rank.loading) for rank in ranks if rank.loading is not None]
    totals = {cause: sum(getattr(loading.waits_ns, cause) for _, loading in known) for cause in WAIT_CAUSES}
    whole = sum(totals.values())
    cause = max(WAIT_CAUSES, key=lambda name: totals[name])
    if cause == "other" or not whole or totals[cause] < MAJORITY * whole:
        return None
    named = cause in ("slow_worker", "slow_sample")
    what = _culprit(cause, known, several=len(ranks) > 1) if named else (fact(f"load_{cause}"),)
    return cause, fact("load_cause", what=what)


def _culprit(cause: WaitCause, known: Sequence[tuple[RankReport, RankLoading]], *, several: bool) -> Facts:
    rank, loading = max(known, key=lambda one: getattr(one[1].waits_ns, cause))
    number = rank.rank if several else None
    if cause == "slow_worker":
        also = sum(bool(one.slow_workers) for _, one in known)
        return (slow_worker(slowest_worker(loading, also, len(known)), number),)
    samples = loading.slow_samples
    what = slow_samples(samples[0] if samples else None, len(samples) - 1)
    return what, *(() if number is None else (fact("on_rank", rank=number),))
