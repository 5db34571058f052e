from pathlib import Path

import pytest

from perfkit.base.formatting import clock
from perfkit.cli.progress import Lines
from perfkit.records.sweep import SweepPoint
from tests.support.reports.sweep_builders import points_of, wanted

POINTS = points_of(wanted())
DONE, FAILED = (
    SweepPoint(run=f"[red]{state}", key="", ranks=1, repeat=1, scaling=[], arguments=[], state=state, **fields)  # type: ignore[arg-type]
    for state, fields in (("completed", {"wall_ns": 12_300_000_000}), ("failed", {"reason": "no [bold]luck"}))
)


def test_every_event_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    show = Lines(2, Path("nowhere"))
    show.begin(POINTS[0], None)
    show.end(DONE)
    show.begin(POINTS[1], 62.0)
    show.end(FAILED)
    assert capsys.readouterr().err.splitlines() == [
        f"[1/2] {POINTS[0].name}",
        "[1/2] [red]completed: done in 12.3 s",
        f"[2/2] {POINTS[1].name}, about 1:02 left",
        "[2/2] [red]failed: failed: no [bold]luck",
    ]


def test_time_is_formatted_as_on_a_clock() -> None:
    assert [clock(seconds) for seconds in (0, 59.6, 3725)] == ["0:00", "1:00", "1:02:05"]
