"""A dask cluster: a running one by the address of its scheduler, or one on this machine."""

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, InvalidStateError
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from typing import Any, TypeVar

from perfkit.errors import LaunchEnvironmentError, WorkerError
from perfkit.executors import ExecutorOptions
from perfkit.executors.worker_process import run_in_worker_process, stop_worker_processes
from perfkit.util.system_limits import count_cores

T = TypeVar("T")

_CONNECT_S = 10


class _Dask(Executor):
    """Sends work to a cluster whose workers each keep children for it."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._remote: set[Any] = set()
        """dask forgets a task whose future nobody holds."""

    def submit(self, function: Callable[..., T], /, *args: Any, **_: Any) -> "Future[T]":
        """Queue `function(*args)`."""
        future: Future[T] = Future()
        try:
            remote = self._client.submit(run_in_worker_process, function, *args, pure=False)
        # dask's errors have no common root, and those of a scheduler that is gone differ by version.
        except Exception as error:  # noqa: BLE001
            _fail(future, WorkerError(f"the cluster does not take it ({error})"))
            return future
        self._remote.add(remote)
        remote.add_done_callback(lambda done: self._settle(future, done))
        # While it closes, a client takes work and forgets it.
        if self._client.status in ("closing", "closed"):
            _fail(future, WorkerError("the cluster is gone"))
        return future

    def _settle(self, future: "Future[Any]", done: Any) -> None:
        try:
            _pass_on(done, future)
        # Whoever waits for the future would wait for ever.
        except Exception as error:  # noqa: BLE001
            _fail(future, WorkerError(f"the cluster lost what came of it ({error})"))
        finally:
            self._remote.discard(done)


def _fail(future: "Future[Any]", error: BaseException) -> None:
    with suppress(InvalidStateError):  # it has failed already
        future.set_exception(error)


def _pass_on(done: Any, future: "Future[Any]") -> None:
    if done.cancelled():
        return _fail(future, WorkerError("the cluster gave it up"))
    error = done.exception()
    if type(error).__name__ == "KilledWorker":
        error = WorkerError("its dask worker died again and again")
    if error is not None:
        return _fail(future, error)
    return future.set_result(done.result())


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """Let a logger say nothing: what becomes of the work is known from its futures, and tracebacks help nobody."""
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


@contextmanager
def open_dask(choice: ExecutorOptions) -> Iterator[Executor]:
    """Return an executor on the cluster of `choice.scheduler`, or on a new local one of `choice.workers` workers.

    Raises:
        LaunchEnvironmentError: no dask, or no scheduler at the address.
    """
    try:
        distributed: Any = import_module("distributed")
    except ImportError as error:
        raise LaunchEnvironmentError("--executor dask needs dask: pip install 'perfkit[dask]'") from error
    with ExitStack() as stack:
        for name in ("distributed", "distributed.client"):
            stack.enter_context(_quiet(logging.getLogger(name)))
        address: Any = choice.scheduler
        if address is None:
            # Threads do: each hands its work to a child process.
            workers = choice.workers or count_cores()
            address = stack.enter_context(
                distributed.LocalCluster(
                    n_workers=1,
                    threads_per_worker=workers,
                    processes=False,
                    dashboard_address=None,
                    silence_logs=logging.CRITICAL,
                )
            )
        try:
            client = stack.enter_context(distributed.Client(address, timeout=_CONNECT_S, set_as_default=False))
        except (OSError, ValueError, TimeoutError) as error:
            raise LaunchEnvironmentError(f"--scheduler {address}: no dask scheduler answers there ({error})") from error
        if choice.scheduler is None:
            stack.callback(stop_worker_processes)  # its threads are of this process, and so are their children
        yield _Dask(client)
