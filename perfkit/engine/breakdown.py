"""Exclusive breakdown of each step's time by category (metrics.md section 4), in exact integers.

Every category is a union of spans. An instant counts for the first category that is active at it, so the exclusive time
of a category is what it adds to the union of those before it, and the five add up to the window by construction. Of a
process with several devices, each time is the mean over them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.communication.blocking_waits import CollectiveSpans, waits_until
from perfkit.engine.kinds.classify import (
    Device,
    Names,
    data_loading_rows,
    in_compilation,
    nested_on_thread,
    rows_by_key,
)
from perfkit.engine.steps.windows import IN_A_PAUSE, Steps
from perfkit.records.per_rank.idle import IdleNs
from perfkit.records.rank import DeviceTimes, ExposedNs, Loads, StepBreakdown, TotalNs
from perfkit.trace.events import EventKind, Events
from perfkit.trace.intervals import (
    EMPTY,
    Ints,
    Segments,
    SideBySide,
    Union,
    difference,
    disjoint_groups,
    innermost_segments,
    measure,
    merge,
    outermost,
    union,
)

_EXPOSED: Final = ExposedNs.__struct_fields__
_TOTAL: Final = TotalNs.__struct_fields__
_NEVER_NS: Final = np.iinfo(np.int64).max
_OPERATORS_AT_ONCE: Final = 1 << 16
"""Bounds the memory that finding the innermost operators takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """Spans in which each category is active, whatever else runs."""

    compute: Union
    communication: Union
    memcpy: Union
    data_loading: Union
    self_ns: Ints
    """Self time of each operator within the steps, on a CPU-only trace; shape (events,).

    Empty if there is device activity.
    """
    devices: tuple["Activity", ...] = ()
    """Of each device, in the order of `Device.numbers`; empty where there is one."""

    @property
    def apart(self) -> tuple["Activity", ...]:
        """Of each device, also where there is one."""
        return self.devices or (self,)

    def mean(self, summed_ns: Ints) -> Ints:
        """Return times that were summed over devices as means over them; they add up to that of their sum."""
        upto = np.cumsum(summed_ns) // len(self.apart)
        return np.diff(upto, prepend=0) if self.devices else summed_ns


class OperatorWaits(NamedTuple):
    """When a thread waits within operators."""

    thread: int
    spans: Union

    def on(self, thread: int) -> Union:
        """Return when a thread does; other threads than this one are not known to."""
        return self.spans if thread == self.thread else EMPTY


NO_WAITS: Final = OperatorWaits(-1, EMPTY)


def find_activity(events: Events, names: Names, device: Device, steps: Steps, waits: OperatorWaits) -> Activity:
    """Return the spans of each category, from the device if it has activity, otherwise from the host.

    Args:
        waits: when the main thread waits within operators, on a CPU-only trace.
    """
    loading = data_loading_rows(events, names)
    data_loading = union(events.start_ns[loading], events.end_ns[loading])
    if len(device.row):
        activity = _device_activity(events, device, data_loading, steps)
    else:
        activity = _host_activity(events, names, loading, data_loading, steps, waits)
    return _without_pauses(activity, steps.pauses.spans) if steps.pauses.found else activity


def _without_pauses(activity: Activity, pauses: Union) -> Activity:
    trains: dict[str, Any] = {name: difference(getattr(activity, name), pauses) for name in _TOTAL}
    return replace(activity, **trains, devices=tuple(_without_pauses(one, pauses) for one in activity.devices))


def _device_activity(events: Events, device: Device, data_loading: Union, steps: Steps) -> Activity:
    def active(among: NDArray[np.bool_]) -> Activity:
        def spans(mask: NDArray[np.bool_]) -> Union:
            rows = device.row[mask & among]
            return union(events.start_ns[rows], events.end_ns[rows])

        return Activity(
            compute=spans(device.is_compute),
            communication=spans(device.is_communication),
            memcpy=spans(device.is_copy),
            data_loading=data_loading,
            self_ns=np.zeros(0, np.int64),
        )

    trains = steps.device_step != IN_A_PAUSE
    together = active(trains)
    apart = [active(trains & (device.number == number)) for number in range(len(device.numbers))]
    # Where no device computes, and one communicates, the process waits for other ranks.
    waiting = difference(together.communication, together.compute) if apart else EMPTY
    return replace(
        together,
        devices=tuple(replace(one, communication=merge(one.communication, waiting)) for one in apart),
    )


