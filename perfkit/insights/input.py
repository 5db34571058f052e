"""Waiting for data: how much, on which ranks, for what, and what can still help in the run."""

from collections.abc import Sequence
from statistics import median
from typing import Final, NamedTuple

from perfkit.engine.runs.loading_causes import main_cause
from perfkit.engine.whatif.changes import NO_INPUT
from perfkit.insights.loss import Loss
from perfkit.insights.run_context import (
    MIN_SHARE,
    RunContext,
    besides_stragglers,
    exposed_without_stragglers,
    late_in,
)
from perfkit.records.aggregate import MAJORITY
from perfkit.records.common import UNNAMED
from perfkit.records.facts import Fact, Facts, fact
from perfkit.records.per_rank.loading import WaitCause, WorkerFetches
from perfkit.records.rank import RankReport
from perfkit.records.run import DataLoading

_NAMED_SHARE: Final = 0.75
"""Share of the waiting for data from which the ranks that have it are named."""
_NEED_CORES: Final[frozenset[WaitCause]] = frozenset({"reading", "transforming", "transfer", "workers_busy"})
"""Causes with another remedy where ranks and workers are more than the cores of their host."""
_LOADER_WORKERS: Final = "_MultiProcessingDataLoaderIter"
"""In the name of torch's annotation where a loader has worker processes."""
_FULL_SPEED: Final = 0.8
"""Share of the file's bandwidth from which only faster storage helps."""


class _Where(NamedTuple):
    """The ranks that a sentence about loading is true of."""

    ranks: Sequence[RankReport]
    facts: Facts = ()
    """Which ones; empty if the sentence is about all."""
    others: bool = False
    """Whether these are all that are not late."""


def slow_input(context: RunContext) -> Loss | None:
    """Waiting for data."""
    exposed_ns = exposed_without_stragglers(context, "data_loading")
    share, loads = context.share(exposed_ns), context.run.data_loading
    if share < MIN_SHARE or loads is None:
        return None
    where = _where(context)
    evidence = {"exposed_share": share, "median_load_ns": float(_median_ns(where, loads))}
    if context.load_ratio:
        evidence["load_ratio"] = context.load_ratio
    near, why = False, main_cause(where.ranks)
    if loads.file_share is not None:
        evidence["file_share"] = loads.file_share
        near = loads.file_share >= MAJORITY
    advice = load_faster(context, why[0] if why else None)
    faster = (fact("or_faster_storage"),) if near and not why and not advice.name.endswith("_storage") else ()
    return Loss(
        cause=why[0] if why else "input",
        ranks=tuple(rank.rank for rank in where.ranks if rank.rank is not None) if where.facts else (),
        facts=(
            fact("input", share=share, where=where.facts),
            _loads(context, loads, where),
            *((fact("at_file_bandwidth", share=loads.file_share),) if near else ()),
            *((fact("and_load_cause", cause=why[1]),) if why else ()),
        ),
        evidence=evidence,
        remedy=(advice, *faster),
        per_step_ns=exposed_ns,
        change=NO_INPUT,
        category="data_loading",
    )


def _loads(context: RunContext, loads: DataLoading, where: _Where) -> Fact:
    """Return how long loads take, and those from memory."""
    source = (fact("from_source", source=loads.source),) if loads.source not in (None, UNNAMED) else ()
    ratio = context.load_ratio if context.load_ratio and context.load_ratio > 1.1 and not where.facts else None
    against = (fact("as_long_as_memory", ratio=ratio),) if ratio else ()
    spans_ns, median_ns = _spans_ns(where.ranks), _median_ns(where, loads)
    count = len(spans_ns) if where.facts else loads.count
    waited_ns = sum(step.exposed_ns.data_loading for rank in where.ranks for step in rank.steps)
    # Where few loads take most of the time, the median one tells nothing of it.
    few = median_ns * count < MAJORITY * waited_ns
    longest_ns = max(spans_ns, default=loads.max_ns) if where.facts else loads.max_ns
    longest = (fact("the_longest", ns=longest_ns),) if few else ()
    there = (fact("on_the_others" if where.others else "there"),) if where.facts else ()
    return fact("median_load", source=source, there=there, ns=median_ns, longest=longest, against=against)


