"""Where a step is in a trace, for viewers that open it there."""

from pathlib import Path

from perfkit.analysis.per_rank.trace_steps import find_trace_steps
from perfkit.errors import UsageError
from perfkit.trace.reader import read_trace
from perfkit.util.formatting import ranges


def step_window(path: Path, number: int, step_marker: str | None = None) -> tuple[int, int]:
    """Return start and end of a step (ns), as the trace's own timestamps count: without the base time of its header.

    Args:
        path: the trace.
        number: the step's number.
        step_marker: a regular expression for the names of the annotations that mark steps, instead of `ProfilerStep#N`.

    Raises:
        TraceError: the file cannot be read as a trace.
        UsageError: it has no such step.
    """
    trace = read_trace(path)
    steps = find_trace_steps(trace, step_marker).steps
    numbers = [] if steps is None else steps.number
    if steps is None or number not in numbers:
        known = [step for step in numbers if step is not None]
        raise UsageError(f"--step {number}: {path} has " + (f"steps {ranges(known)}" if known else "no numbered steps"))
    start, end = steps.bounds[numbers.index(number) :][:2].tolist()
    return start - trace.header.base_ns, end - trace.header.base_ns
