"""Windows of the steps, on the host and on the device (metrics.md section 3)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.base.step_numbers import RESTART
from perfkit.engine.kinds.classify import Device, Names, classify_names, find_device, tell_apart
from perfkit.engine.kinds.host_plausibility import check_host
from perfkit.engine.kinds.plausibility import check_work
from perfkit.engine.kinds.polling import merge_polls
from perfkit.engine.steps.marks import StepSource, find_marks, training_thread
from perfkit.engine.steps.pauses import NONE, Pauses, besides_steps, find_pauses, with_gaps
from perfkit.records.common import Observation
from perfkit.records.kernel_rules import KernelRule
from perfkit.records.rank import StepBreakdown
from perfkit.trace.events import EventKind, Events, RankTrace
from perfkit.trace.intervals import EMPTY, Ints
from perfkit.trace.lanes import Id

_NEVER = np.iinfo(np.int64).min

BEFORE_THE_FIRST: Final = -1
AFTER_THE_LAST: Final = -2
IN_A_PAUSE: Final = -3


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Windows of the steps of one trace, in order: step k is `[bounds[k], bounds[k + 1])`."""

    number: list[int | None]
    """N of `ProfilerStep#N`, or where numbers start again those of `apart`; None for a whole trace without steps."""
    host_start_ns: Ints
    """c_k, shape (k,); the smallest int64 if the whole trace is one step."""
    bounds: Ints
    """b_0 … b_k and the end, shape (k + 1,)."""
    device_step: Ints
    """Step of each device activity, shape (d,); -1 if launched before the first step, -2 after the last, -3 in a
    pause."""
    source: StepSource
    """What marks them; the whole trace counts as one step if nothing does."""
    lost: Ints
    """Launches of kernels that are not in the trace, by step; shape (k,)."""
    pauses: Pauses = NONE
    """Checkpoints and the like, and what lies between marked steps: no part of the steps whose windows contain them."""
    named: Pauses = NONE
    """Those that are not between marked steps."""
    all_numbers: list[int | None] | None = None
    """Numbers of all marked steps, if only the first of them are here; else None."""
    all_wall_ns: Ints | None = None
    """Their wall times; shape (all,)."""

    @property
    def from_annotations(self) -> bool:
        """Whether there are any: a trace without counts as one."""
        return self.source != "trace"

    @property
    def between_ns(self) -> int:
        """How long training is between steps that the program marked itself."""
        whole = self.bounds[:1], self.bounds[-1:]
        return int((self.pauses.time_in(*whole) - self.named.time_in(*whole))[0])

    def of(self, instant_ns: Ints) -> Ints:
        """Return the host step of each instant; -1 before the first step, and the last step after its start."""
        return np.searchsorted(self.host_start_ns, instant_ns, side="right") - 1

    def in_windows(self, instant_ns: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        return np.asarray((instant_ns >= self.bounds[0]) & (instant_ns < self.bounds[-1]))

    def within(self, instant_ns: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Return whether each instant lies in any window, and in no pause."""
        return np.asarray(self.in_windows(instant_ns) & ~self.pauses.at(instant_ns))

    @property
    def paused_ns(self) -> Ints:
        """How long training pauses in each window, shape (k,)."""
        return self.pauses.time_in(self.bounds[:-1], self.bounds[1:])


def find_steps(
    events: Events,
    device: Device,
    marker: str | None,
    counted: tuple[int, int] | None = None,
    most: int | None = None,
    pauses: Pauses = NONE,
    lost_ns: Ints = EMPTY.start,
) -> Steps | None:
    """Return the steps, or None if the trace contains neither steps nor work.

    Args:
        marker: a regular expression that an annotation's name must match to be a step, instead of `ProfilerStep#N`;
            what lies between such steps is a pause.
        counted: first and last `ProfilerStep#N` that count, if the run recorded it: earlier ones warmed up, a later one
            was abandoned, and neither they nor what was launched in them count.
        most: number of steps to return at most, the first ones; None for all.
        pauses: what is no part of the steps; evaluations in each of them are.
        lost_ns: when kernels were launched that are not in the trace.
    """
    marks = find_marks(events, device, marker, counted)
    if marks is None:
        return _whole_trace(events, device, pauses, len(lost_ns))
    start_ns = marks.start_ns
    named = besides_steps(pauses, start_ns, events, device)
    pauses = with_gaps(named, marks.end_ns[:-1], start_ns[1:], events, device) if marker else named
    device_step = np.searchsorted(start_ns, device.launched_ns, side="right") - 1
    device_step[device.launched_ns >= marks.after_ns] = AFTER_THE_LAST
    device_step[(device_step >= 0) & pauses.at(device.launched_ns)] = IN_A_PAUSE
    lost_step = np.searchsorted(start_ns, lost_ns[lost_ns < marks.after_ns], side="right") - 1
    bounds = _bounds(start_ns, int(marks.end_ns[-1]), events, device, device_step)
    steps = Steps(
        number=apart(marks.number),
        host_start_ns=start_ns,
        bounds=bounds,
        device_step=device_step,
        source=marks.source,
        pauses=pauses,
        named=named,
        lost=np.bincount(lost_step[lost_step >= 0], minlength=len(start_ns)),
    )
    if most is None or len(start_ns) <= most:
        return steps
    return replace(_part(steps, 0, most), all_numbers=steps.number, all_wall_ns=np.diff(bounds))


def apart(number: Sequence[int | None]) -> list[int | None]:
    """Return numbers that grow: with one that is no larger than the one before, a new series begins."""
    known = np.array(number, np.int64) % RESTART
    restarts = np.cumsum(np.diff(known, prepend=known[:1] - 1) <= 0)
    return [*(known + restarts * RESTART).tolist()]


def numbered_in_run(steps: Steps, of_rank: Iterable[StepBreakdown]) -> Steps:
    """Return the steps of one trace with the numbers that they have among all steps of its rank."""
    begin_ns, own = int(steps.bounds[0]), steps.number[0]
    known = next((step.step for step in of_rank if step.start_ns == begin_ns), own)
    if own is None or known is None:
        return steps
    return replace(steps, number=[None if one is None else one + known - own for one in steps.number])


def _part(steps: Steps, first: int, last: int) -> Steps:
    """Return the steps from `first` to before `last` alone; what was launched in others belongs to none."""
    known, own = steps.device_step >= 0, slice(first, last)
    inside = (steps.device_step >= first) & (steps.device_step < last)
    return replace(
        steps,
        number=steps.number[own],
        host_start_ns=steps.host_start_ns[own],
        bounds=steps.bounds[first : last + 1],
        device_step=np.where(inside, steps.device_step - first, np.where(known, AFTER_THE_LAST, steps.device_step)),
        lost=steps.lost[own],
    )


def _whole(steps: Steps, launches: int) -> tuple[Steps, list[Observation]]:
    """Return the most steps in succession, of several the last, that lost no kernel; all if each lost some.

    Args:
        launches: of kernels, in the trace.
    """
    lossy = np.flatnonzero(steps.lost)
    if not len(lossy):
        return steps, []
    first, last = np.append(-1, lossy) + 1, np.append(lossy, len(steps.number))
    longest = len(first) - 1 - int(np.argmax((last - first)[::-1]))
    judged = steps.number[first[longest] : last[longest]]
    values: dict[str, Any] = {"launches": int(np.sum(steps.lost)), "of": launches}
    if not judged:
        return steps, [Observation("kernels_lost", values, "all")]
    values |= {"lossy": len(lossy), "steps": len(steps.number), "judged": judged}
    found = Observation("kernels_lost", values, "some")
    return _part(steps, int(first[longest]), int(last[longest])), [found]


def _bounds(host_start_ns: Ints, last_host_end_ns: int, events: Events, device: Device, device_step: Ints) -> Ints:
    """Return b_0 … b_last and end; see the formulas of metrics.md section 3."""
    count = len(host_start_ns)
    known = device_step >= 0
    first, on_any = (np.full(count, np.iinfo(np.int64).max) for _ in range(2))
    np.minimum.at(on_any, device_step[known], events.start_ns[device.row[known]])
    main = known & _on_main_stream(events, device)
    np.minimum.at(first, device_step[main], events.start_ns[device.row[main]])
    first = np.where(np.bincount(device_step[main], minlength=count) > 0, first, on_any)
    last = np.full(count, _NEVER)
    np.maximum.at(last, device_step[known], events.end_ns[device.row[known]])
    last = np.maximum.accumulate(last)
    busy = np.bincount(device_step[known], minlength=count) > 0
    # The device leaves the previous step when its last work ends or, if that overlaps, when this step's starts, but for
    # what another stream prefetches meanwhile.
    before_ns = events.end_ns[device.row[device_step == BEFORE_THE_FIRST]].max(initial=_NEVER)
    left = np.where(busy, np.minimum(np.append(before_ns, last[:-1]), first), _NEVER)
    starts = np.maximum.accumulate(np.maximum(host_start_ns, left))
    # A last step that is cut off before its window starts has an empty window, not a negative one.
    return np.append(starts, max(last_host_end_ns, int(last[-1]), int(starts[-1])))


def _on_main_stream(events: Events, device: Device) -> NDArray[np.bool_]:
    """Return which device activities are on the stream of their device that computes for longest, shape (d,)."""
    stream, computes = events.thread[device.row], device.is_compute
    time_ns = np.where(computes, events.end_ns[device.row] - events.start_ns[device.row], 0)
    of_stream_ns = np.bincount(stream, time_ns, minlength=len(events.threads))
    main: dict[Id, int] = {}
    for number in np.flatnonzero(of_stream_ns).tolist():
        pid = events.threads[number][0] if events.threads else 0
        main[pid] = max(main.get(pid, number), number, key=lambda one: of_stream_ns[one])
    return np.isin(stream, [*main.values()])


def _whole_trace(events: Events, device: Device, pauses: Pauses, lost: int) -> Steps | None:
    rows = np.concatenate([events.rows(EventKind.OPERATOR), device.row])
    if not len(rows):
        return None
    bounds = np.array([events.start_ns[rows].min(), events.end_ns[rows].max()], np.int64)
    return Steps(
        number=[None],
        host_start_ns=np.full(1, _NEVER),
        bounds=bounds,
        device_step=np.where(pauses.at(device.launched_ns), IN_A_PAUSE, 0),
        source="trace",
        pauses=pauses,
        named=pauses,
        lost=np.full(1, lost),
    )


class TraceSteps(NamedTuple):
    """The steps of one trace, and what tells them."""

    trace: RankTrace
    """The trace, without what cannot be true."""
    names: Names
    device: Device
    steps: Steps | None
    """None if the trace contains neither steps nor work."""
    findings: list[Observation]
    """What was changed or left out because it cannot be true."""


def find_trace_steps(
    trace: RankTrace, step_marker: str | None = None, kernel_rules: Sequence[KernelRule] = (), most: int | None = None
) -> TraceSteps:
    """Return the steps of a trace, without one that its run did not complete.

    Args:
        step_marker: a regular expression for the names of the annotations that mark steps, or None.
        kernel_rules: rules for the names of kernels, which come before perfkit's own.
        most: number of steps at most, the first ones; None for all.
    """
    trace = check_host(trace)
    work = check_work(merge_polls(trace.events), trace.recorded_until_ns)
    if work.events is not trace.events:
        trace = replace(trace, events=work.events)
    names = classify_names(trace.events, kernel_rules)
    device = find_device(work, names)
    pauses = find_pauses(trace, device, lambda: training_thread(work.events, step_marker))
    own = trace.header.perfkit
    steps = find_steps(trace.events, device, step_marker, own.steps if own else None, most, pauses, work.lost_ns)
    if steps is None:
        return TraceSteps(trace, names, device, None, work.findings)
    device = tell_apart(trace.events, device, steps.device_step >= 0)
    steps, lost = _whole(steps, work.launches)
    return TraceSteps(trace, names, device, steps, [*work.findings, *lost])
