"""Progress of a sweep: one line per point, and on a terminal a bar with the remaining time."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from perfkit.base.formatting import duration, escape_unprintable
from perfkit.base.standard_streams import write_stderr
from perfkit.errors import StoreError
from perfkit.records.sweep import SweepPoint
from perfkit.storage.run_folder import read_manifest
from perfkit.tools.sweep.point import Point

if TYPE_CHECKING:
    from rich.progress import Progress


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

    def begin(self, point: Point, left_s: float | None) -> None:
        """Print the name of a point that begins, and the time left for all points."""
        left = "" if left_s is None else f", about {clock(left_s)} left"
        self.print_line(f"[{self._done + 1}/{self._total}] {point.name}{left}")

    def end(self, record: SweepPoint) -> None:
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

    def begin(self, point: Point, left_s: float | None) -> None:
        """Show the running point, and the time left for all points."""
        end_s = None if left_s is None else time.monotonic() + left_s
        self._bar.update(self._task, description=point.name, end_s=end_s)

    def end(self, record: SweepPoint) -> None:
        """Print the outcome of a point."""
        super().end(record)
        self._bar.update(self._task, completed=self._done)

    def print_line(self, line: str) -> None:
        """Print a line above the bar."""
        from rich.text import Text

        self._bar.console.print(Text(escape_unprintable(line)))  # not a str: brackets in names would be markup


def outcome(record: SweepPoint, folder: Path) -> str:
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


def clock(seconds: float) -> str:
    """Format a duration as on a clock: `0:42`, `1:02:05`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


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
