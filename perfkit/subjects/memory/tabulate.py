"""Memory allocated on a rank's devices in each step, if it was recorded (`profile_memory`).

The host allocates memory ahead of the device, so a step here lasts from its start on the host to the start of the next.
"""

from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from msgspec.structs import replace

from perfkit.engine.breakdown import Activity
from perfkit.engine.steps.annotations import annotation_rows
from perfkit.engine.trace_context import TraceContext
from perfkit.records.common import CATEGORIES, Category
from perfkit.records.per_rank.memory import MemoryBytes
from perfkit.records.rank import MemoryCurve, MemoryPeak, MemoryUse
from perfkit.subjects.memory.blocks import Ledger, as_bytes, find_blocks, find_known, of_device, open_ledger
from perfkit.subjects.memory.categories import HostActivity, categorize, find_host_activity
from perfkit.subjects.memory.holders import tabulate_peak
from perfkit.trace.events import HOST, AllocatorTimeline, Events, RankTrace, device_name
from perfkit.trace.intervals import Ints, innermost, measure

_BUCKETS: Final = 64
"""Buckets of a curve; each keeps at most its lowest, highest and last level."""


class _Levels(NamedTuple):
    """Allocated memory of one device; `bytes[i]` is the level after the first i records, -1 if unknown."""

    time_ns: Ints
    bytes: Ints


class _Windows(NamedTuple):
    """Windows of the steps on the host."""

    start_ns: Ints
    end_ns: Ints


def tabulate_memory(context: TraceContext) -> list[MemoryUse]:
    """Return the memory use of each device, the host first; devices without known levels are skipped."""
    trace, steps = context.trace, context.steps
    if not trace.memory:
        return []
    start_ns = np.maximum(steps.host_start_ns, steps.bounds[0])
    windows = _Windows(start_ns, np.append(start_ns[1:], max(steps.bounds[-1], start_ns[-1])))
    phases = annotation_rows(trace.events, context.names, steps, context.step_marker)
    host = find_host_activity(trace.events, context.names, steps, context.passes)
    uses = []
    for (kind, number), timeline in trace.memory.items():
        if peaks := _peaks(timeline, steps.number, windows):
            order, (peak, at) = max(peaks.items(), key=lambda pair: pair[1][0].allocated_bytes)
            instant = start_ns[order : order + 1] + peak.at_ns
            places, curve = _curve(_levels(timeline), peak.step, int(start_ns[order]), int(windows.end_ns[order]))
            use = MemoryUse(
                device=device_name(kind, number),
                limit_bytes=None if kind == HOST else trace.header.device_bytes.get(max(number, 0)),
                steps=[peak for peak, _ in peaks.values()],
                peak=peak,
                phase=_phase(trace.events, phases, instant),
                category=_category(context.activity, instant),
                curve=curve,
            )
            if (ledger := _ledger(trace, (kind, number), host)) is not None:
                of_steps = _with_unknown(ledger, [*peaks.values()])
                use = replace(use, steps=of_steps, peak=of_steps[[*peaks].index(order)])
                use = _with_categories(use, trace, ledger, host, phases, at, places)
            uses.append(use)
    return uses


def _ledger(trace: RankTrace, device: tuple[int, int], host: HostActivity) -> Ledger | None:
    """Return the memory of a device by category; None if its records do not have what that needs."""
    timeline = trace.memory[device]
    blocks = find_blocks(timeline)
    if blocks is None:
        return None
    own = trace.header.perfkit
    known = find_known(blocks, of_device(own.tensors if own else None, *device))
    return open_ledger(timeline, device[0], blocks, categorize(blocks, known, host), known)


def _with_unknown(ledger: Ledger, peaks: list[tuple[MemoryPeak, int]]) -> list[MemoryPeak]:
    unknown = ledger.levels(np.array([at for _, at in peaks]))["unknown"]
    return [
        replace(peak, unknown_bytes=size, unseen_release_bytes=ledger.unseen_releases(at))
        for (peak, at), size in zip(peaks, unknown, strict=True)
    ]


