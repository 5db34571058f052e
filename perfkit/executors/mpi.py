"""The ranks of an MPI job: rank 0 hands out the work and goes on, the others do it and end."""

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import Any, TypeVar

from perfkit.errors import LaunchEnvironmentError
from perfkit.executors import ExecutorOptions
from perfkit.executors.worker_process import run_in_worker_process

T = TypeVar("T")

_HOW = "mpiexec -n 16 perfkit analyze --executor mpi ..."


class _Apart(Executor):
    """Sends work to an executor whose workers each keep a child for it."""

    def __init__(self, pool: Executor) -> None:
        self._pool = pool

    def submit(self, function: Callable[..., T], /, *args: Any, **_: Any) -> "Future[T]":
        """Queue `function(*args)`."""
        return self._pool.submit(run_in_worker_process, function, *args)


@contextmanager
def open_mpi(choice: ExecutorOptions) -> Iterator[Executor]:  # noqa: ARG001  mpiexec has the options
    """Return rank 0's executor, whose workers are the other ranks.

    Raises:
        LaunchEnvironmentError: no mpi4py, no MPI, or only one rank.
        SystemExit: on the other ranks, once they have served.
    """
    try:
        from mpi4py import MPI
        from mpi4py.futures import MPICommExecutor
    except ImportError as error:
        raise LaunchEnvironmentError("--executor mpi needs mpi4py: pip install 'perfkit[mpi]'") from error
    except RuntimeError as error:  # mpi4py without an MPI library
        raise LaunchEnvironmentError(f"--executor mpi: mpi4py finds no MPI library ({error})") from error
    world = MPI.COMM_WORLD
    if world.Get_size() < 2:
        raise LaunchEnvironmentError(f"--executor mpi: this is the only MPI rank; start several: {_HOW}")
    pool: Any
    with MPICommExecutor(world, root=0) as pool:
        if pool is not None:
            try:
                yield _Apart(pool)
            except KeyboardInterrupt:
                world.Abort(130)  # the others may be in the middle of a long trace
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    if pool is None:
        sys.exit(0)  # served; MPI ends in an orderly way on the way out