def _host_activity(
    events: Events, names: Names, loading: Ints, data_loading: Union, steps: Steps, waits: OperatorWaits
) -> Activity:
    """Assign each thread's time to its innermost operators, in groups because a trace may have millions."""
    annotated = events.rows(EventKind.ANNOTATION, named=names.whole_span_annotation)
    compute, communication = [EMPTY], [union(events.start_ns[annotated], events.end_ns[annotated])]
    by_end = annotated[np.argsort(events.end_ns[annotated], kind="stable")]
    spans = CollectiveSpans(events.start_ns[by_end], events.end_ns[by_end])
    self_ns = np.zeros(len(events.kind), np.int64)
    # Of all threads at once: there may be as many threads as operators.
    operators = events.rows(EventKind.OPERATOR)
    loads, compiles = np.zeros((2, len(events.kind)), np.bool_)
    loads[operators] = nested_on_thread(events, operators, loading)
    compiles[operators] = in_compilation(events, names, operators)
    for rows in _operators_apart(events, waits.thread):
        cut, follows = _segments(events, rows)
        communicating = names.communication_operator[events.name[rows]][cut.owner]
        owner = rows[cut.owner]
        start = waits_until(cut, follows, communicating, events.start_ns[owner], events.end_ns[owner], spans)
        within = [np.clip(edge, *steps.bounds[[0, -1]]) for edge in (start, cut.end)]
        waiting = waits.on(int(events.thread[rows[0]]))
        np.add.at(self_ns, owner, within[1] - within[0] - steps.pauses.time_in(*within) - measure(waiting, *within))
        # Every operator within a data-loading span counts as data loading.
        working = ~loads[owner]
        computing = working & ~communicating & ~compiles[owner]
        communicating &= working
        compute.append(difference(union(start[computing], cut.end[computing]), waiting))
        communication.append(union(start[communicating], cut.end[communicating]))
        # The backend may begin the collective only later.
        later = working & (start > cut.start)
        communication.append(union(cut.start[later], start[later]))
    return Activity(
        compute=merge(*compute),
        communication=merge(*communication),
        memcpy=EMPTY,
        data_loading=data_loading,
        self_ns=self_ns,
    )


def _operators_apart(events: Events, alone: int) -> Iterator[Ints]:
    """Yield the rows of host operators in groups of whole threads, of a long one in parts that do not overlap.

    The thread `alone` shares its groups with no other.
    """
    held: list[Ints] = []
    count = 0
    for thread, on_thread in rows_by_key(events.thread, events.rows(EventKind.OPERATOR)).items():
        if thread == alone or len(on_thread) > _OPERATORS_AT_ONCE:
            for group in disjoint_groups(events.start_ns[on_thread], events.end_ns[on_thread]):
                yield on_thread[group]
            continue
        held.append(on_thread)
        count += len(on_thread)
        if count > _OPERATORS_AT_ONCE:
            yield np.concatenate(held)
            held, count = [], 0
    if held:
        yield np.concatenate(held)


def _segments(events: Events, rows: Ints) -> tuple[Segments, NDArray[np.bool_]]:
    """Return the segments of each thread by their innermost row, thread by thread, and which follow the one before."""
    thread = events.thread[rows].astype(np.int64)
    axis = SideBySide(thread, events.start_ns[rows], events.end_ns[rows])
    cut = innermost_segments(axis.place(thread, events.start_ns[rows]), axis.place(thread, events.end_ns[rows]))
    on = thread[cut.owner]
    segments = Segments(axis.instant(on, cut.start), axis.instant(on, cut.end), cut.owner)
    return segments, cut.end[:-1] == cut.start[1:]


