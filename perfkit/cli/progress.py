"""Progress on the terminal: of traces that are read (bytes, rate, remaining time), and of the points of a sweep."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Final

from perfkit.base.formatting import clock, duration, escape_unprintable
from perfkit.base.standard_streams import write_stderr
from perfkit.errors import StoreError
from perfkit.storage.run_folder import read_manifest

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from perfkit.records.sweep import SweepPoint
    from perfkit.tools.sweep.point import Point

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


@contextmanager
def progress(total: int, folder: Path) -> Iterator["Lines"]:
    """Show the progress of `total` points on stderr; `folder` contains their run folders."""
    if not sys.stderr.isatty():
        yield Lines(total, folder)
        return
    bar = _bar()
    with bar:
        yield Bar(total, folder, bar)


class Lines:
    """One line when a point begins, and one when it has ended.

    Args:
        total: Number of points to run.
        folder: Contains their run folders.
    """

    def __init__(self, total: int, folder: Path) -> None:
        self._total = total
        self._folder = folder
        self._done = 0

    def begin(self, point: "Point", left_s: float | None) -> None:
        """Print the name of a point that begins, and the time left for all points."""
        left = "" if left_s is None else f", about {clock(left_s)} left"
        self.print_line(f"[{self._done + 1}/{self._total}] {point.name}{left}")

    def end(self, record: "SweepPoint") -> None:
        """Print the outcome of a point."""
        self._done += 1
        self.print_line(f"[{self._done}/{self._total}] {record.run}: {outcome(record, self._folder)}")

    def print_line(self, line: str) -> None:
        """Print a line."""
        write_stderr(line)


class Bar(Lines):
    """One line per point that has ended, above a bar with the running point.

    Args:
        total: Number of points to run.
        folder: Contains their run folders.
        bar: A progress bar without a task.
    """

    def __init__(self, total: int, folder: Path, bar: "Progress") -> None:
        super().__init__(total, folder)
        self._bar = bar
        self._task = bar.add_task("", total=total, end_s=None)

    def begin(self, point: "Point", left_s: float | None) -> None:
        """Show the running point, and the time left for all points."""
        end_s = None if left_s is None else time.monotonic() + left_s
        self._bar.update(self._task, description=point.name, end_s=end_s)

    def end(self, record: "SweepPoint") -> None:
        """Print the outcome of a point."""
        super().end(record)
        self._bar.update(self._task, completed=self._done)

    def print_line(self, line: str) -> None:
        """Print a line above the bar."""
        from rich.text import Text

        self._bar.console.print(Text(escape_unprintable(line)))  # not a str: brackets in names would be markup


def outcome(record: "SweepPoint", folder: Path) -> str:
    """Return the outcome of a point, as text: how long it took, its step time and its last loss."""
    if record.state == "failed":
        return f"failed: {record.reason}"
    return ", ".join([f"done in {duration(record.wall_ns)}", *_measured(folder / record.run)])


def _measured(run: Path) -> list[str]:
    try:
        manifest = read_manifest(run)
    except StoreError:
        return []
    step = [f"step {duration(manifest.throughput.step_ns)}"] if manifest.throughput else []
    losses = [rank.loss[-1] for rank in manifest.ranks if rank.loss and rank.loss[-1] is not None]
    return [*step, *([f"loss {fmean(losses):.4g}"] if losses else [])]


def _bar() -> "Progress":
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeElapsedColumn,
    )
    from rich.text import Text

    class Left(ProgressColumn):
        """Estimated time left. It uses the durations of points; rich's own column counts them, and they differ."""

        def render(self, task: Task) -> Text:
            end_s = task.fields["end_s"]
            return Text("" if end_s is None else f"about {clock(max(0.0, end_s - time.monotonic()))} left")

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        Left(),
        console=Console(stderr=True),
        # A redraw thread at ten times per second would disturb the measured points.
        refresh_per_second=1,
        transient=True,
    )
