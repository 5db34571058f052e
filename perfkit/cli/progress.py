"""Progress on the terminal: of traces that are read (bytes, rate, remaining time), and of the points of a sweep."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Final

from perfkit.base.formatting import clock, duration
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
    began_s = time.monotonic()
    shown: list[tuple[Progress, TaskID]] = []

    def update(done: int, total: int) -> None:
        """Update the bar, and show it once reading takes long enough."""
        if not shown and done < total and time.monotonic() - began_s > _DELAY_S:
            progress = _columns()
            progress.start()
            shown.append((progress, progress.add_task("reading traces", total=total)))
        for progress, task in shown:
            progress.update(task, completed=done)

    try:
        yield update
    finally:
        for progress, _ in shown:
            progress.stop()


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


class Lines:
    """One line on stderr when a point of a sweep begins, and one when it has ended."""

    def __init__(self, total: int, folder: Path) -> None:
        self._total = total
        self._folder = folder
        self._done = 0

    def begin(self, point: "Point", left_s: float | None) -> None:
        """Print the name of a point that begins, and the time left for all points."""
        left = "" if left_s is None else f", about {clock(left_s)} left"
        write_stderr(f"[{self._done + 1}/{self._total}] {point.name}{left}")

    def end(self, record: "SweepPoint") -> None:
        self._done += 1
        write_stderr(f"[{self._done}/{self._total}] {record.run}: {outcome(record, self._folder)}")


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