def break_down(
    events: Events, loads: Ints, activity: Activity, steps: Steps, idle: Sequence[IdleNs]
) -> list[StepBreakdown]:
    """Return one record per step.

    `exposed_ns` sums exactly to `wall_ns`, and `idle`, one per step, to `overhead`; `loads` are from `load_rows`.
    """
    start, end = steps.bounds[:-1], steps.bounds[1:]
    devices = [[measure(spans, start, end) for spans in _by_priority(one)] for one in activity.apart]
    total = -(-np.sum(devices, axis=0) // len(devices))  # rounded up: exposed time is part of it
    paused_ns = steps.paused_ns
    exposed = measure_exposed(activity, start, end, paused_ns)
    columns = zip(
        steps.number,
        start.tolist(),
        (end - start - paused_ns).tolist(),
        paused_ns.tolist(),
        exposed.tolist(),
        zip(*(column.tolist() for column in total), strict=True),
        _loads(events, loads, steps),
        idle,
        strict=True,
    )
    return [
        StepBreakdown(
            step=number,
            start_ns=start_ns,
            wall_ns=wall_ns,
            paused_ns=in_pauses_ns,
            exposed_ns=ExposedNs(**dict(zip(_EXPOSED, exposed_ns, strict=True))),
            total_ns=TotalNs(**dict(zip(_TOTAL, total_ns, strict=True))),
            loads=of_step,
            idle_ns=idle_ns,
        )
        for number, start_ns, wall_ns, in_pauses_ns, exposed_ns, total_ns, of_step, idle_ns in columns
    ]


def _by_priority(activity: Activity) -> tuple[Union, ...]:
    return activity.compute, activity.communication, activity.memcpy, activity.data_loading


def measure_exposed(activity: Activity, start: Ints, end: Ints, paused_ns: Ints | int = 0) -> Ints:
    """Return the exclusive time of each category in each window; shape (windows, categories), in their order.

    The categories of a window add up to its length without `paused_ns`, the pauses in it. Of several devices it is the
    mean.
    """
    devices = [[measure(spans, start, end) for spans in accumulate(_by_priority(one), merge)] for one in activity.apart]
    upto = np.sum(devices, axis=0) // len(devices)
    return np.diff(np.vstack([np.zeros_like(start), *upto, end - start - paused_ns]), axis=0).T


def idle_beside(activity: Activity, steps: Steps) -> Ints:
    """Return how long in each step a device is idle while another one works, in the mean over devices."""
    start, end = steps.bounds[:-1], steps.bounds[1:]
    mean, all_idle = (measure_exposed(one, start, end)[:, -1] for one in (activity, replace(activity, devices=())))
    return np.asarray(mean - all_idle)


def tabulate_devices(device: Device, activity: Activity, steps: Steps) -> list[DeviceTimes]:
    """Return each device's time in the steps, where there are several."""
    start, end = steps.bounds[:-1], steps.bounds[1:]
    all_idle_ns = int(measure_exposed(replace(activity, devices=()), start, end, steps.paused_ns)[:, -1].sum())
    exposed_ns = [measure_exposed(one, start, end, steps.paused_ns).sum(axis=0).tolist() for one in activity.devices]
    return [
        DeviceTimes(
            device=number,
            exposed_ns=ExposedNs(**dict(zip(_EXPOSED, own_ns, strict=True))),
            beside_ns=own_ns[-1] - all_idle_ns,
        )
        for number, own_ns in zip(device.numbers, exposed_ns, strict=True)
    ]


def load_rows(events: Events, names: Names, steps: Steps, without_batch: Sequence[tuple[int, int]]) -> Ints:
    """Return the outermost data-loading annotations that bring a batch, outside of pauses, in order of time.

    perfkit annotates the wait for a batch around the DataLoader's own annotation: two spans for one load.

    Where a loader had no batch left, neither that nor starting it again is a load: of an annotation around both, what
    counts is the DataLoader's own within.

    Args:
        without_batch: when that was (`PerfkitHeader.without_batch`).
    """
    rows = data_loading_rows(events, names)
    rows = rows[~_meets(events, rows, without_batch)]
    rows = np.concatenate(
        [rows[:0]]
        + [
            on_thread[outermost(events.start_ns[on_thread], events.end_ns[on_thread])]
            for on_thread in rows_by_key(events.thread, rows).values()
        ]
    )
    rows = rows[~steps.pauses.at(events.start_ns[rows])]
    return rows[np.argsort(events.start_ns[rows], kind="stable")]


def _meets(events: Events, rows: Ints, times: Sequence[tuple[int, int]]) -> NDArray[np.bool_]:
    """Return which spans overlap times."""
    joined = union(*np.array(times, np.int64).reshape(-1, 2).T)
    place = np.searchsorted(joined.end, events.start_ns[rows], side="right")
    return np.asarray(np.append(joined.start, _NEVER_NS)[place] < events.end_ns[rows])


def _loads(events: Events, rows: Ints, steps: Steps) -> list[Loads]:
    """Count the loads by the host step in which they start."""
    duration = events.end_ns[rows] - events.start_ns[rows]
    step = steps.of(events.start_ns[rows])
    # Sorted by start, the loads of a step are contiguous; those after the last window belong to no step.
    cuts = np.searchsorted(step, np.arange(len(steps.number) + 1))
    end = np.searchsorted(events.start_ns[rows], steps.bounds[-1]) if steps.from_annotations else len(rows)
    cuts = np.minimum(cuts, end)
    none = _load(duration[:0])  # one record for all, because a trace may have thousands of steps
    return [_load(duration[first:last]) if first < last else none for first, last in pairwise(cuts.tolist())]


def _load(duration_ns: Ints) -> Loads:
    return Loads(
        count=len(duration_ns),
        sum_ns=int(duration_ns.sum()),
        max_ns=int(duration_ns.max()) if len(duration_ns) else 0,
        spans_ns=duration_ns.tolist(),
    )
