"""Whether a script pauses now, which is no hang: also once nothing is recorded any more."""

import threading

from torch import nn

from perfkit.record.pause_state import PauseState
from perfkit.record.recording.pause_log import PauseLog
from perfkit.record.script.hooks.script_pauses import ScriptPauses


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


def test_a_log_knows_whether_training_pauses_now() -> None:
    log = PauseLog()
    with log.pause("checkpoint", 3):
        during = log.in_progress
    assert (during, log.in_progress) == (True, False)
