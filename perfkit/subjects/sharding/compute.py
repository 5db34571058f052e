"""The compute of each pass on the timeline on which collectives run: the device's, or the host's."""

import numpy as np

from perfkit.engine.breakdown import Activity
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
