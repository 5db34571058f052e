"""How far the host launches ahead of the device (metrics.md section 19)."""

import numpy as np

from perfkit.engine.trace_context import TraceContext
from perfkit.records.per_rank.idle import LaunchStats


def tabulate_launches(trace: TraceContext) -> LaunchStats | None:
    """Return the launches of the steps' kernels and copies; None if none was recorded."""
    events, device, steps = trace.events, trace.device, trace.steps
    launched = np.flatnonzero(device.launch_row >= 0)
    row, call = device.row[launched], device.launch_row[launched]
    begin = events.start_ns[call]
    # Before a launch at place k, k others were launched, of which those that ended by then are done.
    place = np.argsort(np.argsort(begin, kind="stable"), kind="stable")
    ended = np.searchsorted(np.sort(events.end_ns[row]), begin, side="right")
    ahead = np.maximum(place - ended, 0)
    counts = steps.device_step[launched] >= 0
    if not counts.any():
        return None
    row, call, ahead = row[counts], call[counts], ahead[counts]
    own_ns = events.end_ns[row] - events.start_ns[row]
    call_ns = events.end_ns[call] - events.start_ns[call]
    delay_ns = np.maximum(events.start_ns[row] - events.end_ns[call], 0)
    shorter = own_ns < call_ns
    return LaunchStats(
        count=len(row),
        call_ns=int(call_ns.sum()),
        call_median_ns=int(np.median(call_ns)),
        kernel_ns=int(own_ns.sum()),
        shorter=int(shorter.sum()),
        shorter_ns=int(own_ns[shorter].sum()),
        delay_ns=int(delay_ns.sum()),
        max_delay_ns=int(delay_ns.max()),
        ahead=int(ahead.sum()),
        max_ahead=int(ahead.max()),
        on_idle_device=int((ahead == 0).sum()),
    )
