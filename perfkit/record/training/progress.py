"""Progress on rank 0, on stderr: a live bar on a terminal, plain lines otherwise; with step time and loss."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from perfkit.base.formatting import duration
from perfkit.record.messages import print_status
from perfkit.record.recording.recording import Recording

_LINES: Final = 10
"""Approximate maximum of plain lines per run."""


Show = Callable[[int], None]
"""Called with the number of steps that are complete."""


@contextmanager
def progress(total: int, steps: Recording, visible: bool) -> Iterator[Show]:
    if not visible:
        yield lambda _done: None
    elif sys.stderr.isatty():
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        more = (TextColumn("{task.fields[measured]}"), TimeElapsedColumn())
        # No refresh by a separate thread: it would run during the steps that are measured.
        with Progress(*columns, *more, console=Console(stderr=True), auto_refresh=False) as bar:
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


def _measured(steps: Recording, first: int) -> str:
    """Return the typical time of the steps from `first` on, and the last loss, as far as they are known."""
    step_ns, loss = steps.typical_step_ns(first), steps.last_loss()
    time = [] if step_ns is None else [f"{duration(step_ns)} per step"]
    return ", ".join([*time, *([] if loss is None else [f"loss {loss:.4g}"])])
