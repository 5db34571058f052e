"""Pauses within each other, and where the program makes them."""

import sys
from pathlib import Path
from threading import Thread

import pytest

import perfkit
from perfkit.record.recording.pause_log import OpenPause, PauseLog
from perfkit.records.per_run.pauses import PausePhase, RecordedPause


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


def test_of_very_many_pauses_the_last_are_listed_and_those_before_added_up() -> None:
    log = PauseLog()
    for number in range(10_030):
        phase: PausePhase = "checkpoint" if number % 3 == 0 else "logging"
        size = 7 if phase == "checkpoint" else None
        log.add(RecordedPause(phase=phase, step=number, begin_ns=100 * number, end_ns=100 * number + 40, bytes=size))
    assert [one.step for one in log.all()] == list(range(30, 10_030))
    # What a cycle that begins now has in its header: before, it was what the run began with.
    assert [one.step for one in log.since(100 * 10_028)] == [10_028, 10_029]
    assert log.total_ns == 40 * 10_030
    assert {one.phase: (one.count, one.total_ns, one.max_ns, one.bytes) for one in log.earlier()} == {
        "checkpoint": (10, 400, 40, 70),
        "logging": (20, 800, 40, None),
    }


def test_one_with_more_inside_than_are_listed_counts_no_time_twice() -> None:
    inside, end_ns = 10_030, 100 * 10_030 + 10**6
    log = noted(*(("checkpoint", 100 * number, 100 * number + 40) for number in range(inside)))
    log.add(RecordedPause(phase="evaluation", step=3, begin_ns=0, end_ns=end_ns))
    assert sum(one.end_ns - one.begin_ns for one in log.all()) + sum(one.total_ns for one in log.earlier()) <= end_ns
    assert 40 * inside + 10**6 <= log.total_ns <= end_ns
    assert log.all()[-1].phase == "evaluation"


def test_evaluations_are_also_dropped_from_what_is_added_up() -> None:
    log = noted(*(("evaluation", 100 * number, 100 * number + 1) for number in range(10_001)))
    assert len(log.earlier()) == 1
    log.drop_evaluations()
    assert (log.earlier(), log.all()) == ([], [])


def test_the_line_of_a_loop_that_pauses_is_noted(tmp_path: Path) -> None:
    with perfkit.profile(tmp_path / "mine", schedule="wait=0,warmup=1,active=1") as prof:
        line = sys._getframe().f_lineno + 2
        for _ in range(2):
            with prof.phase("checkpoint"):
                pass
            prof.step()
    (run,) = perfkit.analyze(tmp_path / "mine").runs
    (row,) = run.pauses
    name = "test_the_line_of_a_loop_that_pauses_is_noted"
    assert (row.phase, row.caller) == ("checkpoint", f"{Path(__file__).name}:{line} {name}")


def test_code_without_a_file_is_no_line_of_the_program() -> None:
    pause = OpenPause()
    code = compile("import sys; pause.called_in(sys._getframe())", "<stdin>", "exec")
    thread = Thread(target=eval, args=(code, {"pause": pause}))
    thread.start()
    thread.join()
    assert pause.caller is None


def test_a_log_knows_whether_training_pauses_now() -> None:
    log = PauseLog()
    with log.pause("checkpoint", 3):
        during = log.in_progress
    assert (during, log.in_progress) == (True, False)
