"""The work on the traces of one analysis: a task a trace, done in whatever executor there is, in any order."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import ExitStack
from functools import partial
from queue import SimpleQueue
from threading import Lock
from typing import Final, NamedTuple

from perfkit.analysis.per_rank.summary import TraceSummary
from perfkit.errors import TraceError, WorkerError
from perfkit.executors import EXECUTORS, ExecutorOptions, open_executor
from perfkit.pipeline.summarize import SummarizeResult, Task, decoded, load_cached, summarize_file
from perfkit.schema.common import Finding
from perfkit.storage.filenames import rank_in_name
from perfkit.util.system_limits import count_cores, free_bytes

Progress = Callable[[int, int], None]
"""Called with the bytes that are done and those of all traces; perhaps from another thread."""


class TraceResult(NamedTuple):
    """What is kept of a task: its summary, or why it is lost."""

    summary: TraceSummary | None = None
    lost: Finding | None = None
    fresh: bool = False


_DEATHS: Final = (WorkerError, BrokenExecutor, MemoryError)
"""Of a worker, or nearly so: they cost the trace, not the analysis."""
_SMALL_BYTES: Final = 64_000_000
"""Of JSON: one process alone is as fast up to here.

A worker takes 0.35 s of a core until its modules are loaded, a MB of JSON (with its analysis) 5 to 10 ms: what the
second of two cores saves exceeds what starting both costs from 60 to 80 MB on (measured in 8 to 24 traces).
"""
_WORKER_BYTES: Final = 150_000_000
"""Memory of a worker, before it reads anything."""
_GROWTH: Final = 0.3
"""Memory a byte of JSON at the peak of the analysis: 0.17 measured on traces of a GPU, 0.31 on those of a CPU."""
_COMPRESSION: Final = 14
"""Bytes of JSON in a byte of .gz: 12 to 15 in the traces that PyTorch writes."""


class TraceScheduler:
    """The tasks of one analysis, in the order of the report; done in any."""

    def __init__(self, tasks: list[Task], progress: Progress | None) -> None:
        self._tasks = tasks
        self._progress = progress
        self._done: dict[int, TraceResult] = {}
        self._total = sum(task.bytes for task in tasks)
        self._bytes = 0
        self._read: dict[int, int] = {}
        self._lock = Lock()

    def done(self, executor: str | Executor | None, choice: ExecutorOptions) -> list[TraceResult]:
        """Return what came of each task."""
        for number, task in enumerate(self._tasks):
            if summary := load_cached(task):
                self._done[number] = TraceResult(summary)
                self._add(number, task.bytes)
        # A pipe can be read here only.
        self._submit_all([n for n in self._left() if not self._tasks[n].file.is_file()], "serial", ExecutorOptions())
        if left := self._left():
            self._submit_all(left, executor or self._choose(left, choice), choice)
        if lost := self._left():
            # Whoever died, died of one of these, or of all of them at once: one after the other they show which.
            self._submit_all(lost, "processes", ExecutorOptions(workers=1), last=True)
        return [self._done[number] for number in range(len(self._tasks))]

    def _left(self) -> list[int]:
        """Return the tasks that are not done, the largest first: so no worker is left with one at the end."""
        return sorted(set(range(len(self._tasks))) - self._done.keys(), key=lambda n: (-self._tasks[n].bytes, n))

    def _choose(self, left: Sequence[int], choice: ExecutorOptions) -> str:
        if choice.workers is None and (
            sum(self._json_bytes(number) for number in left) < _SMALL_BYTES or self._fitting(left) == 1
        ):
            return "serial"
        return "processes"

    def _json_bytes(self, number: int) -> int:
        task = self._tasks[number]
        return task.bytes * (1 if task.path.endswith(".json") else _COMPRESSION)

    def _fitting(self, left: Sequence[int]) -> int:
        """Return how many workers the cores and the memory are for."""
        largest = _WORKER_BYTES + _GROWTH * max(map(self._json_bytes, left))
        free = free_bytes()
        return max(1, min(count_cores(), len(left), len(left) if free is None else int(0.8 * free / largest)))

    def _submit_all(
        self, numbers: list[int], executor: str | Executor, choice: ExecutorOptions, last: bool = False
    ) -> None:
        if not numbers:
            return
        with ExitStack() as stack:
            if isinstance(executor, str):
                if choice.workers is None and choice.scheduler is None and executor in EXECUTORS.builtin:
                    choice = ExecutorOptions(workers=self._fitting(numbers))
                executor = stack.enter_context(open_executor(executor, choice))
            for number, future in self._completed(numbers, executor):
                self._take(number, future, last)

    def _completed(self, numbers: Iterable[int], pool: Executor) -> Iterator[tuple[int, "Future[SummarizeResult]"]]:
        """Yield each task with its future as it is done."""
        finished: SimpleQueue[tuple[int, Future[SummarizeResult]]] = SimpleQueue()
        waiting = 0
        for number in numbers:
            try:
                future = self._submit(number, pool)
            except BrokenExecutor:
                break
            future.add_done_callback(lambda done, number=number: finished.put((number, done)))  # type: ignore[misc]
            waiting += 1
            while not finished.empty():  # what is done at once, one after the other, is taken so
                yield finished.get()
                waiting -= 1
        for _ in range(waiting):
            yield finished.get()

    def _submit(self, number: int, pool: Executor) -> "Future[SummarizeResult]":
        task = self._tasks[number]
        if self._progress and getattr(pool, "takes_progress", False):
            return pool.submit(summarize_file, task, progress=partial(self._add, number))
        return pool.submit(summarize_file, task)

    def _take(self, number: int, future: "Future[SummarizeResult]", last: bool) -> None:
        task = self._tasks[number]
        try:
            outcome = future.result()
        except _DEATHS as error:
            if last:
                self._done[number] = TraceResult(lost=_lost(task, error))
            return
        summary = None if outcome.summary is None else decoded(outcome.summary, task.file.name)
        self._done[number] = TraceResult(summary, outcome.lost, outcome.fresh)
        self._add(number, task.bytes)

    def _add(self, number: int, count: int) -> None:
        """Count bytes of a task; never more than its file has, however often it was read."""
        with self._lock:
            before = self._read.get(number, 0)
            self._read[number] = min(before + count, self._tasks[number].bytes)
            self._bytes += self._read[number] - before
            if self._progress:
                self._progress(self._bytes, self._total)


def _lost(task: Task, error: BaseException) -> Finding:
    why = "it needs more memory than there is" if isinstance(error, MemoryError) else str(error)
    return Finding(
        code="worker_lost",
        severity="error",
        message=f"{task.path}: not analysed: {why}",
        rank=rank_in_name(task.file.name),
        file=task.file.name,
    )


_LOST: Final = ("worker_lost", "unreadable_trace")


def raise_if_lost(outcomes: list[TraceResult]) -> None:
    """Raise TraceError if any trace is lost."""
    lost = [done.lost for done in outcomes if done.lost and done.lost.code in _LOST]
    if lost:
        more = f" (and {len(lost) - 1} more traces)" if len(lost) > 1 else ""
        raise TraceError(f"--strict: {lost[0].message}{more}")
