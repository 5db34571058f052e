"""Pauses within each other."""

import pytest

from perfkit.capture.recording.pause_log import PauseLog
from perfkit.schema.per_run.pauses import PausePhase, RecordedPause


def noted(*pauses: tuple[PausePhase, int, int]) -> PauseLog:
    log = PauseLog()
    for phase, begin_ns, end_ns in pauses:
        log.add(RecordedPause(phase=phase, step=3, begin_ns=begin_ns, end_ns=end_ns))
    return log


@pytest.mark.parametrize(
    ("pauses", "expected"),
    [
        ([("checkpoint", 5, 95)], [("checkpoint", 5, 95)]),
        ([("checkpoint", 20, 99)], [("evaluation", 0, 20), ("checkpoint", 20, 99)]),
        (
            [("checkpoint", 30, 40), ("checkpoint", 45, 50)],
            [("evaluation", 0, 30), ("checkpoint", 30, 40), ("checkpoint", 45, 50), ("evaluation", 50, 100)],
        ),
        ([], [("evaluation", 0, 100)]),
    ],
    ids=["only written", "the best is written", "in the middle", "nothing written"],
)
def test_an_evaluation_that_writes_is_noted_without_what_it_writes(
    pauses: list[tuple[PausePhase, int, int]], expected: list[tuple[str, int, int]]
) -> None:
    before: tuple[PausePhase, int, int] = ("evaluation", -50, -10)
    log = noted(before, *pauses, ("evaluation", 0, 100))
    assert [(one.phase, one.begin_ns, one.end_ns) for one in log.all()] == [before, *expected]
    assert log.total_ns == 40 + sum(end - begin for _, begin, end in expected)
