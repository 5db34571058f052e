"""What of a trace a viewer shows at first: a step, and in it an instant or a span."""

from pathlib import Path
from typing import Final, NamedTuple

from perfkit.base.formatting import ranges
from perfkit.base.parsing import parse_duration
from perfkit.base.step_numbers import RESTART, numbered
from perfkit.engine.steps.windows import find_trace_steps
from perfkit.errors import UsageError
from perfkit.trace.reader import read_trace

_AROUND: Final = 20
"""An instant is shown with this part of the window before it and after it."""


class TimeSpan(NamedTuple):
    """A span of a step, since its start (ns); an instant has no end."""

    start_ns: int
    end_ns: int | None


def parse_time_span(text: str) -> TimeSpan:
    """Return the value of `--at`: an instant such as `12.5ms`, or a span such as `12.5ms-13ms`.

    Raises:
        UsageError: it is neither, or the span ends before it starts.
    """
    start, separator, end = text.partition("-")
    span = TimeSpan(parse_duration(start, "--at"), parse_duration(end, "--at") if separator else None)
    if span.end_ns is not None and span.end_ns <= span.start_ns:
        raise UsageError(f"--at {text}: the end of the span must be later than its start")
    return span


def step_window(
    path: Path, number: int | None, step_marker: str | None = None, span: TimeSpan | None = None
) -> tuple[int, int]:
    """Return what of a trace a viewer shows, from and to (ns), as its timestamps count: without its header's base time.

    Args:
        number: the step's number; None for all steps of the trace.
        step_marker: a regular expression for the names of the annotations that mark steps, instead of `ProfilerStep#N`.
        span: what of the step is shown; None for all of it.

    Raises:
        TraceError: the file cannot be read as a trace.
        UsageError: it has no such step, or the recorded steps end before the span starts.
    """
    trace = read_trace(path)
    steps = find_trace_steps(trace, step_marker).steps
    bounds = [] if steps is None else steps.bounds.tolist()
    latest = bounds[-1:]
    if number is not None:
        numbers = [] if steps is None else steps.number
        if all(step is not None and step < RESTART for step in numbers):
            number %= RESTART  # the trace is one series of its run
        if number not in numbers:
            known = [step for step in numbers if step is not None]
            has = f"steps {ranges(known)}" if known else "no numbered steps"
            raise UsageError(f"--step {numbered(number)}: {path} has {has}")
        bounds = bounds[numbers.index(number) :][:2]
    if not bounds:
        raise UsageError(f"--at: {path} has no work, and so no time to show")
    start, end = _part(bounds[0], bounds[-1], latest[0], span) if span else (bounds[0], bounds[-1])
    return start - trace.header.base_ns, end - trace.header.base_ns


def _part(start: int, end: int, latest: int, span: TimeSpan) -> tuple[int, int]:
    """Return the part of a step, from `start` to `end`, that shows a span, or the surroundings of an instant.

    A device does the work of a step after the host has issued it: a span may lie beyond the step's end, but not beyond
    that of the last step, `latest`.
    """
    if start + span.start_ns >= latest:
        raise UsageError(f"--at: the recorded steps end {(latest - start) / 1e6:.6g}ms after the start, before that")
    if span.end_ns is not None:
        return start + span.start_ns, min(start + span.end_ns, latest)
    around = max((end - start) // _AROUND, 1)
    return max(start + span.start_ns - around, start), min(start + span.start_ns + around, latest)
