"""Progress on rank 0, on stderr: a live bar on a terminal, plain lines otherwise; with step time and loss."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from perfkit.base.formatting import duration
from perfkit.record.messages import print_status

_LINES: Final = 10
"""Approximate maximum of plain lines per run."""


class Show(Protocol):
    """Shows progress."""

    def __call__(self, done: int) -> None:
        """Show that `done` steps are complete."""


class Measured(Protocol):
    """What is known of the steps so far, as of a `Recording`."""

    def typical_step_ns(self, first: int) -> float | None:
        """Return the typical time of the steps from `first` on."""

    def last_loss(self) -> float | None:
        """Return the loss of the last step."""


@contextmanager
def progress(total: int, steps: Measured, visible: bool) -> Iterator[Show]:
    """Show the progress of `total` steps while the body runs, if `visible`."""
    if not visible:
        yield _nothing
    elif sys.stderr.isatty():
        with _bar() as bar:
            task = bar.add_task("steps", total=total, measured="")

            def draw(done: int) -> None:
                bar.update(task, completed=done, measured=_measured(steps, max(0, done - _LINES)), refresh=True)

            yield draw
    else:
        every = max(1, total // _LINES)
        shown = 0

        def line(done: int) -> None:
            nonlocal shown
            if done % every == 0 or done == total:
                parts = [f"step {done}/{total}", _measured(steps, shown)]
                print_status(", ".join(part for part in parts if part), bare=True)
                shown = done

        yield line


def _measured(steps: Measured, first: int) -> str:
    """Return the typical time of the steps from `first` on, and the last loss, as far as they are known."""
    step_ns, loss = steps.typical_step_ns(first), steps.last_loss()
    time = [] if step_ns is None else [f"{duration(step_ns)} per step"]
    return ", ".join([*time, *([] if loss is None else [f"loss {loss:.4g}"])])


def _nothing(done: int) -> None:
    pass


def _bar() -> Progress:
    # No refresh by a separate thread: it would run during the steps that are measured.
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[measured]}"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        auto_refresh=False,
    )
