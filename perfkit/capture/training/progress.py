"""Progress on rank 0, on stderr: a live bar on a terminal, plain lines otherwise."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from perfkit.capture.messages import print_status

_LINES: Final = 10
"""Approximate maximum of plain lines per run."""


class Show(Protocol):
    """Shows progress."""

    def __call__(self, done: int) -> None:
        """Show that `done` steps are complete."""


@contextmanager
def progress(total: int, visible: bool) -> Iterator[Show]:
    """Show the progress of `total` steps while the body runs, if `visible`."""
    if not visible:
        yield _nothing
    elif sys.stderr.isatty():
        with _bar() as bar:
            task = bar.add_task("steps", total=total)

            def draw(done: int) -> None:
                bar.update(task, completed=done, refresh=True)

            yield draw
    else:
        every = max(1, total // _LINES)

        def line(done: int) -> None:
            if done % every == 0 or done == total:
                print_status(f"step {done}/{total}", bare=True)

        yield line


def _nothing(done: int) -> None:
    pass


def _bar() -> Progress:
    # No refresh by a thread of its own: it would run during the steps that are measured.
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        auto_refresh=False,
    )
