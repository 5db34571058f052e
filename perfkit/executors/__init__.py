"""Where the work on the traces runs: each row is a `concurrent.futures.Executor`, opened by name.

A new executor is a module with `open_(choice)`, a context manager, and a row in `EXECUTORS`. Nothing here knows what
the work is: a function and its argument, both picklable, and a small result.
"""

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from typing import Final, NamedTuple, Protocol, cast

from perfkit.errors import UsageError

EXECUTORS: Final[dict[str, str]] = {
    "serial": "perfkit.executors.serial:open_serial",
    "processes": "perfkit.executors.processes:open_processes",
    "mpi": "perfkit.executors.mpi:open_mpi",
    "dask": "perfkit.executors.dask:open_dask",
}
"""Name to `module:function`; a module is imported when its executor is asked for."""


class ExecutorOptions(NamedTuple):
    """What a user chose of an executor."""

    workers: int | None = None
    """None: as many as fit."""
    scheduler: str | None = None
    """Address of a running dask scheduler."""


class ExecutorFactory(Protocol):
    """A function that opens an executor."""

    def __call__(self, choice: ExecutorOptions) -> AbstractContextManager[Executor]:
        """Return the executor; leaving it after an error or an interrupt abandons the work at once."""


def check(executor: str | Executor | None, choice: ExecutorOptions) -> None:
    """Refuse what does not fit together.

    Raises:
        UsageError: an unknown name, or an option that the executor does not have.
    """
    if isinstance(executor, str) and executor not in EXECUTORS:
        raise UsageError(f"--executor {executor}: is none of {', '.join(EXECUTORS)}")
    if isinstance(executor, Executor) and (choice.workers is not None or choice.scheduler is not None):
        raise UsageError("`workers` and `scheduler` are for executors by name: this one is open already")
    if choice.scheduler is not None and executor != "dask":
        raise UsageError("--scheduler is the address of a dask scheduler: it needs --executor dask")
    if choice.workers is None:
        return
    if choice.workers < 1:
        raise UsageError(f"--workers {choice.workers}: at least one must work")
    if executor == "serial":
        raise UsageError("--workers does not go with --executor serial, which has none")
    if executor == "mpi":
        raise UsageError("--workers does not go with --executor mpi: `mpiexec -n` says how many there are")
    if choice.scheduler is not None:
        raise UsageError("--workers does not go with --scheduler: the cluster has its own")


@contextmanager
def open_executor(name: str, choice: ExecutorOptions) -> Iterator[Executor]:
    """Open the executor called `name` in `EXECUTORS`."""
    module, _, function = EXECUTORS[name].partition(":")
    with cast("ExecutorFactory", getattr(import_module(module), function))(choice) as executor:
        yield executor
