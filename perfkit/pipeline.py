"""From paths to a report: the only place where reading files meets analysis."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import Final, NamedTuple

from perfkit import cache as results
from perfkit._version import __version__
from perfkit.analysis.assemble import NamedSummary, assemble, rank_in_name
from perfkit.analysis.rank import TraceSummary, check_step_marker
from perfkit.errors import StoreError, TraceError, UsageError, WorkerError
from perfkit.executors import Choice, check, opened
from perfkit.executors.machine import count_cores, free_bytes
from perfkit.model import Finding, Report, RunManifest, RunReport
from perfkit.summaries import Options, Outcome, Task, decoded, recall, summarise_file, task_for
from perfkit.trace.discover import RunLocation, discover
from perfkit.trace.store import read_manifest

Progress = Callable[[int, int], None]
"""Called with the bytes that are done and those of all traces; perhaps from another thread."""


def analyze(
    *paths: str | Path,
    rank: int | None = None,
    step_marker: str | None = None,
    max_bytes: int | None = None,
    executor: str | Executor | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
    strict: bool = False,
    cache: bool = True,
    progress: Progress | None = None,
) -> Report:
    """Analyse traces, run folders, or folders of them.

    Args:
        paths: trace files (`.json`, `.json.gz`, `.json.zst`), run folders, or folders of run folders or foreign traces.
        rank: the rank of a trace that says it neither in its header nor in its name.
        step_marker: a regular expression for the names of the annotations that mark steps, instead of `ProfilerStep#N`.
        max_bytes: how much text a trace may hold, decompressed; one with more is refused. 64 GiB if None.
        executor: where the traces are read, one task a trace: a name in `perfkit.executors.EXECUTORS`, or an open
            `concurrent.futures.Executor`; if None, `processes` where that is faster. The report is the same from all.
        workers: of `processes` or a local `dask` cluster; if None, as many as cores and memory allow.
        scheduler: address of a dask scheduler.
        strict: whether a trace that cannot be analysed is an error, and not only a finding.
        cache: whether to use results of earlier analyses of the same traces, and to keep those of this one.
        progress: called with the bytes of traces that are done, and of all.

    Returns:
        One report a run; see `perfkit.model.Report`. `report.tables()` gives its tables as pandas DataFrames.

    Raises:
        TraceError: a path holds no trace, or none of the traces can be read; if `strict`, any of them.
        UsageError: `step_marker` is no regular expression, or options do not fit together.
        LaunchEnvironmentError: the executor cannot be had.
        SystemExit: with `mpi`, on the ranks but 0, when they have served.
    """
    if not paths:
        raise UsageError("nothing to analyse: give a trace, a run folder, or a folder of them")
    check_step_marker(step_marker)
    choice = Choice(workers, scheduler)
    check(executor, choice)
    with ExitStack() as stack:
        if executor == "mpi":
            # Before anything that can fail on one rank alone: the others wait in there.
            executor = stack.enter_context(opened("mpi", choice))
        locations = discover(map(Path, paths))
        options = Options(step_marker=step_marker, max_bytes=max_bytes)
        tasks = [task_for(file, options, cache) for location in locations for file in location.traces]
        outcomes = _Work(tasks, progress).done(executor, choice)
    if cache:
        results.prune(task.file for task, outcome in zip(tasks, outcomes, strict=True) if outcome.fresh)
    if strict:
        _insist(outcomes)
    followed = iter(outcomes)
    runs = [_run(location, followed, rank) for location in locations]
    telling = [run for run in runs if run.ranks or run.state or _codes(run) - {"not_a_trace", "no_traces"}]
    if not any(run.ranks or run.state for run in telling):
        raise TraceError(_why_nothing(runs))
    return Report(perfkit_version=__version__, runs=telling)


# ---- the work on the traces ----------------------------------------------------------------------------------------


class _Done(NamedTuple):
    """What is kept of a task: its summary, or why it is lost."""

    summary: TraceSummary | None = None
    lost: Finding | None = None
    fresh: bool = False


_SMALL_BYTES: Final = 64_000_000
"""Of JSON: so much is read in the time that it takes to start a process (about 0.2 s), so one alone is as fast."""
_WORKER_BYTES: Final = 150_000_000
"""Memory of a worker, before it reads anything."""
_GROWTH: Final = 0.2
"""Memory a byte of JSON: 33 bytes an event kept, while it is read and analysed."""
_COMPRESSION: Final = 14
"""Bytes of JSON in a byte of .gz: 12 to 15 in the traces that PyTorch writes."""


class _Work:
    """The tasks of one analysis, in the order of the report; done in any."""

    def __init__(self, tasks: list[Task], progress: Progress | None) -> None:
        self._tasks = tasks
        self._progress = progress
        self._done: dict[int, _Done] = {}
        self._total = sum(task.bytes for task in tasks)
        self._bytes = 0
        self._read: dict[int, int] = {}
        self._lock = Lock()

    def done(self, executor: str | Executor | None, choice: Choice) -> list[_Done]:
        """Return what came of each task."""
        for number, task in enumerate(self._tasks):
            if summary := recall(task):
                self._done[number] = _Done(summary)
                self._add(number, task.bytes)
        # A pipe can be read here only.
        self._submit_all([n for n in self._left() if not self._tasks[n].file.is_file()], "serial", Choice())
        if left := self._left():
            self._submit_all(left, executor or self._choose(left, choice), choice)
        if lost := self._left():
            # Whoever died, died of one of these, or of all of them at once: one after the other they show which.
            self._submit_all(lost, "processes", Choice(workers=1), last=True)
        return [self._done[number] for number in range(len(self._tasks))]

    def _left(self) -> list[int]:
        """Return the tasks that are not done, the largest first: so no worker is left with one at the end."""
        return sorted(set(range(len(self._tasks))) - self._done.keys(), key=lambda n: (-self._tasks[n].bytes, n))

    def _choose(self, left: Sequence[int], choice: Choice) -> str:
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

    def _submit_all(self, numbers: list[int], executor: str | Executor, choice: Choice, last: bool = False) -> None:
        if not numbers:
            return
        with ExitStack() as stack:
            if isinstance(executor, str):
                if choice.workers is None and choice.scheduler is None:
                    choice = Choice(workers=self._fitting(numbers))
                executor = stack.enter_context(opened(executor, choice))
            for number, future in self._completed(numbers, executor):
                self._take(number, future, last)

    def _completed(self, numbers: Iterable[int], pool: Executor) -> Iterator[tuple[int, "Future[Outcome]"]]:
        """Yield each task with its future as it is done."""
        finished: SimpleQueue[tuple[int, Future[Outcome]]] = SimpleQueue()
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

    def _submit(self, number: int, pool: Executor) -> "Future[Outcome]":
        task = self._tasks[number]
        if self._progress and getattr(pool, "takes_progress", False):
            return pool.submit(summarise_file, task, progress=partial(self._add, number))
        return pool.submit(summarise_file, task)

    def _take(self, number: int, future: "Future[Outcome]", last: bool) -> None:
        task = self._tasks[number]
        try:
            outcome = future.result()
        except (WorkerError, BrokenExecutor) as error:
            if last:
                self._done[number] = _Done(lost=_lost(task, error))
            return
        summary = None if outcome.summary is None else decoded(outcome.summary, task.file.name)
        self._done[number] = _Done(summary, outcome.lost, outcome.fresh)
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
    return Finding(
        code="worker_lost",
        severity="error",
        message=f"{task.path}: not analysed: {error}",
        rank=rank_in_name(task.file.name),
        file=task.file.name,
    )


_LOST: Final = ("worker_lost", "unreadable_trace")


def _insist(outcomes: list[_Done]) -> None:
    """Raise TraceError if any trace is lost."""
    lost = [done.lost for done in outcomes if done.lost and done.lost.code in _LOST]
    if lost:
        more = f" (and {len(lost) - 1} more traces)" if len(lost) > 1 else ""
        raise TraceError(f"--strict: {lost[0].message}{more}")


# ---- runs ----------------------------------------------------------------------------------------------------------


def _run(location: RunLocation, outcomes: Iterator[_Done], rank: int | None) -> RunReport:
    manifest, lost = _read_manifest(location)
    summaries: list[NamedSummary] = []
    for file in location.traces:
        done = next(outcomes)
        if done.summary:
            summaries.append(NamedSummary(file.name, done.summary))
        elif done.lost:
            lost.append(done.lost)
    return assemble(location.name, str(location.path), summaries, manifest, rank, lost)


def _read_manifest(location: RunLocation) -> tuple[RunManifest | None, list[Finding]]:
    """Return the manifest, or None and why; the traces of a run with a bad manifest are as good as any."""
    if not location.has_manifest:
        return None, []
    try:
        return read_manifest(location.path), []
    except StoreError as error:
        return None, [Finding(code="unreadable_manifest", severity="error", message=str(error))]


def _codes(run: RunReport) -> set[str]:
    return {finding.code for finding in run.findings}


def _why_nothing(runs: Sequence[RunReport]) -> str:
    codes = ("worker_lost", "unreadable_trace", "unreadable_manifest", "not_a_trace")
    messages = [finding.message for code in codes for run in runs for finding in run.findings if finding.code == code]
    more = f" (and {len(messages) - 1} more that cannot be read)" if len(messages) > 1 else ""
    return messages[0] + more
