"""The work of a trace, piece by piece, with what it weighs and where the host issued it (metrics.md section 20)."""

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.breakdown import Activity
from perfkit.engine.communication.collectives import Collectives
from perfkit.engine.kinds.classify import Device
from perfkit.engine.steps.windows import IN_A_PAUSE, Steps
from perfkit.trace.events import EventKind, Events
from perfkit.trace.intervals import Ints, Union, measure, merge, split_overlap_to_earliest

if TYPE_CHECKING:
    from perfkit.engine.trace_context import TraceContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """Kernels and copies, or operators without a device, and issues of collectives; columns of shape (w,)."""

    row: Ints
    """Row in `Events` of the activity or operator; -1 for issues of collectives, which only weigh bytes."""
    thread: Ints
    """Host thread that issued it; -1 if unknown."""
    instant: Ints
    """When it did."""
    step: Ints
    """Step of the host, negative outside of the steps."""
    count: Ints
    """1 for activities and operators in the steps, else 0."""
    total_ns: Ints
    exposed_ns: Ints
    communication_bytes: Ints


def find_items(trace: "TraceContext") -> Items:
    """Return the work of the steps; sums over it equal those of operators, breakdown and collectives."""
    events, activity, steps = trace.events, trace.activity, trace.steps
    work = _on_device(events, trace.device, activity, steps) if trace.has_device else _on_host(events, activity, steps)
    issues = _issues(events, trace.collectives)
    columns = {field.name: (getattr(work, field.name), getattr(issues, field.name)) for field in fields(Items)}
    joined = Items(**{name: np.concatenate(parts) for name, parts in columns.items()})
    weighs = joined.count + joined.total_ns + joined.exposed_ns + joined.communication_bytes > 0
    return Items(**{field.name: getattr(joined, field.name)[weighs] for field in fields(Items)})


def _on_device(events: Events, device: Device, activity: Activity, steps: Steps) -> Items:
    rows, launch = device.row, device.launch_row
    inside = steps.device_step >= 0
    nothing = np.zeros(len(rows), np.int64)
    return Items(
        row=rows,
        thread=np.where(launch >= 0, events.thread[launch], -1).astype(np.int64),
        instant=device.launched_ns,
        step=steps.device_step,
        count=inside.astype(np.int64),
        total_ns=np.where(inside, events.end_ns[rows] - events.start_ns[rows], 0),
        exposed_ns=_exposed(events, device, activity, steps),
        communication_bytes=nothing,
    )


def _exposed(events: Events, device: Device, activity: Activity, steps: Steps) -> Ints:
    """Return the exclusive share of each activity (metrics.md section 4); of several at once, the earliest's."""
    bounds, pauses = steps.bounds[[0, -1]], steps.pauses.spans

    def outside(mask: NDArray[np.bool_], before: Union) -> Ints:
        rows = device.row[mask]
        own = split_overlap_to_earliest(events.start_ns[rows], events.end_ns[rows])
        first, last = np.clip(own.start, *bounds), np.clip(own.end, *bounds)
        return np.asarray(last - first - measure(before, first, last))

    exposed = np.zeros(len(device.row), np.int64)
    counts = steps.device_step != IN_A_PAUSE
    communicates = device.is_communication & ~device.is_copy & counts
    computed = merge(pauses, activity.compute)
    exposed[communicates] = len(activity.apart) * outside(communicates, computed)
    for number, active in enumerate(activity.apart):
        on = counts & (device.number == number)
        before = merge(pauses, active.compute)
        for mask, covered in (
            (device.is_compute & on, pauses),
            (device.is_copy & on, merge(before, active.communication)),
        ):
            exposed[mask] = outside(mask, covered)
        if activity.devices:  # that only another device computes
            own = communicates & on
            exposed[own] += outside(own, before) - outside(own, computed)
    return activity.mean(exposed)


def _on_host(events: Events, activity: Activity, steps: Steps) -> Items:
    rows = events.rows(EventKind.OPERATOR)
    rows = rows[steps.within(events.start_ns[rows])]
    nothing = np.zeros(len(rows), np.int64)
    return Items(
        row=rows,
        thread=events.thread[rows].astype(np.int64),
        instant=events.start_ns[rows],
        step=steps.of(events.start_ns[rows]),
        count=nothing + 1,
        total_ns=activity.self_ns[rows],
        exposed_ns=nothing,
        communication_bytes=nothing,
    )


def _issues(events: Events, collectives: Collectives) -> Items:
    sizes = np.array([kind.bytes or 0 for kind in collectives.kinds] or [0], np.int64)
    issue, nothing = collectives.issue_row, np.zeros(len(collectives.kind), np.int64)
    known = issue >= 0
    return Items(
        row=nothing - 1,
        thread=np.where(known, events.thread[issue], -1).astype(np.int64),
        instant=np.where(known, events.start_ns[issue], collectives.issued),
        step=collectives.step,
        count=nothing,
        total_ns=nothing,
        exposed_ns=nothing,
        communication_bytes=sizes[collectives.kind],
    )
