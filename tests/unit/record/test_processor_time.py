"""Who keeps the cores of a machine busy, by the counters of the system."""

import os
import subprocess
import sys
import time

import pytest

from perfkit.record.processor_time import CoreMeter, own_time_ns, processor_times
from perfkit.records.trace_header import CoreUse

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
BURNS_S = 0.5
BURN = f"import time\nend = time.process_time() + {BURNS_S}\nwhile time.process_time() < end: pass\n"
NESTED = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {BURN!r}], check=True)\ninput()\n"


def burn() -> None:
    end = time.process_time() + BURNS_S
    while time.process_time() < end:
        pass


def measured(meter: CoreMeter) -> CoreUse:
    use = meter.read()
    assert use is not None
    return use


def test_the_time_of_this_process_is_its_own_and_keeps_a_core_busy() -> None:
    meter = CoreMeter()
    meter.start()
    burn()
    use = measured(meter)
    # Threads and processes that other tests of this process have left count, too.
    assert use.own_ns >= 0.8 * BURNS_S * 1e9
    assert 0.5 * BURNS_S * 1e9 < use.busy_ns < 1.1 * use.count * use.window_ns


def test_the_time_of_a_child_is_its_own_too_while_it_runs_and_once_it_has_ended() -> None:
    before = own_time_ns()
    with subprocess.Popen([sys.executable, "-c", NESTED], stdin=subprocess.PIPE, text=True) as child:
        end = time.monotonic() + 60
        while own_time_ns() - before < BURNS_S * 1e9 and time.monotonic() < end:
            time.sleep(0.05)
        running = own_time_ns() - before
        child.communicate("\n")
    assert running >= BURNS_S * 1e9
    assert own_time_ns() - before >= running - 20e6  # a child that runs is counted in ticks


def test_the_time_of_another_process_keeps_cores_busy_and_is_not_its_own() -> None:
    detached = f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {BURN!r}])"
    meter = CoreMeter()
    meter.start()
    subprocess.run([sys.executable, "-c", detached], check=True)  # it ends, and the burner is nobody's child
    own = own_time_ns()
    time.sleep(BURNS_S)
    assert own_time_ns() - own < 0.2e9
    use = measured(meter)
    assert use.busy_ns - use.own_ns > 0.2e9


def test_cores_are_counted_each_and_all_together() -> None:
    every = processor_times()
    assert every is not None
    assert sum(every) > 0
    assert processor_times([10**6]) is None
    cores = sorted(os.sched_getaffinity(0))
    some = processor_times(cores)
    assert some is not None
    assert some.busy_ns <= every.busy_ns + 1e9


def test_the_load_average_stands_in_where_a_window_is_shorter_than_the_counters_resolve(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (10_000.0, 0.0, 0.0))
    meter = CoreMeter()
    meter.start()
    use = measured(meter)
    assert use.busy_ns == use.count * use.window_ns


def test_nothing_was_measured_without_a_start() -> None:
    assert CoreMeter().read() is None
