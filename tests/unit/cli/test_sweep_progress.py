import io
import sys
from pathlib import Path

import pytest

from perfkit.base.formatting import clock
from perfkit.cli.progress import progress
from perfkit.records.sweep import SweepPoint
from tests.support.reports.sweep_builders import points_of, wanted

POINTS = points_of(wanted())
DONE, FAILED = (
    SweepPoint(run=f"[red]{state}", key="", ranks=1, repeat=1, scaling=[], arguments=[], state=state, **fields)  # type: ignore[arg-type]
    for state, fields in (("completed", {"wall_ns": 12_300_000_000}), ("failed", {"reason": "no [bold]luck"}))
)


def shown(monkeypatch: pytest.MonkeyPatch, terminal: bool) -> str:
    stream = io.StringIO()
    stream.isatty = lambda: terminal  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with progress(2, Path("nowhere")) as show:
        show.begin(POINTS[0], None)
        show.end(DONE)
        show.begin(POINTS[1], 62.0)
        show.end(FAILED)
    return stream.getvalue()


def test_without_a_terminal_every_event_is_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    assert shown(monkeypatch, terminal=False).splitlines() == [
        f"[1/2] {POINTS[0].name}",
        "[1/2] [red]completed: done in 12.3 s",
        f"[2/2] {POINTS[1].name}, about 1:02 left",
        "[2/2] [red]failed: failed: no [bold]luck",
    ]


def test_on_a_terminal_lines_are_above_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(monkeypatch, terminal=True)
    assert "[1/2] [red]completed: done in 12.3 s" in text
    assert "[2/2] [red]failed: failed: no [bold]luck" in text
    assert "\x1b[" in text


def test_time_is_formatted_as_on_a_clock() -> None:
    assert [clock(seconds) for seconds in (0, 59.6, 3725)] == ["0:00", "1:00", "1:02:05"]
