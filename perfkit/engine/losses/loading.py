"""What to do about slow input, on some ranks or on all."""

from typing import Final

from perfkit.engine.losses.context import LossContext
from perfkit.records.aggregate import MAJORITY
from perfkit.records.facts import Fact, fact
from perfkit.records.per_rank.loading import WaitCause, WorkerFetches

_NEED_CORES: Final[frozenset[WaitCause]] = frozenset({"reading", "transforming", "transfer", "workers_busy"})
"""Causes with another remedy where ranks and workers are more than the cores of their host."""
_LOADER_WORKERS: Final = "_MultiProcessingDataLoaderIter"
"""In the name of torch's annotation where a loader has worker processes."""
_FULL_SPEED: Final = 0.8
"""Share of the file's bandwidth from which only faster storage helps."""


def load_faster(context: LossContext, cause: WaitCause | None) -> Fact:
    """Return what to do about slow input.

    Args:
        cause: what most of the waiting is spent on; None if unknown.
    """
    if cause in (None, "reading", "workers_busy") and _is_limited_by_storage(context):
        return fact("only_faster_storage")
    if cause in _NEED_CORES and not _has_free_cores(context) and (cause != "workers_busy" or _computes(context)):
        return fact(f"{cause}_without_cores")
    if cause == "reading" and any(_workers(context)):
        return fact("reading_with_workers")
    return fact(cause) if cause not in (None, "other") else _read_ahead(context)


def _is_limited_by_storage(context: LossContext) -> bool:
    loads = context.run.data_loading
    return loads is not None and loads.file_share is not None and loads.file_share >= _FULL_SPEED


def _workers(context: LossContext) -> list[list[WorkerFetches]]:
    """Return the worker processes of each rank whose batches were timed."""
    ranks = [rank.loading.workers for rank in context.run.ranks if rank.loading is not None]
    return [[row for row in rows if row.worker >= 0] for rows in ranks]


def _has_free_cores(context: LossContext) -> bool:
    """Return whether ranks and workers are no more than the cores of each host, or that is unknown."""
    most = max((len(rows) for rows in _workers(context)), default=0)
    return not most or all(host.cores is None or host.ranks * (1 + most) <= host.cores for host in context.run.hosts)


def _computes(context: LossContext) -> bool:
    """Return whether workers compute for most of the time that their samples take, and do not wait."""
    rows = [row for rows in _workers(context) for row in rows]
    return sum(row.cpu_ns for row in rows) >= MAJORITY * sum(row.get_ns for row in rows)


def _read_ahead(context: LossContext) -> Fact:
    workers = context.option("num_workers")
    if context.option("read") == "per-sample":
        return fact("batched_or_more_workers", workers=workers) if workers else fact("batched_or_workers")
    if workers == 0:
        return fact("use_workers")
    if workers is not None:
        return fact("more_workers_or_storage", workers=workers)
    if any(_LOADER_WORKERS in phase.name for rank in context.run.ranks for phase in rank.phases):
        return fact("more_loader_workers")
    return fact("read_ahead")
