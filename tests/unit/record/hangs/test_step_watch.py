"""The watch of steps: it is silent while steps end, and lets every rank write what it does when none does."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from perfkit.engine.hangs.folder import STATE_NAME, diagnose_folder
from perfkit.record.hangs.rank_state import read_answers, read_rank_state, write_rank_state
from perfkit.record.hangs.step_watch import SHORTEST_DEFAULT_S, Hang, StepWatch
from perfkit.record.own_threads import all_threads
from perfkit.records.hang import Frame, RankState
from tests.support.processes.waiting import MOST_S, wait_for_threads, wait_until

LIMIT_S = 0.4


class SpeechlessError(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")


def state_of(folder: Path, rank: int) -> RankState:
    return msgspec.json.decode((folder / STATE_NAME.format(rank)).read_bytes(), type=RankState)


@contextmanager
def watches(folder: Path, count: int, hangs: list[Hang], **options: Callable[[], bool]) -> Iterator[list[StepWatch]]:
    """Yield the watches of the ranks of one run, whose first step has ended."""
    all_watches = [StepWatch(folder, rank, count, LIMIT_S, hangs.append, **options) for rank in range(count)]  # type: ignore[arg-type]
    for watch in all_watches:
        watch.end_step()
    try:
        yield all_watches
    finally:
        for watch in all_watches:
            watch.end()


class Clock:
    """A clock that stands still until it is moved: a busy machine makes no step longer."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._looks: Counter[int] = Counter()

    def monotonic(self) -> float:
        self._looks[threading.get_ident()] += 1
        return self.now

    def move(self, seconds: float) -> None:
        """Go on, and wait until all watches have seen that."""
        running = [thread.ident or 0 for thread in all_threads() if thread.name == "perfkit-steps"]
        assert running
        self._await_looks(running, 1)  # they have begun
        self.now += seconds
        self._await_looks(running, 2)  # and the first is over

    def _await_looks(self, threads: list[int], count: int) -> None:
        before = self._looks.copy()
        wait_until(lambda: all(self._looks[thread] >= before[thread] + count for thread in threads))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    wait_for_threads("perfkit-steps")  # of other tests
    made = Clock()
    monkeypatch.setattr("perfkit.record.hangs.step_watch.time", SimpleNamespace(monotonic=made.monotonic))
    return made


def test_when_no_step_ends_every_rank_writes_once_and_one_reports(tmp_path: Path) -> None:
    hangs: list[Hang] = []
    with watches(tmp_path, 2, hangs):
        wait_until(lambda: bool(hangs))
        time.sleep(3 * LIMIT_S)
    (hang,) = hangs
    assert hang.idle_s >= LIMIT_S
    states = [msgspec.json.decode((tmp_path / STATE_NAME.format(r)).read_bytes(), type=RankState) for r in (0, 1)]
    assert [state.steps for state in states] == [1, 1]
    functions = {frame.function for state in states for frame in state.main}
    assert test_when_no_step_ends_every_rank_writes_once_and_one_reports.__name__ in functions
    assert diagnose_folder(tmp_path).verdict == "unknown"


def test_steps_that_end_keep_it_silent(tmp_path: Path, clock: Clock) -> None:
    hangs: list[Hang] = []
    with watches(tmp_path, 2, hangs) as running:
        for _ in range(4):
            clock.move(0.9 * LIMIT_S)
            for watch in running:
                watch.end_step()
    assert (hangs, list(tmp_path.iterdir())) == ([], [])


def test_before_the_first_step_and_after_the_last_nothing_is_watched(tmp_path: Path, clock: Clock) -> None:
    hangs: list[Hang] = []
    StepWatch(tmp_path, 0, 1, LIMIT_S, hangs.append)
    with watches(tmp_path, 1, hangs) as (watch,):
        watch.end()
        clock.now += 2 * LIMIT_S
        wait_for_threads("perfkit-steps")
    assert (hangs, list(tmp_path.iterdir())) == ([], [])


def test_the_first_step_is_watched_from_the_start_on_for_longer(tmp_path: Path) -> None:
    hangs: list[Hang] = []
    watch = StepWatch(tmp_path, 0, 1, LIMIT_S / 8, hangs.append)
    assert watch.limit_s == pytest.approx(10 * LIMIT_S / 8)
    watch.begin()
    wait_until(lambda: bool(hangs))
    watch.end_step()
    watch.end()
    (hang,) = hangs
    assert (hang.step, hang.idle_s >= 10 * LIMIT_S / 8) == (0, True)
    assert state_of(tmp_path, 0).steps == 0


def test_a_first_step_that_ends_in_time_is_silent_and_the_next_one_has_the_usual_limit(
    tmp_path: Path, clock: Clock
) -> None:
    hangs: list[Hang] = []
    watch = StepWatch(tmp_path, 0, 1, LIMIT_S, hangs.append)
    watch.begin()
    clock.move(2 * LIMIT_S)
    assert hangs == []
    watch.end_step()
    clock.now += 1.5 * LIMIT_S
    wait_until(lambda: bool(hangs))
    watch.end()
    assert hangs[0].step == 1
    assert StepWatch(tmp_path, 0, 1, None, hangs.append).limit_s == 1800


