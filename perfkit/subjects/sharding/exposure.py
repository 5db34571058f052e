"""Why all-gathers of sharded parameters are exposed: an exact split of their exposed time (metrics.md section 12).

The compute of each pass is that on the timeline on which collectives run: the device's, or the host's.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.breakdown import Activity
from perfkit.engine.communication.collectives import Collectives
from perfkit.engine.kinds.classify import Device
from perfkit.engine.steps.passes import Passes
from perfkit.trace.events import Events
from perfkit.trace.intervals import Coverage, Ints


def compute_begins(events: Events, device: Device, activity: Activity, passes: Passes) -> Ints:
    """Return when the compute of each pass begins; the largest int64 if it has none.

    On a device that is the start of the first kernel that was launched in the pass: the device runs behind the host.
    """
    never, compute = np.iinfo(np.int64).max, activity.compute
    begin = np.full(len(passes.begin), never)
    if len(device.row):
        rows, of_pass, _ = _launched_in(device, passes)
        np.minimum.at(begin, of_pass, events.start_ns[rows])
        return begin
    if not len(compute.start):
        return begin
    first = np.minimum(np.searchsorted(compute.end, passes.begin, side="right"), len(compute.start) - 1)
    runs = (compute.start[first] < passes.end) & (compute.end[first] > passes.begin)
    return np.where(runs, np.maximum(compute.start[first], passes.begin), never)


def compute_ends(events: Events, device: Device, activity: Activity, passes: Passes, limit: Ints) -> Ints:
    """Return when the compute ends that each pass issued before `limit`, shape (p,); the smallest int64 without any."""
    never, compute = np.iinfo(np.int64).min, activity.compute
    end = np.full(len(passes.begin), never)
    if len(device.row):
        rows, of_pass, launched = _launched_in(device, passes)
        within = launched < limit[of_pass]
        np.maximum.at(end, of_pass[within], events.end_ns[rows[within]])
        return end
    if not len(compute.start):
        return end
    last = np.searchsorted(compute.start, limit, side="left") - 1
    runs = (last >= 0) & (compute.end[last] > passes.begin)
    return np.where(runs, np.minimum(compute.end[last], limit), never)


def _launched_in(device: Device, passes: Passes) -> tuple[Ints, Ints, Ints]:
    """Return the compute kernels that were launched in a pass: row, index of the pass, and time of the launch."""
    launched = device.launched_ns[device.is_compute]
    of_pass = passes.of(launched)
    within = of_pass >= 0
    return device.row[device.is_compute][within], of_pass[within], launched[within]


def compute_between(compute: Coverage, begin: Ints, end: Ints) -> Ints:
    """Return the compute in each window `[begin, end)`; 0 where it ends before it begins."""
    return np.asarray(np.where(end > begin, compute.until(np.maximum(begin, end)) - compute.until(begin), 0))


class Exposure(NamedTuple):
    """The exposed time of each all-gather, split by cause; columns of shape (g,) that add up to it."""

    late: Ints
    queued: Ints
    held: Ints
    first: Ints
    short: Ints
    synchronous: Ints


def queue_free_from(collectives: Collectives) -> Ints:
    """Return when the queue of each collective has finished everything that started before it; shape (c,).

    A queue is a process group, and also a stream of the device. Without anything before it: the smallest int64.
    """
    by_group = {kind: number for number, kind in enumerate(dict.fromkeys(map(_group, collectives.kinds)))}
    group = np.array([by_group[_group(kind)] for kind in collectives.kinds] or [0], np.int64)[collectives.kind]
    unknown = np.array([kind.group is None for kind in collectives.kinds] or [True], np.bool_)[collectives.kind]
    # A group of unknown name is one of many: only the stream tells what was before.
    group = np.where(unknown, -1 - np.arange(len(group)), group)
    return np.maximum(_latest_end_before(group, collectives), _latest_end_before(collectives.lane, collectives))


def _group(kind: object) -> tuple[object, object]:
    return getattr(kind, "group", None), getattr(kind, "members", None)


def _latest_end_before(queue: Ints, collectives: Collectives) -> Ints:
    """Return the latest end of what started before each collective in its queue."""
    never = np.iinfo(np.int64).min
    order = np.lexsort((collectives.start, queue))
    latest = np.full(len(order), never)
    begins = np.flatnonzero(np.append(True, queue[order][1:] != queue[order][:-1]))
    ends = np.append(begins[1:], len(order))
    several = ends - begins > 1
    for begin, end in zip(begins[several].tolist(), ends[several].tolist(), strict=True):
        latest[begin + 1 : end] = np.maximum.accumulate(collectives.end[order[begin : end - 1]])
    result = np.empty_like(latest)
    result[order] = latest
    return result


def split_exposed(
    collectives: Collectives,
    chosen: Ints,
    begin: Ints,
    compute: Coverage,
    synchronous: NDArray[np.bool_],
) -> Exposure:
    """Split the exposed time of all-gathers by what prevented it from being hidden.

    Args:
        collectives: all collectives of the trace.
        chosen: indices of the all-gathers, shape (g,).
        begin: when the compute of each one's pass begins, shape (g,).
        compute: all compute.
        synchronous: whether the host waited for each where it issued it, shape (g,).
    """
    start, rest = collectives.start[chosen], collectives.exposed[chosen]
    issued = np.minimum(collectives.issued[chosen], start)
    free = np.clip(queue_free_from(collectives)[chosen], begin, np.maximum(begin, start))
    at_once = np.where(synchronous, rest, 0)
    rest = rest - at_once
    windows = ((free, issued), (np.maximum(issued, begin), free), (np.maximum(issued, free), start))
    parts = []
    for window_begin, window_end in windows:
        part = np.minimum(rest, compute_between(compute, window_begin, window_end))
        parts.append(part)
        rest = rest - part
    is_first = compute_between(compute, begin, start) == 0
    nothing = np.zeros_like(rest)
    late, queued, held = parts
    first, short = np.where(is_first, rest, nothing), np.where(is_first, nothing, rest)
    return Exposure(late, queued, held, first, short, at_once)
