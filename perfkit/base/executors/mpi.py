"""Run on the ranks of an MPI job: rank 0 submits the work and continues, the others do it and exit."""

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import Any, TypeVar

from perfkit.base.executors import ExecutorOptions
from perfkit.base.executors.worker_process import run_in_worker_process
from perfkit.base.formatting import install_extra
from perfkit.errors import LaunchEnvironmentError

T = TypeVar("T")

_EXAMPLE = "mpiexec -n 16 perfkit analyze --executor mpi ..."


class _MpiExecutor(Executor):
    """Submits to an MPI pool whose workers each run the work in a child process."""

    def __init__(self, pool: Executor) -> None:
        self._pool = pool

    def submit(self, function: Callable[..., T], /, *args: Any, **_: Any) -> "Future[T]":
        return self._pool.submit(run_in_worker_process, function, *args)


@contextmanager
def open_mpi(options: ExecutorOptions) -> Iterator[Executor]:  # noqa: ARG001  mpiexec sets them
    """Return an executor on rank 0 whose workers are the other ranks.

    Raises:
        LaunchEnvironmentError: mpi4py or MPI is missing, or there is only one rank.
        SystemExit: on the other ranks, when all work is done.
    """
    try:
        from mpi4py import MPI
        from mpi4py.futures import MPICommExecutor
    except ImportError as error:
        raise LaunchEnvironmentError(f"--executor mpi needs mpi4py: {install_extra('mpi')}") from error
    except RuntimeError as error:  # mpi4py is installed, an MPI library is not
        raise LaunchEnvironmentError(f"--executor mpi: mpi4py finds no MPI library ({error})") from error
    world = MPI.COMM_WORLD
    if world.Get_size() < 2:
        raise LaunchEnvironmentError(f"--executor mpi: this is the only MPI rank; start several: {_EXAMPLE}")
    pool: Any
    with MPICommExecutor(world, root=0) as pool:
        if pool is not None:
            try:
                yield _MpiExecutor(pool)
            except KeyboardInterrupt:
                world.Abort(130)  # the others may be reading a long trace
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    if pool is None:
        sys.exit(0)  # a worker that is done; MPI is finalised at exit