def _median_ns(where: _Where, loads: DataLoading) -> int:
    return round(median(_spans_ns(where.ranks) or [loads.median_ns])) if where.facts else loads.median_ns


def _spans_ns(ranks: Sequence[RankReport]) -> list[int]:
    return [span_ns for rank in ranks for step in rank.steps for span_ns in step.loads.spans_ns]


def _where(context: RunContext) -> _Where:
    """Return the ranks that the waiting is on: not the stragglers, and only those that have nearly all of it.

    Half of all loads may be short, and half long: there is no load between the two that takes the median time.
    """
    ranks = context.run.ranks
    if beside := besides_stragglers(context, "data_loading"):
        late = {row.rank for row in late_in(context, "data_loading")}
        return _Where([rank for rank in ranks if rank.rank not in late] or ranks, beside, others=True)
    waits_ns = {rank.rank: _wait_ns(rank) for rank in ranks if rank.rank is not None}
    most = [number for number, wait_ns in waits_ns.items() if 2 * wait_ns >= max(waits_ns.values())]
    share = sum(waits_ns[number] for number in most) / (sum(waits_ns.values()) or 1.0)
    if len(waits_ns) < len(ranks) or 2 * len(most) > len(ranks) or share < _NAMED_SHARE:
        return _Where(ranks)
    return _Where([rank for rank in ranks if rank.rank in most], (fact("mostly_on", ranks=most),))


def _wait_ns(rank: RankReport) -> float:
    """Return the exposed data loading of a rank's mean step."""
    return sum(step.exposed_ns.data_loading for step in rank.steps) / max(1, len(rank.steps))


def load_faster(context: RunContext, cause: WaitCause | None) -> Fact:
    """Return what to do about slow input.

    Args:
        context: the run.
        cause: what most of the waiting is spent on; None if unknown.
    """
    if cause in (None, "reading", "workers_busy") and _is_limited_by_storage(context):
        return fact("only_faster_storage")
    if cause in _NEED_CORES and not _has_free_cores(context) and (cause != "workers_busy" or _computes(context)):
        return fact(f"{cause}_without_cores")
    if cause == "reading" and any(_workers(context)):
        return fact("reading_with_workers")
    return fact(cause) if cause not in (None, "other") else _read_ahead(context)


def _is_limited_by_storage(context: RunContext) -> bool:
    loads = context.run.data_loading
    return loads is not None and loads.file_share is not None and loads.file_share >= _FULL_SPEED


def _workers(context: RunContext) -> list[list[WorkerFetches]]:
    """Return the worker processes of each rank whose batches were timed."""
    ranks = [rank.loading.workers for rank in context.run.ranks if rank.loading is not None]
    return [[row for row in rows if row.worker >= 0] for rows in ranks]


def _has_free_cores(context: RunContext) -> bool:
    """Return whether ranks and workers are no more than the cores of each host, or that is unknown."""
    most = max((len(rows) for rows in _workers(context)), default=0)
    return not most or all(host.cores is None or host.ranks * (1 + most) <= host.cores for host in context.run.hosts)


def _computes(context: RunContext) -> bool:
    """Return whether workers compute for most of the time that their samples take, and do not wait."""
    rows = [row for rows in _workers(context) for row in rows]
    return sum(row.cpu_ns for row in rows) >= MAJORITY * sum(row.get_ns for row in rows)


def _read_ahead(context: RunContext) -> Fact:
    workers = context.option("num_workers")
    if context.option("read") == "per-sample":
        return fact("batched_or_more_workers", workers=workers) if workers else fact("batched_or_workers")
    if workers == 0:
        return fact("use_workers")
    if workers is not None:
        return fact("more_workers_or_storage", workers=workers)
    if any(_LOADER_WORKERS in phase.name for rank in context.run.ranks for phase in rank.phases):
        return fact("more_loader_workers_or_storage")
    return fact("read_ahead")
