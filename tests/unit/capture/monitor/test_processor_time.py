"""The processor time of steps."""

from time import process_time_ns

from perfkit.capture.monitor.step_monitor import StepMonitor

MS = 1_000_000


def compute(lasts_ns: int) -> None:
    end_ns = process_time_ns() + lasts_ns
    while process_time_ns() < end_ns:
        pass


def test_what_runs_between_two_steps_is_part_of_none() -> None:
    monitor = StepMonitor()
    for step in range(2):
        monitor.begin_step()
        compute(20 * MS)
        monitor.end_step(step, "plain")
        compute(60 * MS)
    monitor.begin_step()
    monitor.end_step(2, "plain")
    first, second, third = [record.cpu_ns for record in monitor._before_log]
    assert 20 * MS <= first < 60 * MS
    assert 20 * MS <= second < 60 * MS
    assert third < 20 * MS
