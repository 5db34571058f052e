"""Executors of the work on the traces: each is a `concurrent.futures.Executor`, opened by name.

To add one, write a function that takes `ExecutorOptions` and returns a context manager of an executor, and a row in
`EXECUTORS`, or an entry point of the group `perfkit.executors`. Nothing here depends on what the work is: a picklable
function, a picklable argument and a small result.
"""

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Final, NamedTuple, Protocol

from perfkit.errors import PerfkitError, PluginError, UsageError
from perfkit.plugins import Registry


class ExecutorOptions(NamedTuple):
    """Options of an executor."""

    workers: int | None = None
    """Number of workers; None for as many as cores and memory allow."""
    scheduler: str | None = None
    """Address of a running scheduler."""


class ExecutorFactory(Protocol):
    """A function that opens an executor."""

    def __call__(self, options: ExecutorOptions, /) -> AbstractContextManager[Executor]:
        """Return the executor; leaving its context after an error or an interrupt abandons the work at once."""


EXECUTORS: Final[Registry[ExecutorFactory]] = Registry(
    "perfkit.executors",
    "executor",
    {
        "serial": "perfkit.base.executors.processes:open_serial",
        "processes": "perfkit.base.executors.processes:open_processes",
        "mpi": "perfkit.base.executors.mpi:open_mpi",
        "dask": "perfkit.base.executors.dask:open_dask",
    },
    lambda _, found: None if callable(found) else "is not a function that opens an executor",
)


def check(executor: str | Executor | None, options: ExecutorOptions) -> None:
    """Check that an executor and its options fit together. An executor of a plug-in checks its own.

    Raises:
        UsageError: an unknown name, or an option that the executor does not have.
    """
    if isinstance(executor, str) and executor not in EXECUTORS:
        raise UsageError(f"--executor {executor}: choose from {', '.join(EXECUTORS.names())}")
    if isinstance(executor, Executor) and (options.workers is not None or options.scheduler is not None):
        raise UsageError("`workers` and `scheduler` need the name of an executor: this one is already open")
    if options.workers is not None and options.workers < 1:
        raise UsageError(f"--workers {options.workers}: at least one is needed")
    if executor in EXECUTORS.plugin_names():
        return
    if options.scheduler is not None and executor != "dask":
        raise UsageError("--scheduler is the address of a dask scheduler: it needs --executor dask")
    if options.workers is None:
        return
    if executor == "serial":
        raise UsageError("--workers does not go with --executor serial, which has none")
    if executor == "mpi":
        raise UsageError("--workers does not go with --executor mpi: set the number of ranks with `mpiexec -n`")
    if options.scheduler is not None:
        raise UsageError("--workers cannot be used with --scheduler: the cluster has its own workers")


@contextmanager
def open_executor(name: str, options: ExecutorOptions) -> Iterator[Executor]:
    """Open the executor called `name` in `EXECUTORS`.

    Raises:
        PluginError: an installed package adds it, and it cannot be loaded or opened.
    """
    factory = EXECUTORS.load(name)
    with ExitStack() as stack:
        with EXECUTORS.guarded(name, "cannot be opened", (PerfkitError,)):
            executor: object = stack.enter_context(factory(options))
        if not isinstance(executor, Executor):
            kind = type(executor).__name__
            raise PluginError(f"executor {name!r} is a {kind}, not a context manager of a concurrent.futures.Executor")
        yield executor
