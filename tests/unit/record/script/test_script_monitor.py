"""The monitor of a script's rank."""

import time
from pathlib import Path

import pytest

from perfkit.options.script import ScriptConfig
from perfkit.record.monitor.step_times import DATA
from perfkit.record.script.script_monitor import ScriptMonitor
from perfkit.record.step_listener import PauseState


@pytest.fixture
def monitor(tmp_path: Path) -> ScriptMonitor:
    config = ScriptConfig(trace_dir=str(tmp_path), workload="train", monitor=True)
    return ScriptMonitor(config, PauseState(), time.perf_counter_ns())


def test_the_wait_is_that_of_the_step_that_has_ended(monitor: ScriptMonitor) -> None:
    assert monitor.monitor is not None
    assert monitor.last_load_ns is None
    for lasted_ns in (7, 9):
        monitor.begin_step()
        monitor.monitor.times.add(DATA, lasted_ns)
        monitor.end_step("plain")
        assert monitor.last_load_ns == lasted_ns


def test_the_wait_is_unknown_once_the_monitor_has_stopped(monitor: ScriptMonitor) -> None:
    assert monitor.monitor is not None
    monitor.monitor.times.add(DATA, 7)
    monitor.end_step("plain")
    monitor.close()
    assert monitor.last_load_ns is None
