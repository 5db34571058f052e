"""Run in several processes on this machine, or in this process, one task after the other."""

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from perfkit.base.executors import ExecutorOptions
from perfkit.base.system_limits import count_cores
from perfkit.errors import WorkerError

if TYPE_CHECKING:
    from perfkit.base.executors.worker_process import WorkerProcess

T = TypeVar("T")


class _Job(NamedTuple):
    future: "Future[Any]"
    function: Callable[..., Any]
    args: tuple[Any, ...]
    progress: Callable[[int], None] | None = None


class Processes(Executor):
    """Runs tasks in child processes; one that dies costs its own task and no other.

    A thread of this process waits for each child. Children are started as tasks are submitted.
    """

    takes_progress = True

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads: list[Thread] = []
        self._children: set[WorkerProcess] = set()
        self._lock = Lock()
        self._abandoned = False

    def submit(self, function: Callable[..., T], /, *args: Any, **options: Any) -> "Future[T]":
        """Queue `function(*args)`; the option `progress` is called with its progress, in a thread of this process."""
        future: Future[T] = Future()
        self._jobs.put(_Job(future, function, args, **options))
        if len(self._threads) < self._workers:
            self._threads.append(Thread(target=self._work, daemon=True))
            self._threads[-1].start()
        return future

    def _work(self) -> None:
        child = None
        while job := self._jobs.get():
            if not job.future.set_running_or_notify_cancel():
                continue
            try:
                child = child or self._start()
                job.future.set_result(child.call(job.function, *job.args, progress=job.progress))
            # Any error belongs to the future; this thread continues.
            except BaseException as error:  # noqa: BLE001
                if isinstance(error, WorkerError):
                    child = None
                job.future.set_exception(error)

    def _start(self) -> "WorkerProcess":
        from perfkit.base.executors.worker_process import WorkerProcess

        with self._lock:
            if self._abandoned:
                raise WorkerError("the work was abandoned")
            child = WorkerProcess()
            self._children.add(child)
            return child

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Stop the children: when all tasks are done, or at once with `cancel_futures`."""
        if cancel_futures:
            self._abandon()
        for _ in self._threads:
            self._jobs.put(None)
        if wait or cancel_futures:
            for thread in self._threads:
                thread.join()
            self._abandon()

    def _abandon(self) -> None:
        with self._lock:
            self._abandoned = True
            for child in self._children:
                child.kill()
            self._children.clear()
        with suppress(Empty):
            while True:
                job = self._jobs.get_nowait()
                if job is not None:
                    job.future.cancel()


@contextmanager
def open_processes(options: ExecutorOptions) -> Iterator[Processes]:
    """Return an executor of `options.workers` processes, by default one per core."""
    pool = Processes(options.workers or count_cores())
    try:
        yield pool
    finally:
        # Tasks that are not done by now are not needed: an error or an interrupt ended the wait.
        pool.shutdown(cancel_futures=True)


class Serial(Executor):
    """Runs each task when it is submitted."""

    takes_progress = True
    """Whether `submit` takes a callback `progress`, which is called in this process."""

    def submit(self, function: Callable[..., T], /, *args: Any, **options: Any) -> "Future[T]":
        """Call `function` and return a completed future."""
        future: Future[T] = Future()
        try:
            future.set_result(function(*args, **options))
        # The future raises it to its caller. An interrupt is not caught: it ends the analysis here.
        except Exception as error:  # noqa: BLE001
            future.set_exception(error)
        return future


@contextmanager
def open_serial(options: ExecutorOptions) -> Iterator[Serial]:  # noqa: ARG001  it has no options
    yield Serial()