def _with_categories(
    use: MemoryUse, trace: RankTrace, ledger: Ledger, host: HostActivity, phases: Ints, at: int, places: Ints
) -> MemoryUse:
    at_peak = {name: level for name, (level,) in ledger.levels(np.array([at])).items()}
    in_step = ledger.levels(np.arange(places[0], places[-1] + 1))
    curves = {name: levels for name, levels in ledger.levels(places).items() if any(levels)}
    holders, largest = tabulate_peak(trace, ledger, host.passes, phases, at)
    return replace(
        use,
        curve=replace(use.curve, categories=curves),
        at_peak=MemoryBytes(**at_peak),
        largest=MemoryBytes(**{name: max(levels) for name, levels in in_step.items()}),
        holders=holders,
        blocks=largest,
        tensors_noted=ledger.tensors_noted,
        not_counted=as_bytes(ledger.not_counted) if ledger.not_counted else None,
    )


def _levels(timeline: AllocatorTimeline) -> _Levels:
    return _Levels(timeline.time_ns, np.concatenate(([timeline.before_bytes], timeline.allocated_bytes)))


def _peaks(
    timeline: AllocatorTimeline, numbers: list[int | None], windows: _Windows
) -> dict[int, tuple[MemoryPeak, int]]:
    """Return the peak of each step and the number of records until then, by the step's index.

    Steps before the first known level are skipped.

    A step starts with the level that the previous step left.
    """
    allocated = _levels(timeline).bytes
    reserved = np.concatenate(([-1], timeline.reserved_bytes))
    first = np.searchsorted(timeline.time_ns, windows.start_ns, side="left").tolist()
    last = np.searchsorted(timeline.time_ns, windows.end_ns, side="left").tolist()
    peaks = {}
    for place, (begin, end) in enumerate(zip(first, last, strict=True)):
        end = max(begin, end)
        at = begin + int(allocated[begin : end + 1].argmax())
        if allocated[at] < 0:
            continue
        most_reserved = int(reserved[begin : end + 1].max())
        peak = MemoryPeak(
            step=numbers[place],
            allocated_bytes=int(allocated[at]),
            reserved_bytes=most_reserved if most_reserved > 0 else None,
            at_ns=int(timeline.time_ns[at - 1] - windows.start_ns[place]) if at > begin else 0,
        )
        peaks[place] = peak, at
    return peaks


def _phase(events: Events, rows: Ints, instant_ns: Ints) -> str | None:
    """Return the innermost annotation of the program at an instant."""
    (found,) = innermost(events.start_ns[rows], events.end_ns[rows], instant_ns).tolist()
    return events.names[events.name[rows[found]]] if found >= 0 else None


def _category(activity: Activity, instant_ns: Ints) -> Category:
    """Return the category of an instant (metrics.md section 4)."""
    unions = (activity.compute, activity.communication, activity.memcpy, activity.data_loading)
    covers = [bool(measure(spans, instant_ns, instant_ns + 1)[0]) for spans in unions]
    return CATEGORIES[covers.index(True)] if True in covers else CATEGORIES[-1]


def _curve(levels: _Levels, step: int | None, start_ns: int, end_ns: int) -> tuple[Ints, MemoryCurve]:
    """Thin out the levels within one step: each bucket keeps its extremes and its last level.

    Returns:
        The number of records until each level that is kept, and the curve.
    """
    edges = [start_ns + (end_ns - start_ns) * k // _BUCKETS for k in range(_BUCKETS + 1)]
    cuts = np.searchsorted(levels.time_ns, edges, side="left").tolist()
    kept: set[int] = set()
    for begin, end in pairwise(cuts):
        if end > begin:
            within = levels.bytes[begin + 1 : end + 1]
            kept |= {begin + 1 + int(within.argmin()), begin + 1 + int(within.argmax()), end}
    places = sorted(kept)
    at_ns = [0, *(int(levels.time_ns[place - 1]) - start_ns for place in places), end_ns - start_ns]
    around = [cuts[0], *places, places[-1] if places else cuts[0]]
    known = [(at, place, int(levels.bytes[place])) for at, place in zip(at_ns, around, strict=True)]
    shown = [row for row in known if row[2] >= 0]
    curve = MemoryCurve(step=step, at_ns=[at for at, _, _ in shown], allocated_bytes=[level for *_, level in shown])
    return np.array([place for _, place, _ in shown], np.int64), curve
