"""A bar on the terminal while traces are read: bytes, their rate, and the time left."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_PATIENCE_S: Final = 1.0
"""What is done sooner shows no bar."""


@contextmanager
def bar() -> Iterator[Callable[[int, int], None] | None]:
    """Return a callback for the bytes done and those of all; None where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    shown = _Bar()
    try:
        yield shown.update
    finally:
        shown.close()


class _Bar:
    def __init__(self) -> None:
        self._begun_s = time.monotonic()
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def update(self, done: int, total: int) -> None:
        """Show how far it is, once it takes long enough to wonder."""
        if self._progress is None and done < total and time.monotonic() - self._begun_s > _PATIENCE_S:
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
