"""What is said of ranks that end with their launcher, by what ended first and how long before."""

from collections.abc import Sequence

import pytest

from perfkit.record.lifecycle import watchdog
from perfkit.record.lifecycle.watchdog import LauncherEnd

LAUNCHER, RANKS = 5, [7, 8]


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(watchdog, "time", clock)
    monkeypatch.setattr(watchdog, "_open_launchers", lambda: {LAUNCHER})
    return clock


@pytest.mark.parametrize(
    ("ended", "after_s", "expected"),
    [
        ([[LAUNCHER], [7]], 0.1, watchdog._AFTER),
        ([[LAUNCHER], [7]], 9.9, watchdog._AFTER),
        ([[LAUNCHER], [], [7]], 10.1, watchdog._ALONE),
        ([[7, LAUNCHER]], 0, watchdog._TOGETHER),
        ([[LAUNCHER, *RANKS]], 0, watchdog._TOGETHER),
        ([[7]], 0, watchdog._ALONE),
    ],
    ids=["after", "just in time", "too late", "together", "all together", "a rank only"],
)
def test_what_ended_first(clock: Clock, ended: Sequence[Sequence[int]], after_s: float, expected: str) -> None:
    launchers = LauncherEnd()
    for ready in ended[:-1]:
        launchers.note(ready, RANKS)
    clock.now_s += after_s
    launchers.note(ended[-1], RANKS)
    assert launchers.message() == expected


def test_a_launcher_that_another_host_may_have_ended_is_not_said_to_have_been_killed(clock: Clock) -> None:
    launchers = LauncherEnd()
    launchers.note([LAUNCHER], RANKS)
    clock.now_s += 1
    launchers.note([7], RANKS)
    assert launchers.message().endswith("or did a rank on another host end?")
