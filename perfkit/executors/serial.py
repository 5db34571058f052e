"""One after the other, in this process."""

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import Any, TypeVar

from perfkit.executors import ExecutorOptions

T = TypeVar("T")


class Serial(Executor):
    """Runs what is submitted at once."""

    takes_progress = True
    """Whether `submit` takes a callback `progress`, which is called in this process."""

    def submit(self, function: Callable[..., T], /, *args: Any, **options: Any) -> "Future[T]":
        """Call `function`; the future that is returned is done."""
        future: Future[T] = Future()
        try:
            future.set_result(function(*args, **options))
        # It belongs to the future, which raises it to whoever asks. An interrupt does not: it ends here.
        except Exception as error:  # noqa: BLE001
            future.set_exception(error)
        return future


@contextmanager
def open_serial(choice: ExecutorOptions) -> Iterator[Serial]:  # noqa: ARG001  it has no options
    """Return the executor that works in this process."""
    yield Serial()