def test_the_time_in_which_perfkit_writes_does_not_count(tmp_path: Path, clock: Clock) -> None:
    hangs: list[Hang] = []
    with watches(tmp_path, 1, hangs, is_busy=lambda: True):
        for _ in range(3):
            clock.move(LIMIT_S)
    assert hangs == []


def test_after_another_step_it_watches_again_for_twice_as_long(tmp_path: Path) -> None:
    hangs: list[Hang] = []
    with watches(tmp_path, 1, hangs) as (watch,):
        wait_until(lambda: len(hangs) == 1)
        watch.end_step()
        wait_until(lambda: len(hangs) == 2)
    assert hangs[1].idle_s >= 2 * LIMIT_S


def test_when_steps_go_on_a_rank_marks_its_answer(tmp_path: Path) -> None:
    hangs: list[Hang] = []
    with watches(tmp_path, 1, hangs) as (watch,):
        wait_until(lambda: bool(hangs))
        assert not state_of(tmp_path, 0).resumed
        watch.end_step()
        wait_until(lambda: state_of(tmp_path, 0).resumed)
    assert hangs[0].resumed()


def test_a_hang_that_is_over_before_all_have_answered_is_not_reported(tmp_path: Path) -> None:
    hangs: list[Hang] = []
    watch = StepWatch(tmp_path, 0, 2, LIMIT_S, hangs.append)  # the other rank does not answer
    watch.end_step()
    wait_until(lambda: (tmp_path / STATE_NAME.format(0)).exists())
    watch.end_step()
    wait_until(lambda: state_of(tmp_path, 0).resumed)
    watch.end()
    assert hangs == []


def test_an_answer_to_an_earlier_request_does_not_count(tmp_path: Path) -> None:
    for rank, request, ended in ((0, 1, None), (1, 0, None), (2, 0, "ended with ValueError")):
        write_rank_state(tmp_path, RankState(rank=rank, request=request, ended=ended, awaits_workers=rank == 0))
    assert read_answers(tmp_path, {0, 1, 2, 3}, 1) == ({1, 3}, {0}, set(), set())


def test_a_watch_that_cannot_begin_or_fails_does_not_reach_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", fail)
        watch = StepWatch(tmp_path, 0, 1, LIMIT_S, fail)
        watch.end_step()
        watch.end_step()
    failing = StepWatch(tmp_path, 1, 1, LIMIT_S, fail, is_busy=fail)  # type: ignore[arg-type]
    failing.end_step()
    wait_for_threads("perfkit-steps")
    assert [line.split(": ")[2] for line in capsys.readouterr().err.splitlines()] == ["rank 0", "rank 1"]


@pytest.mark.parametrize(
    ("error", "ended"),
    [
        (ValueError("a \udcff path"), "ended with ValueError: a \\udcff path"),
        (SpeechlessError(), "ended with SpeechlessError: its message cannot be shown"),
    ],
)
def test_any_error_of_a_program_is_left_for_the_others(tmp_path: Path, error: Exception, ended: str) -> None:
    StepWatch(tmp_path, 0, 2, None, lambda _: None).stop(error)
    assert state_of(tmp_path, 0).ended == ended


def test_names_that_are_no_utf_8_are_escaped(tmp_path: Path) -> None:
    write_rank_state(tmp_path, RankState(rank=0, main=[Frame(function="f", file="caf\udce9.py", line=3)]))
    assert state_of(tmp_path, 0).main[0].file == "caf\\udce9.py"


def test_stopping_in_a_folder_that_is_gone_is_silent(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    StepWatch(tmp_path / "gone", 0, 2, None, lambda _: None).stop(ValueError("a bad batch"))
    assert capfd.readouterr() == ("", "")
    assert not (tmp_path / "gone").exists()


def test_a_signal_handler_may_stop_the_watch_while_it_writes(tmp_path: Path) -> None:
    watch = StepWatch(tmp_path, 0, 2, None, lambda _: None)

    def interrupted() -> None:
        with watch._writing:
            watch.stop(ValueError("a bad batch"))  # as in a handler, which runs in the thread that writes

    thread = threading.Thread(target=interrupted, daemon=True)
    thread.start()
    thread.join(MOST_S)
    assert not thread.is_alive()
    assert state_of(tmp_path, 0).ended == "ended with ValueError: a bad batch"


def test_the_default_follows_the_usual_step() -> None:
    watch = StepWatch(Path(), 0, 1, None, lambda _: None)
    watch.steps = 1
    assert watch.limit_s == SHORTEST_DEFAULT_S
    watch._durations.extend([60.0, 60.0, 2000.0])
    assert watch.limit_s == 1200.0


def test_the_state_has_the_stack_of_the_main_thread_even_while_that_waits() -> None:
    states: list[RankState] = []
    thread = threading.Thread(target=lambda: states.append(read_rank_state(3, 4, 7)))
    thread.start()
    thread.join()
    (state,) = states
    assert (state.rank, state.world_size, state.steps, state.ended) == (3, 4, 7, None)
    assert "test_the_state_has" in " ".join(frame.function for frame in state.main)


def test_of_an_error_the_state_has_the_place_where_it_was_raised() -> None:
    def fail() -> None:
        raise ValueError("a bad\nbatch")

    try:
        fail()
    except ValueError as error:
        state = read_rank_state(0, 2, 7, error=error)
    assert state.main[0].function == "fail"
    assert state.ended == "ended with ValueError: a bad batch"
