"""What ran in a part of a step of one rank, as lines: per thread and stream, what took longest first."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

from perfkit.base.formatting import duration, plural, ranges
from perfkit.base.step_numbers import numbered
from perfkit.engine.trace_summary import MOST_STEPS
from perfkit.errors import UsageError
from perfkit.pipeline.summarize import Options
from perfkit.records.per_run.step_timeline import StepTimeline, TimelineRow
from perfkit.tools.merge.step_rows import step_timeline
from perfkit.trace.reader import read_trace

_MOST_NAMES: Final = 5
"""Per row of a timeline."""


def window_lines(trace: Path, rank: int | None, step: int | None, start_ns: int, end_ns: int | None) -> list[str]:
    """Return what ran in a window of a step.

    Args:
        trace: its file.
        rank: as it is called.
        step: its number; None for the longest.
        start_ns: since the start of the step, as is `end_ns`; None for its end.

    Raises:
        TraceError: The file cannot be read as a trace.
        UsageError: It has no such step, or the step no such window.
    """
    read = Options().context(read_trace(trace), trace.name, MOST_STEPS)
    numbers, bounds = read.steps.number, read.steps.bounds.tolist()
    lengths = [after - before for before, after in pairwise(bounds)]
    if step is None:
        place = lengths.index(max(lengths))
    elif step in numbers:
        place = numbers.index(step)
    else:
        known = [one for one in numbers if one is not None]
        raise UsageError(
            f"no step {numbered(step)}: the trace has {f'steps {ranges(known)}' if known else 'no numbers'}"
        )
    timeline = step_timeline(read, place, {}, rank=rank, trace=trace.name, begin_ns=None)
    end_ns = timeline.window_ns if end_ns is None else min(end_ns, timeline.window_ns)
    if not 0 <= start_ns < end_ns:
        raise UsageError(f"no such window: the step lasts {duration(timeline.window_ns)}")
    return list(_lines(timeline, start_ns, end_ns))


def _lines(timeline: StepTimeline, start_ns: int, end_ns: int) -> Iterator[str]:
    who = "" if timeline.rank is None else f"rank {timeline.rank}, "
    which = "the whole trace" if timeline.step is None else f"step {numbered(timeline.step)}"
    window = f"{duration(start_ns)} to {duration(end_ns)} of {duration(timeline.window_ns)}"
    yield f"{who}{which} of {timeline.trace}: {window}"
    for row in timeline.rows:
        if found := _longest(row, timeline.names, start_ns, end_ns):
            yield f"{row.lane}, {row.title}: {'; '.join(found)}"
    if timeline.left_out:
        yield f"({plural(timeline.left_out, 'short event')} left out)"


def _longest(row: TimelineRow, names: list[str], start_ns: int, end_ns: int) -> list[str]:
    """Return what a row has in the window, by name: total time, number, and when it first began."""
    total: dict[int, int] = defaultdict(int)
    starts: dict[int, list[int]] = defaultdict(list)
    for start, length, name in zip(row.start_ns, row.duration_ns, row.name, strict=True):
        within = min(start + length, end_ns) - max(start, start_ns)
        if within > 0:
            total[name] += within
            starts[name].append(start)
    longest = sorted(total, key=lambda name: -total[name])
    shown = [_described(names[name], total[name], starts[name]) for name in longest[:_MOST_NAMES]]
    left = len(longest) - len(shown)
    return [*shown, *([f"{plural(left, 'other name')}"] if left else [])]


def _described(name: str, total_ns: int, starts: list[int]) -> str:
    times = f" in {len(starts)} pieces, the first" if len(starts) > 1 else ""
    return f"{name} {duration(total_ns)}{times} at {duration(max(starts[0], 0))}"
