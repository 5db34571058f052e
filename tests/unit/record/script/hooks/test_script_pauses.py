"""When a script pauses, which is no hang: and which evaluations are pauses, and which are part of its steps."""

import threading
from collections.abc import Iterable
from typing import Any, cast

import pytest
from torch import nn

from perfkit.record.recording.pause_log import PauseLog
from perfkit.record.recording.recording import Recording
from perfkit.record.script.hooks.script_pauses import ScriptPauses
from perfkit.record.step_listener import PauseState


class Steps:
    def __init__(self) -> None:
        self.steps = 0
        self.pauses = PauseLog()


def evaluated(steps: Iterable[int], times: int = 1) -> list[int]:
    """Return the steps of the evaluations that are pauses, of a script of 40 steps."""
    session, model = Steps(), nn.Linear(2, 2)
    pauses = ScriptPauses(lambda: cast("Recording", session), PauseState())
    evaluates = set(steps)
    for session.steps in range(40):
        for _ in range(times if session.steps in evaluates else 0):
            pauses.begin(model)
            pauses.end(model)
        pauses.trains()
    return [one.step for one in session.pauses.all()]


@pytest.mark.parametrize(
    "steps", [range(40), range(5, 40), [10, 20, 30, 31, 32]], ids=["each", "after a while", "three in a row"]
)
def test_evaluations_of_consecutive_steps_are_part_of_them(steps: Iterable[int]) -> None:
    assert evaluated(steps) == []


@pytest.mark.parametrize("steps", [range(0, 40, 10), range(0, 40, 2), [9, 19, 20, 29, 39]])
def test_evaluations_now_and_then_are_pauses(steps: Iterable[int]) -> None:
    assert evaluated(steps) == [*steps]


def test_a_few_data_sets_are_evaluated_in_a_pause_but_not_each_action() -> None:
    assert evaluated([10, 20], times=3) == [10, 10, 10, 20, 20, 20]
    assert evaluated([10, 20], times=50) == []


def test_what_was_a_pause_and_no_evaluation_stays() -> None:
    session: Any = Steps()
    with session.pauses.pause("checkpoint", 1):
        pass
    with session.pauses.pause("evaluation", 1):
        pass
    session.pauses.drop_evaluations()
    assert [one.phase for one in session.pauses.all()] == ["checkpoint"]


def test_a_script_pauses_during_checkpoints_and_evaluations_of_the_thread_that_steps() -> None:
    state = PauseState()
    pauses, module, seen = ScriptPauses(lambda: None, state), nn.Linear(1, 1), list[bool]()

    def look() -> None:
        seen.append(pauses.in_progress)
        assert state.in_progress == pauses.in_progress

    def write() -> None:
        with pauses._checkpoint():
            look()

    look()
    write()
    look()
    pauses.begin(module)
    look()
    pauses.end(module)
    look()
    thread = threading.Thread(target=write)
    thread.start()
    thread.join()
    assert seen == [False, True, False, True, False, False]
