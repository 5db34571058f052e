"""An executor: the threads of this process."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from perfkit.base.executors import ExecutorOptions


@contextmanager
def open_threads(options: ExecutorOptions) -> Iterator[ThreadPoolExecutor]:
    """Open a pool of threads."""
    with ThreadPoolExecutor(options.workers) as pool:
        yield pool
