"""What to do about slow input, by what waits for batches are spent on, and by what can still help in the run."""

from typing import Final

from perfkit.insights.run_context import RunContext
from perfkit.schema.per_rank.loading import WaitCause, WorkerFetches

_ADVICE: Final[dict[WaitCause, str]] = {
    "reading": "read whole batches at once or ahead with workers (num_workers), or from faster storage",
    "transforming": "transform samples once before training, or in (more) workers",
    "collating": "pass a faster collate_fn: stack tensors at once, without Python loops over samples",
    "transfer": "return fewer or smaller tensors per batch, and pin memory if they go to a device",
    "slow_worker": "find what only this worker does: its share of the files, its host's cores, its seed",
    "slow_sample": "look at this sample: its size, its file, what is decoded; leave it out or prepare it",
    "workers_busy": "use more workers, or fetch a batch with less work",
}
_WITHOUT_CORES: Final[dict[WaitCause, str]] = {
    "reading": "read whole batches at once, from faster storage, or on a host with more cores",
    "transforming": "transform samples once before training, or with fewer ranks per host",
    "transfer": "leave a core to the process that trains: fewer workers; or return smaller batches",
    "workers_busy": "fetch a batch with less work: transform samples once before training",
}
"""Where ranks and workers are more than the cores of their host."""
_READING_WITH_WORKERS: Final = "read whole batches at once, with more workers, or from faster storage"
_FASTER_STORAGE: Final = "use faster storage, or read less: smaller types, samples prepared once"
_LOADER_WORKERS: Final = "_MultiProcessingDataLoaderIter"
"""In the name of torch's annotation where a loader has worker processes."""
_FULL_SPEED: Final = 0.8
"""Share of the file's bandwidth from which only faster storage helps."""
_MAJORITY: Final = 0.5


def load_faster(context: RunContext, cause: WaitCause | None) -> str:
    """Return what to do about slow input.

    Args:
        context: the run.
        cause: what most of the waiting is spent on; None if unknown.
    """
    if cause in (None, "reading", "workers_busy") and _is_limited_by_storage(context):
        return _FASTER_STORAGE
    if cause in _WITHOUT_CORES and not _has_free_cores(context) and (cause != "workers_busy" or _computes(context)):
        return _WITHOUT_CORES[cause]
    if cause == "reading" and _has_workers(context):
        return _READING_WITH_WORKERS
    return (cause and _ADVICE.get(cause)) or _read_ahead(context)


def _is_limited_by_storage(context: RunContext) -> bool:
    loads = context.run.data_loading
    return loads is not None and loads.file_share is not None and loads.file_share >= _FULL_SPEED


def _workers(context: RunContext) -> list[list[WorkerFetches]]:
    """Return the worker processes of each rank whose batches were timed."""
    ranks = [rank.loading.workers for rank in context.run.ranks if rank.loading is not None]
    return [[row for row in rows if row.worker >= 0] for rows in ranks]


def _has_workers(context: RunContext) -> bool:
    return any(_workers(context))


def _has_free_cores(context: RunContext) -> bool:
    """Return whether ranks and workers are no more than the cores of each host, or that is unknown."""
    most = max((len(rows) for rows in _workers(context)), default=0)
    return not most or all(host.cores is None or host.ranks * (1 + most) <= host.cores for host in context.run.hosts)


def _computes(context: RunContext) -> bool:
    """Return whether workers compute for most of the time that their samples take, and do not wait."""
    rows = [row for rows in _workers(context) for row in rows]
    return sum(row.cpu_ns for row in rows) >= _MAJORITY * sum(row.get_ns for row in rows)


def _read_ahead(context: RunContext) -> str:
    workers = context.option("num_workers")
    if context.option("read") == "per-sample":
        return (
            f"use batched reads (--read batched), or {f'more than {workers} workers' if workers else '--num-workers 2'}"
        )
    if workers == 0:
        return "use --num-workers 2 to load while the step computes"
    if workers is not None:
        return f"use more than {workers} workers, --prefetch, or faster storage"
    if any(_LOADER_WORKERS in phase.name for rank in context.run.ranks for phase in rank.phases):
        return "use more loader workers, a larger prefetch_factor, or faster storage"
    return "read in batches, or with loader workers that read ahead"
