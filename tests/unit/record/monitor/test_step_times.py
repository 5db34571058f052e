"""Where the host's time goes within a step."""

import threading

import pytest

from perfkit.record.monitor.step_monitor import StepMonitor
from perfkit.record.monitor.step_times import BACKWARD, COLLECTIVE, DATA, FORWARD, OPTIMIZER, StepTimes
from perfkit.record.step_listener import PauseState


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000
        self.pauses = PauseState()
        monkeypatch.setattr("perfkit.record.monitor.step_times.perf_counter_ns", lambda: self.now)
        self.times = StepTimes(self.pauses)
        self.start()

    def start(self) -> None:
        self.times.start(self.now)

    def span(self, kind: int, lasts: int) -> None:
        self.times.begin(kind)
        self.now += lasts
        self.times.end(kind)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_what_was_never_seen_is_unknown_and_later_zero(clock: Clock) -> None:
    assert clock.times.take() == [-1, -1, -1, -1, -1]
    clock.span(DATA, 5)
    clock.span(DATA, 2)
    assert clock.times.take() == [7, -1, -1, -1, -1]
    clock.start()
    clock.times.may_wait()
    assert clock.times.take() == [0, -1, -1, -1, 0]


def test_a_marked_forward_pass_is_zero_in_a_step_without_one(clock: Clock) -> None:
    clock.span(FORWARD, 3)
    clock.start()
    assert clock.times.take()[FORWARD] == 0


def test_a_span_within_another_of_its_kind_is_a_part_of_it(clock: Clock) -> None:
    clock.times.begin(OPTIMIZER)
    clock.span(OPTIMIZER, 3)
    clock.now += 4
    clock.times.end(OPTIMIZER)
    clock.times.end(OPTIMIZER)  # one that has not begun
    assert clock.times.take()[OPTIMIZER] == 7


@pytest.mark.parametrize("marked", [False, True])
def test_passes_in_the_closure_of_an_optimizer_are_no_part_of_its_step(clock: Clock, marked: bool) -> None:
    clock.span(DATA, 1)
    clock.now += 2
    clock.times.begin(OPTIMIZER)
    for _ in range(2):
        if marked:
            clock.span(FORWARD, 30)
        else:
            clock.now += 30
        clock.span(BACKWARD, 50)
    clock.now += 7
    clock.times.end(OPTIMIZER)
    assert clock.times.take() == [1, 60 if marked else 62, 100, 7, -1]
    clock.span(BACKWARD, 50)
    clock.span(OPTIMIZER, 5)
    assert clock.times.take()[OPTIMIZER] == 12


def test_a_step_that_ends_within_that_of_an_optimizers_base_class_has_its_time(clock: Clock) -> None:
    clock.times.begin(OPTIMIZER)
    clock.now += 50
    clock.span(OPTIMIZER, 1)
    assert clock.times.take()[OPTIMIZER] == 51
    clock.start()
    clock.times.end(OPTIMIZER)
    assert clock.times.take()[OPTIMIZER] <= 0


def test_a_step_of_an_optimizer_that_failed_has_no_time(clock: Clock) -> None:
    clock.span(OPTIMIZER, 1)
    clock.times.begin(OPTIMIZER)
    clock.now += 100
    assert clock.times.take()[OPTIMIZER] == 1


def test_a_span_that_an_error_left_open_does_not_reach_into_the_next_step(clock: Clock) -> None:
    clock.times.begin(OPTIMIZER)
    clock.start()
    clock.now += 100
    clock.span(OPTIMIZER, 3)
    assert clock.times.take()[OPTIMIZER] == 3


def test_forward_is_what_lies_between_the_batch_and_the_backward_pass(clock: Clock) -> None:
    for _ in range(2):
        clock.now += 1000  # before the batch
        clock.span(DATA, 10)
        clock.now += 30
        clock.span(BACKWARD, 50)
    assert clock.times.take() == [20, 60, 100, -1, -1]


def test_forward_does_not_contain_pauses(clock: Clock) -> None:
    clock.span(DATA, 10)
    clock.now += 30
    clock.pauses.in_progress = True
    clock.span(DATA, 500)  # of an evaluation
    clock.span(COLLECTIVE, 500)
    clock.pauses.in_progress, clock.pauses.total_ns = False, 1000
    clock.now += 20
    clock.span(BACKWARD, 5)
    assert clock.times.take() == [10, 50, 5, -1, -1]


def test_a_forward_pass_that_was_marked_takes_precedence(clock: Clock) -> None:
    clock.now += 100
    clock.span(FORWARD, 7)
    clock.span(BACKWARD, 5)
    assert clock.times.take()[FORWARD] == 7


def test_what_other_threads_do_is_no_part_of_the_step(clock: Clock) -> None:
    thread = threading.Thread(target=lambda: clock.span(DATA, 9))
    thread.start()
    thread.join()
    assert clock.times.take()[DATA] == -1


def test_the_wait_of_the_last_step_is_known_until_the_next_one_begins() -> None:
    monitor = StepMonitor()
    assert monitor.last_data_ns is None
    for lasted_ns in (7, 9):
        monitor.begin_step()
        monitor.times.add(DATA, lasted_ns)
        monitor.end_step(0, "plain")
        assert monitor.last_data_ns == lasted_ns
    monitor.close()
    assert monitor.last_data_ns is None
