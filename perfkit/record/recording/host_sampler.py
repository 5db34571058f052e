"""Samples what the main thread runs while steps are recorded: functions and lines, 100 times a second, at first 250.

A timer of the kernel interrupts the main thread, and Python calls the handler as soon as it can: after the C function
that runs, where one does. A sample stands for the time since the one before. Compared in docs/sampling.md: a hook on
each call multiplies the time of programs with many calls, and another thread that reads the stack gets it only where
the program gives the interpreter's lock away, which is at other lines than those that take long.
"""

import atexit
import ctypes
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from functools import cache
from types import CodeType, FrameType
from typing import Any, Final

from perfkit.record.recording.sampled_code import Row, SampledCode
from perfkit.record.step_listener import Recorder
from perfkit.records.samples import RecordedSamples

if sys.platform == "linux":
    from resource import RUSAGE_THREAD, getrusage

INTERVAL_NS: Final = 10_000_000
"""A sample takes 24 to 51 us, interrupt included, on a busy machine up to 100: docs/sampling.md has the measurement."""
_FIRST_INTERVAL_NS: Final = 4_000_000
_FIRST_SAMPLES: Final = 50
"""They are closer together: three steps of a small model last 20 to 30 ms, of which others would be two or three."""
MOST_SAMPLES: Final = 20_000
"""Of more, every second one is dropped, and the interval doubles."""
_MOST_FRAMES: Final = 120
_THREAD_ID: Final = 4
"""SIGEV_THREAD_ID: the timer's signal goes to one thread, and interrupts no other."""
_MONOTONIC: Final = 1


class _SignalEvent(ctypes.Structure):
    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("thread", ctypes.c_int),
        ("unused", ctypes.c_int * 11),
    )


class _Times(ctypes.Structure):
    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("first_s", ctypes.c_long),
        ("first_ns", ctypes.c_long),
    )


class HostSampler(Recorder):
    """Samples the main thread of this process between `start` and `stop`; nothing where the system cannot.

    It can on Linux, where steps end in the main thread, and while no other sampler of this process runs.
    """

    def __init__(self, interval_ns: int = INTERVAL_NS) -> None:
        self._usual_interval_ns = self.interval_ns = interval_ns
        self._first_samples = _FIRST_SAMPLES
        self._pid = os.getpid()
        self._timer: ctypes.c_void_p | None = None
        self._signal: signal.Signals | int = 0
        self._rows: list[Row] = []
        self.begin = 0, 0, 0
        """Time, processor time and waits when sampling began."""

    def start(self) -> None:
        self._rows, self._first_samples = [], _FIRST_SAMPLES
        self.interval_ns = min(_FIRST_INTERVAL_NS, self._usual_interval_ns)
        number = _free_signal()
        runs = any(one._pid == self._pid for one in _running)  # not in the process that this one was forked from
        if number is None or threading.current_thread() is not threading.main_thread() or runs:
            return
        self._signal = number
        signal.signal(number, self._sample)
        signal.siginterrupt(number, False)  # system calls of C code go on
        self.begin = time.time_ns(), time.thread_time_ns(), _waits()
        self._timer = _make_timer(number)
        if self._timer is None:
            signal.signal(number, signal.SIG_DFL)
            return
        _running.append(self)
        atexit.register(self.stop)  # Python removes the handlers at its end: the timer's signal would end the process
        self._set_interval()

    def stop(self) -> None:
        timer, self._timer = self._timer, None
        if timer is None or os.getpid() != self._pid:  # a forked child has no timer
            return
        _system().timer_delete(timer)
        _running.remove(self)
        atexit.unregister(self.stop)
        with suppress(ValueError):  # in another thread the handler stays, which nobody calls
            signal.signal(self._signal, signal.SIG_DFL)

    def recorded(self) -> RecordedSamples | None:
        if not self._rows:
            return None
        code = SampledCode(self.begin)
        code.add(self._rows)
        return code.recorded(self.interval_ns)

    def take(self) -> list[Row]:
        """Return the samples since the last call, and forget them."""
        rows, self._rows = self._rows, []
        return rows

    def _sample(self, _signal: int, frame: FrameType | None) -> None:
        """Note the stack. It runs between two instructions of the program: it takes no lock and raises nothing."""
        stack: list[CodeType | int] = []
        while frame is not None and len(stack) < 2 * _MOST_FRAMES:
            if frame.f_code is _NOTE:
                return  # this interrupts the sample before it, which is still to be noted and has the time of both
            stack += (frame.f_code, frame.f_lasti)
            frame = frame.f_back
        self._rows.append((time.time_ns(), time.thread_time_ns(), _waits(), tuple(stack)))
        self._first_samples -= 1
        if len(self._rows) >= MOST_SAMPLES and self._timer is not None:
            del self._rows[::2]
            self.interval_ns *= 2
            self._set_interval()
        elif not self._first_samples and self._timer is not None:
            self.interval_ns = self._usual_interval_ns
            self._set_interval()

    def _set_interval(self) -> None:
        seconds, rest = divmod(self.interval_ns, 10**9)
        times = _Times(seconds, rest, seconds, rest)
        _system().timer_settime(self._timer, 0, ctypes.byref(times), None)


_NOTE: Final = HostSampler._sample.__code__


def _waits() -> int:
    """Return how often this thread has begun to wait: for a lock, a file, another thread; not for a core."""
    return getrusage(RUSAGE_THREAD).ru_nvcsw


_running: list[HostSampler] = []
"""The one that runs, if any does; in a forked process also that of the other."""


def _make_timer(number: int) -> ctypes.c_void_p | None:
    """Return a timer that sends a signal to this thread; None where the system has none."""
    event = _SignalEvent(None, number, _THREAD_ID, threading.get_native_id())
    timer = ctypes.c_void_p()
    try:
        failed = _system().timer_create(_MONOTONIC, ctypes.byref(event), ctypes.byref(timer))
    except (AttributeError, OSError):  # a C library without timers
        return None
    return None if failed else timer


def _free_signal() -> int | None:
    """Return a signal that the program does not use; None if there is none.

    One that is ignored without a handler: frameworks such as Lightning give all signals back what they did before, and
    every real-time signal would then end the process.
    """
    if sys.platform != "linux":
        return None
    handler = signal.getsignal(signal.SIGURG)
    of_parent = getattr(handler, "__func__", None) is HostSampler._sample  # in a forked process
    return signal.SIGURG if handler == signal.SIG_DFL or of_parent else None


@cache
def _system() -> Any:
    return ctypes.CDLL(None)
