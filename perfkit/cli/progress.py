"""Progress bar on the terminal while traces are read: bytes, rate and remaining time."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_DELAY_S: Final = 1.0
"""The bar appears after this time."""


@contextmanager
def bar() -> Iterator[Callable[[int, int], None] | None]:
    """Yield a callback for bytes done and total bytes; None if stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    progress_bar = _Bar()
    try:
        yield progress_bar.update
    finally:
        progress_bar.close()


class _Bar:
    def __init__(self) -> None:
        self._started_s = time.monotonic()
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def update(self, done: int, total: int) -> None:
        """Update the bar, and show it once reading takes long enough."""
        if self._progress is None and done < total and time.monotonic() - self._started_s > _DELAY_S:
            self._progress = _columns()
            self._task = self._progress.add_task("reading traces", total=total)
            self._progress.start()
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=done)

    def close(self) -> None:
        """Remove the bar."""
        if self._progress is not None:
            self._progress.stop()


def _columns() -> "Progress":
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(file=sys.stderr),
        transient=True,
    )
