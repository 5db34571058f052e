"""Schedule the traces of one analysis on an executor: one task per trace, completed in any order."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import ExitStack
from functools import partial
from queue import SimpleQueue
from threading import Lock
from typing import Final, NamedTuple

from perfkit.base.executors import EXECUTORS, ExecutorOptions, open_executor
from perfkit.base.system_limits import count_cores, free_bytes
from perfkit.engine.trace_summary import TraceSummary
from perfkit.errors import WorkerError
from perfkit.pipeline.summarize import SummarizeResult, Task, decoded, load_cached, summarize_file
from perfkit.records.common import Finding, Observation
from perfkit.report.wording.findings import word
from perfkit.storage import cache
from perfkit.storage.filenames import rank_in_name
from perfkit.trace.nsys.paths import on_disk

Progress = Callable[[int, int], None]
"""Called with the bytes of finished and of all traces, possibly from another thread."""

_LOG: Final = logging.getLogger(__name__)


class TraceResult(NamedTuple):
    """Result of a task: a summary, or a finding that explains why it is lost."""

    summary: TraceSummary | None = None
    lost: Finding | None = None
    fresh: bool = False


_WORKER_ERRORS: Final = (WorkerError, BrokenExecutor, MemoryError)
"""Deaths of workers and the like: they cost the trace, not the analysis."""
_SMALL_BYTES: Final = 64_000_000
"""Bytes of JSON up to which one process is as fast as several.

A worker needs 0.35 CPU-seconds to load its modules, a MB of JSON (with its analysis) 5 to 10 ms: two workers on two
cores pay off from 60 to 80 MB on (measured with 8 to 24 traces).
"""
_WORKER_BYTES: Final = 150_000_000
"""Memory of an idle worker."""
_MEMORY_PER_JSON_BYTE: Final = 0.3
"""Peak memory of the analysis per byte of JSON: 0.17 measured on GPU traces, 0.31 on CPU traces."""
_COMPRESSION: Final = 14
"""Bytes of JSON per byte of .gz: 12 to 15 in PyTorch's traces."""


class TraceScheduler:
    """Runs the tasks of one analysis; results are in the order of the report."""

    def __init__(self, tasks: list[Task], progress: Progress | None) -> None:
        self._tasks = tasks
        self._progress = progress
        self._done: dict[int, TraceResult] = {}
        self._total = sum(task.bytes for task in tasks)
        self._bytes = 0
        self._read: dict[int, int] = {}
        self._lock = Lock()

    def done(self, executor: str | Executor | None, options: ExecutorOptions) -> list[TraceResult]:
        for number, task in enumerate(self._tasks):
            if summary := load_cached(task):
                _LOG.info("%s: result from the cache", task.path)
                self._done[number] = TraceResult(summary)
                self._add(number, task.bytes)
        # A pipe can be read only in this process.
        self._submit_all(
            [n for n in self._remaining() if not on_disk(self._tasks[n].file).is_file()], "serial", ExecutorOptions()
        )
        if remaining := self._remaining():
            self._submit_all(remaining, executor or self._choose_executor(remaining, options), options)
        if lost := self._remaining():
            # A worker died of one of these, or of several at once: running them one by one shows which.
            self._submit_all(lost, "processes", ExecutorOptions(workers=1), is_last_try=True)
        if any(task.cached and self._done[number].fresh for number, task in enumerate(self._tasks)):
            cache.prune()
        return [self._done[number] for number in range(len(self._tasks))]

    def _remaining(self) -> list[int]:
        """Return the tasks that are not done, the largest first, for an even load."""
        return sorted(set(range(len(self._tasks))) - self._done.keys(), key=lambda n: (-self._tasks[n].bytes, n))

    def _choose_executor(self, remaining: Sequence[int], options: ExecutorOptions) -> str:
        if options.workers is None and (
            sum(self._json_bytes(number) for number in remaining) < _SMALL_BYTES or self._max_workers(remaining) == 1
        ):
            return "serial"
        return "processes"

    def _json_bytes(self, number: int) -> int:
        task = self._tasks[number]
        return task.bytes * (1 if task.path.endswith(".json") else _COMPRESSION)

    def _max_workers(self, remaining: Sequence[int]) -> int:
        """Return how many workers the cores and the memory allow."""
        largest = _WORKER_BYTES + _MEMORY_PER_JSON_BYTE * max(map(self._json_bytes, remaining))
        free = free_bytes()
        return max(1, min(count_cores(), len(remaining), len(remaining) if free is None else int(0.8 * free / largest)))

    def _submit_all(
        self, numbers: list[int], executor: str | Executor, options: ExecutorOptions, is_last_try: bool = False
    ) -> None:
        if not numbers:
            return
        with ExitStack() as stack:
            if isinstance(executor, str):
                if options.workers is None and options.scheduler is None and executor in EXECUTORS.builtin:
                    options = ExecutorOptions(workers=self._max_workers(numbers))
                _LOG.info("%d traces to read, executor %s", len(numbers), executor)
                executor = stack.enter_context(open_executor(executor, options))
            for number, future in self._completed(numbers, executor):
                self._store_result(number, future, is_last_try)

    def _completed(self, numbers: Iterable[int], pool: Executor) -> Iterator[tuple[int, "Future[SummarizeResult]"]]:
        """Yield each task with its future as it completes."""
        finished: SimpleQueue[tuple[int, Future[SummarizeResult]]] = SimpleQueue()
        waiting = 0
        for number in numbers:
            try:
                future = self._submit(number, pool)
            except BrokenExecutor:
                break
            future.add_done_callback(lambda done, number=number: finished.put((number, done)))  # type: ignore[misc]
            waiting += 1
            while not finished.empty():  # yield at once what a serial executor has completed
                yield finished.get()
                waiting -= 1
        for _ in range(waiting):
            yield finished.get()

    def _submit(self, number: int, pool: Executor) -> "Future[SummarizeResult]":
        task = self._tasks[number]
        if self._progress and getattr(pool, "takes_progress", False):
            return pool.submit(summarize_file, task, progress=partial(self._add, number))
        return pool.submit(summarize_file, task)

    def _store_result(self, number: int, future: "Future[SummarizeResult]", is_last_try: bool) -> None:
        task = self._tasks[number]
        try:
            outcome = future.result()
        except _WORKER_ERRORS as error:
            if is_last_try:
                self._done[number] = TraceResult(lost=_lost_finding(task, error))
            return
        summary = None if outcome.summary is None else decoded(outcome.summary, task.file.name)
        _LOG.info("%s: %s", task.path, outcome.lost.message if outcome.lost else "analysed")
        self._done[number] = TraceResult(summary, outcome.lost, outcome.fresh)
        self._add(number, task.bytes)

    def _add(self, number: int, count: int) -> None:
        """Count progress of a task; never more than the size of its file, even if it is read twice."""
        with self._lock:
            before = self._read.get(number, 0)
            self._read[number] = min(before + count, self._tasks[number].bytes)
            self._bytes += self._read[number] - before
            if self._progress:
                self._progress(self._bytes, self._total)


def _lost_finding(task: Task, error: BaseException) -> Finding:
    reason = "it needs more memory than available" if isinstance(error, MemoryError) else str(error)
    name = task.file.name
    return word(Observation("worker_lost", {"path": task.path, "error": reason}, rank=rank_in_name(name), file=name))
