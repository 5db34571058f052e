"""Run one task after the other, in this process."""

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import Any, TypeVar

from perfkit.executors import ExecutorOptions

T = TypeVar("T")


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
    """Return the executor that works in this process."""
    yield Serial()
