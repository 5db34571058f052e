"""Findings about one trace: damage of the file, its steps, and what the analysis could not tell."""

from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from perfkit.base.step_numbers import RESTART
from perfkit.engine.kinds.classify import Device
from perfkit.engine.kinds.possible_communication import possible_communication
from perfkit.engine.kinds.unknown_origin import lost_device, unknown_origins
from perfkit.engine.steps.windows import BEFORE_THE_FIRST, Steps
from perfkit.records.common import Observation
from perfkit.trace.events import EventKind, Events, RankTrace

if TYPE_CHECKING:
    from perfkit.engine.trace_context import TraceContext

_HOUR_NS: Final = 3600 * 10**9
_MOST_LISTED: Final = 5


def trace_findings(trace: "TraceContext") -> list[Observation]:
    """Return the findings about a trace's file, device, steps and kernels."""
    found = [
        *damage_findings(trace.trace),
        *([] if trace.has_device else lost_device(trace.trace)),
        *_step_findings(trace.steps, trace.device, trace.step_marker),
        *unknown_origins(trace.events, trace.device, trace.activity, trace.steps),
        *possible_communication(trace.events, trace.names, trace.device, trace.header.world_size),
        *trace.impossible,
    ]
    if trace.unmatched_marker is not None:
        has_functions = bool(trace.trace.counts.get(EventKind.PYTHON))
        found.append(Observation("no_marked_loading", {"marker": trace.unmatched_marker, "functions": has_functions}))
    if operators := trace.unsized:
        values = {"unmatched": len(operators), "of": len(trace.collectives.start), "operators": sorted(set(operators))}
        found.append(Observation("collective_sizes_unmatched", values))
    return found


def damage_findings(trace: RankTrace) -> list[Observation]:
    """Return what is damaged, was repaired or is unusual in the file."""
    findings = [
        Observation(
            "skipped_events" if repair.skips_events else "repaired_events",
            {"count": count, "noun": repair.noun, "what": repair.what},
        )
        for repair, count in trace.repaired.items()
    ]
    findings += [Observation("damaged_trace", {"damage": damage}) for damage in trace.damage]
    findings += [Observation("damaged_header", {"damage": damage}) for damage in trace.header_damage]
    if trace.unknown:
        listed = sorted(trace.unknown.items())[:_MOST_LISTED]
        count, more = sum(trace.unknown.values()), len(trace.unknown) - len(listed)
        findings.append(Observation("unknown_events", {"count": count, "categories": listed, "more": more}))
    if (gap_ns := _longest_gap_ns(trace.events)) > _HOUR_NS:
        findings.append(Observation("timestamp_gap", {"gap_ns": gap_ns}))
    if not trace.is_light and not trace.counts.get(EventKind.OPERATOR) and trace.counts.get(EventKind.KERNEL):
        findings.append(Observation("no_host_operators"))
    return findings


def _longest_gap_ns(events: Events) -> int:
    """Return the longest time without any event, or within one device event."""
    if not len(events.kind) or int(events.end_ns.max()) - int(events.start_ns.min()) < _HOUR_NS:
        return 0
    order = np.argsort(events.start_ns, kind="stable")
    gap_ns = events.start_ns[order][1:] - np.maximum.accumulate(events.end_ns[order])[:-1]
    on_device = events.rows(EventKind.KERNEL, EventKind.COPY)
    longest_ns = (events.end_ns[on_device] - events.start_ns[on_device]).max(initial=0)
    return int(max(gap_ns.max(initial=0), longest_ns))


def _step_findings(steps: Steps, device: Device, marker: str | None) -> list[Observation]:
    findings = []
    if steps.source == "device":
        findings.append(Observation("steps_of_device"))
    elif steps.source != "host":
        findings.append(Observation("no_steps", {"marker": marker, "source": steps.source}))
    between_ns = steps.between_ns
    between = between_ns / max(1, int(steps.bounds[-1] - steps.bounds[0]))
    if round(between, 2):  # less would be printed as 0 %
        findings.append(Observation("time_between_steps", {"ns": between_ns, "share": between}))
    findings += _steps_cut(steps)
    if restarts := (steps.number[-1] or 0) // RESTART:
        findings.append(Observation("repeated_steps", {"restarts": restarts}))
    numbers = [number for number in steps.number if number is not None] if marker is None else []
    # torch's profiler numbers the steps of a recording in succession.
    missing = sum(b - a - 1 for a, b in pairwise(numbers) if a // RESTART == b // RESTART)
    if missing:
        findings.append(Observation("steps_missing", {"missing": missing}))
    idle = int((~np.isin(np.arange(len(steps.number)), steps.device_step)).sum()) if len(device.row) else 0
    if idle:
        findings.append(Observation("steps_without_device_work", {"idle": idle, "steps": len(steps.number)}))
    before = int((steps.device_step == BEFORE_THE_FIRST).sum())
    if before:
        findings.append(Observation("work_before_steps", {"activities": before}))
    return findings


def _steps_cut(steps: Steps) -> list[Observation]:
    """Return a finding if only the first steps were analysed, with the distribution of all of them."""
    if steps.all_numbers is None or steps.all_wall_ns is None:
        return []
    wall_ns, longest = steps.all_wall_ns, int(steps.all_wall_ns.argmax())
    values = {
        "steps": len(wall_ns),
        "analysed": len(steps.number),
        "quantiles_ns": np.percentile(wall_ns, [0, 5, 50, 95, 100]).tolist(),
        "longest": steps.all_numbers[longest],
    }
    return [Observation("steps_cut", values)]
