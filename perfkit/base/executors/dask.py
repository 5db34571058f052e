"""Run on a dask cluster: a running one, by the address of its scheduler, or a local one."""

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Executor, Future, InvalidStateError
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from typing import Any, TypeVar

from perfkit.base.executors import ExecutorOptions
from perfkit.base.executors.worker_process import run_in_worker_process, stop_worker_processes
from perfkit.base.formatting import install_extra
from perfkit.base.system_limits import count_cores
from perfkit.errors import LaunchEnvironmentError, WorkerError

T = TypeVar("T")

_CONNECT_S = 10


class _DaskExecutor(Executor):
    """dask's own executor, with a `WorkerError` for whatever the cluster loses.

    dask's executor cancels the futures of a scheduler that died, raises from `submit` once it is closed, and never
    completes what is submitted while it closes.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._pool: Executor = client.get_executor(pure=False)

    def submit(self, function: Callable[..., T], /, *args: Any, **_: Any) -> "Future[T]":
        """Queue `function(*args)` for a child process of a dask worker."""
        future: Future[T] = Future()
        try:
            pending = self._pool.submit(run_in_worker_process, function, *args)
        # dask's errors have no common root, and those of a scheduler that is gone differ by version.
        except Exception as error:  # noqa: BLE001
            future.set_exception(WorkerError(f"the dask cluster does not accept work ({error})"))
            return future
        pending.add_done_callback(lambda done: _copy_outcome(done, future))
        if self._client.status in ("closing", "closed"):
            _fail(future, WorkerError("the dask cluster is gone"))
        return future


def _copy_outcome(done: "Future[T]", future: "Future[T]") -> None:
    try:
        result = done.result()
    except CancelledError:
        _fail(future, WorkerError("the dask cluster dropped it"))
    except BaseException as error:  # noqa: BLE001  it belongs to whoever waits for the future
        killed = type(error).__name__ == "KilledWorker"
        _fail(future, WorkerError("its dask worker died repeatedly") if killed else error)
    else:
        with suppress(InvalidStateError):
            future.set_result(result)


def _fail(future: "Future[Any]", error: BaseException) -> None:
    with suppress(InvalidStateError):  # it has failed already
        future.set_exception(error)


@contextmanager
def _silenced(*names: str) -> Iterator[None]:
    """Silence loggers: futures report every failure, and dask's tracebacks help nobody."""
    levels = {logger: logger.level for logger in map(logging.getLogger, names)}
    for logger in levels:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)


@contextmanager
def open_dask(options: ExecutorOptions) -> Iterator[Executor]:
    """Return an executor on the cluster at `options.scheduler`, or on a new local one of `options.workers` workers.

    Raises:
        LaunchEnvironmentError: dask is not installed, or no scheduler answers at the address.
    """
    try:
        distributed: Any = import_module("distributed")
    except ImportError as error:
        raise LaunchEnvironmentError(f"--executor dask needs dask: {install_extra('dask')}") from error
    with ExitStack() as stack:
        stack.enter_context(_silenced("distributed", "distributed.client"))
        address: Any = options.scheduler
        if address is None:
            # Threads suffice: each hands its work to a child process.
            address = distributed.LocalCluster(
                n_workers=1,
                threads_per_worker=options.workers or count_cores(),
                processes=False,
                dashboard_address=None,
                silence_logs=logging.CRITICAL,
            )
            stack.enter_context(address)
        try:
            client = stack.enter_context(distributed.Client(address, timeout=_CONNECT_S, set_as_default=False))
        except (OSError, ValueError, TimeoutError) as error:
            raise LaunchEnvironmentError(f"--scheduler {address}: no dask scheduler answers there ({error})") from error
        if options.scheduler is None:
            stack.callback(stop_worker_processes)  # the cluster's threads are of this process, so are their children
        yield _DaskExecutor(client)
