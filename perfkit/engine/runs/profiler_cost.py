"""What the profiler costs, by the run's own clock: recorded steps against warm steps without the profiler.

Steps become faster while a program warms up, and slower for many reasons: what steps on one side of the recorded ones
differ by is no cost. So there is a figure only with steps on both sides, of which the slower ones are compared.
"""

from collections.abc import Sequence
from statistics import fmean
from typing import Final

from msgspec.structs import replace

from perfkit.base.statistics.bootstrap import shift_interval
from perfkit.records.aggregate import clock_step_times, step_time_ns, usual_steps_ns
from perfkit.records.facts import Statement, statement
from perfkit.records.manifest import RankRecord, StepKind
from perfkit.records.run import ProfilerCost, StepTimes

_MOST_APART: Final = 4
"""Largest ratio of the bounds with which the cost is a figure: it is then off by about a factor of two at most."""


def profiler_cost(ranks: Sequence[RankRecord], kinds: Sequence[StepKind]) -> ProfilerCost:
    """Return the cost of the profiler per step, or why it is not known (metrics.md section 10)."""
    times = clock_step_times(ranks, kinds)
    active = [step for step, kind in enumerate(kinds) if kind == "active"] or [0]
    around = kinds[: active[-1]], [*["cold"] * active[0], *kinds[active[0] :]]
    sides = [
        usual_steps_ns(replace(times, plain_ns=clock_step_times(ranks, some).plain_ns))  # type: ignore[arg-type]
        for some in around
    ]
    is_between = all(sides)
    times = replace(times, plain_ns=max(sides, key=fmean) if is_between else usual_steps_ns(times))
    plain_ns, recorded_ns = _rounded(step_time_ns(times.plain_ns)), _rounded(step_time_ns(times.recorded_ns))
    bounds = shift_interval(times.plain_ns, times.recorded_ns)
    interval_ns = (round(bounds[0]), round(bounds[1])) if bounds else None
    reason = _why_not_compared(ranks, times) or _why_not_measurable(times, interval_ns, is_between=is_between)
    if reason or not plain_ns or recorded_ns is None:
        ratio, added_ns = None, None
    else:
        ratio, added_ns = recorded_ns / plain_ns, recorded_ns - plain_ns
    return ProfilerCost(
        plain_step_ns=plain_ns,
        recorded_step_ns=recorded_ns,
        interval_ns=interval_ns,
        added_ns=added_ns,
        ratio=ratio,
        reason=reason,
        writing_ns=max((rank.writing_ns for rank in ranks), default=0),
        trace_bytes=sum(rank.trace_bytes for rank in ranks),
    )


def _why_not_compared(ranks: Sequence[RankRecord], times: StepTimes) -> Statement | None:
    """Return which of the two kinds of steps is missing; None if there are both."""
    if not ranks:
        return statement("no_step_times")
    if not times.recorded_ns:
        return statement("no_step_recorded")
    if not times.plain_ns:
        return statement("no_plain_steps")
    return None


def _why_not_measurable(times: StepTimes, interval_ns: tuple[int, int] | None, *, is_between: bool) -> Statement | None:
    """Return why there is no figure for the difference; None if there is one."""
    if interval_ns is None:
        return statement("few_steps", recorded=len(times.recorded_ns), plain=len(times.plain_ns))
    low, high = interval_ns
    if low > 0 and fmean(times.recorded_ns) > fmean(times.plain_ns) > 0:
        if not is_between:
            return statement("plain_on_one_side")
        return statement("wide_interval", low_ns=low, high_ns=high) if high > _MOST_APART * low else None
    return statement("recorded_steps_faster") if high <= 0 else statement("within_variation", high_ns=high)


def _rounded(value: float | None) -> int | None:
    return None if value is None else round(value)
