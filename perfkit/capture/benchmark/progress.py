"""Progress on rank 0: a bar on stderr if that is a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

Show = Callable[[int, str], None]
"""Called with the number of finished measurements, and the last one in words."""


@contextmanager
def progress(total: int, visible: bool) -> Iterator[Show]:
    """Show the progress of `total` measurements while the body runs, if `visible` and on a terminal."""
    if not (visible and total and sys.stderr.isatty()):
        yield lambda _done, _what: None
        return
    # No refresh by a separate thread: it would run beside what is measured.
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True), auto_refresh=False, transient=True) as bar:
        task = bar.add_task("", total=total)

        def draw(done: int, what: str) -> None:
            bar.update(task, completed=done, description=what, refresh=True)

        yield draw
