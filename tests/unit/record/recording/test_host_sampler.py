"""The sampler: what it sees, and that it leaves nothing behind."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from types import FrameType

import pytest

from perfkit.record.recording.host_sampler import HostSampler
from perfkit.records.samples import RecordedSamples

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs timers of Linux")


def count_up(until: float) -> int:
    total = 0
    while time.perf_counter() < until:
        total = sum(k for k in range(200))
    return total


def nap(seconds: float) -> None:
    time.sleep(seconds)


def sort_large(values: list[int]) -> None:
    values.sort()


def sampled(work: Callable[[], object]) -> RecordedSamples:
    sampler = HostSampler(interval_ns=2_000_000)
    sampler.start()
    try:
        work()
    finally:
        sampler.stop()
    found = sampler.recorded()
    assert found is not None
    return found


def innermost(samples: RecordedSamples) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for one in samples.samples:
        place = samples.places[samples.stacks[one.stack][0]]
        found[samples.functions[place.function].name, place.call] += one.ns
    return found


def test_a_python_loop_is_seen_in_its_function_comprehensions_included() -> None:
    found = innermost(sampled(lambda: count_up(time.perf_counter() + 0.2)))
    assert sum(ns for (name, _), ns in found.items() if name == "count_up") > 0.8 * sum(found.values())


def test_sleeping_has_its_time_and_waits() -> None:
    samples = sampled(lambda: nap(0.2))
    found = innermost(samples)
    assert found["nap", "time.sleep"] > 0.8 * sum(found.values())
    assert sum(one.cpu_ns for one in samples.samples) < 100_000_000
    assert all(one.waits for one in samples.samples[1:-1])


def test_a_c_function_that_holds_the_interpreter_has_the_time_that_it_took() -> None:
    values = [hash(str(k)) for k in range(400_000)]
    found = innermost(sampled(lambda: sort_large(values)))
    assert found["sort_large", "values.sort"] > 0.8 * sum(found.values())


def test_a_sample_that_interrupts_another_is_not_noted() -> None:
    sampler = HostSampler()

    def interrupt_samples(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_code is HostSampler._sample.__code__:
            interrupted.append(frame)
            sampler._sample(0, frame)

    interrupted: list[FrameType] = []
    sys.setprofile(interrupt_samples)
    try:
        sampler._sample(0, sys._getframe())
    finally:
        sys.setprofile(None)
    assert len(interrupted) == 1
    assert len(sampler.take()) == 1


def test_samples_are_on_the_clock_of_traces() -> None:
    before = time.time_ns()
    samples = sampled(lambda: nap(0.05))
    last = samples.begin_ns + sum(one.ns for one in samples.samples)
    assert before <= samples.begin_ns < last <= time.time_ns()


@pytest.fixture
def _same_handlers() -> Iterator[None]:
    before = [signal.getsignal(number) for number in signal.valid_signals()]
    yield
    assert [signal.getsignal(number) for number in signal.valid_signals()] == before


@pytest.mark.usefixtures("_same_handlers")
def test_it_gives_its_signal_back() -> None:
    sampled(lambda: nap(0.02))


def test_another_thread_is_not_sampled() -> None:
    sampler = HostSampler()
    thread = threading.Thread(target=sampler.start)
    thread.start()
    thread.join()
    nap(0.02)
    sampler.stop()
    assert sampler.recorded() is None


def test_a_second_sampler_waits_for_the_first() -> None:
    first, second = HostSampler(2_000_000), HostSampler(2_000_000)
    first.start()
    second.start()
    nap(0.05)
    second.stop()
    first.stop()
    assert second.recorded() is None
    assert first.recorded() is not None


def test_of_too_many_samples_every_second_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perfkit.record.recording.host_sampler.MOST_SAMPLES", 10)
    samples = sampled(lambda: nap(0.2))
    assert len(samples.samples) < 10
    assert samples.interval_ns > 2_000_000
    assert sum(one.ns for one in samples.samples) > 100_000_000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_is_not_interrupted_and_can_be_sampled_itself() -> None:
    program = """
import os, time
from perfkit.record.recording.host_sampler import HostSampler
outer = HostSampler(2_000_000)
outer.start()
child = os.fork()
inner = HostSampler(2_000_000)
if child == 0:
    outer.take()  # what it sampled before the fork
    inner.start()
    time.sleep(0.5)
    inner.stop()
    os._exit(0 if inner.recorded() and len(outer.take()) == 0 else 1)
_, status = os.waitpid(child, 0)
raise SystemExit(os.waitstatus_to_exitcode(status))
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_program_that_ends_while_it_is_sampled_ends_as_without() -> None:
    program = (
        "from perfkit.record.recording.host_sampler import HostSampler\n"
        "HostSampler(200_000).start()\n"
        "raise SystemExit(3)\n"
    )
    for _ in range(3):
        assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 3


def test_a_framework_that_gives_all_signals_back_does_not_end_the_process() -> None:
    """As Lightning does at the end of a fit: with a real-time signal the next sample would end the process."""
    script = (
        "import signal, time\n"
        "from perfkit.record.recording.host_sampler import HostSampler\n"
        "sampler = HostSampler(interval_ns=1_000_000)\nsampler.start()\n"
        "assert sampler._timer is not None\n"
        "for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGINT}:\n"
        "    if signal.getsignal(number) not in (None, signal.SIG_IGN):\n"
        "        signal.signal(number, signal.SIG_DFL)\n"
        "time.sleep(0.2)\nsampler.stop()\nprint('trained')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
