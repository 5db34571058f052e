"""Run the points of a sweep one after another and record their outcomes."""

import os
import signal
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Protocol

from msgspec.structs import replace

from perfkit.base.formatting import escape_unprintable
from perfkit.errors import RunError
from perfkit.records.sweep import SweepPoint
from perfkit.tools.sweep.folder import SweepFolder
from perfkit.tools.sweep.point import Point
from perfkit.tools.sweep.subprocess_group import Signals, run_process

_ERROR: Final = "perfkit: error: "
_LAST_BYTES: Final = 1 << 16
_REASON_LENGTH: Final = 500

Command = Callable[[Point], list[str]]


class ProgressDisplay(Protocol):
    """Shows the progress of a sweep."""

    def begin(self, point: Point, left_s: float | None) -> None:
        """Show that a point begins, and the estimated time left including this point (None if unknown)."""

    def end(self, record: SweepPoint) -> None:
        """Show the outcome of a point."""


class InterruptedSweepError(RunError):
    """A signal ended the sweep."""

    def __init__(self, number: signal.Signals, ran: int, total: int) -> None:
        super().__init__(f"ended by {number.name}: {ran} of {total} points ran; run the same command again to continue")
        self.exit_code = 128 + number


def execute(
    folder: SweepFolder,
    points: Sequence[Point],
    command: Command,
    show: ProgressDisplay,
    *,
    lock: int | None = None,
    pause_s: float = 0.0,
) -> list[SweepPoint]:
    """Run points in order, and return the outcome of each.

    The outcome of a point is in `sweep.json` before the next begins, so that an interrupted sweep can be continued.

    Raises:
        InterruptedSweepError: A signal asked this process to end; the running point has been ended.
        StoreError: The folder cannot be written.
    """
    done: list[SweepPoint] = []
    with Signals() as signals:
        for position, point in enumerate(points):
            if position:
                signals.sleep(pause_s)
            if signals.last is None:
                show.begin(point, time_left_s(points[position:], folder.records, pause_s))
                record = _run(folder, point, command(point), signals, lock)
                folder.write_records([record])
                if record.state != "planned":
                    show.end(record)
                    done.append(record)
            if signals.last is not None:
                raise InterruptedSweepError(signals.last, len(done), len(points))
    return done


def time_left_s(points: Sequence[Point], known: Sequence[SweepPoint], pause_s: float) -> float | None:
    """Estimate the time that points take, from their other repeats or the mean of all points; None if unknown."""
    every = [point.wall_ns for point in known if point.wall_ns is not None]
    if not every:
        return None
    average = statistics.fmean(every)

    def expected_ns(point: Point) -> float:
        same = [other.wall_ns for other in known if other.key == point.key and other.wall_ns is not None]
        return statistics.fmean(same) if same else average

    return sum(map(expected_ns, points)) / 1e9 + pause_s * (len(points) - 1)


def _run(folder: SweepFolder, point: Point, command: list[str], signals: Signals, lock: int | None) -> SweepPoint:
    """Run one point; if it was interrupted, its state is `planned` again."""
    folder.move_aside(point)
    log = folder.log(point)
    before_bytes = log.stat().st_size if log.exists() else 0
    ended = run_process(command, log, signals, lock)
    record = folder.record_of(point)
    if record.state == "completed":
        return replace(record, wall_ns=ended.wall_ns)
    if signals.last is not None:
        return replace(record, state="planned", reason=None, wall_ns=None)
    reason = folder.reason(point) or _last_message(log, before_bytes) or f"exit code {ended.exit_code}"
    return replace(
        record, state="failed", reason=escape_unprintable(" ".join(reason.split()))[:_REASON_LENGTH], wall_ns=None
    )


def _last_message(log: Path, begin: int) -> str | None:
    """Return perfkit's last error message in a log, else the last line of text; None if there is none."""
    with log.open("rb") as stream:
        stream.seek(max(begin, stream.seek(0, os.SEEK_END) - _LAST_BYTES))
        lines = stream.read().decode(errors="replace").splitlines()
    errors = [line.removeprefix(_ERROR) for line in lines if line.startswith(_ERROR)]
    words = [line for line in lines if any(map(str.isalnum, line))]  # Open MPI ends with a row of dashes
    return next(reversed(errors or words), None)
