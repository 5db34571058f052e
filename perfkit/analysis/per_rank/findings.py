"""Findings about one trace: damage of the file, its steps, and what the analysis could not tell."""

from typing import Final

import numpy as np

from perfkit.analysis.per_rank.breakdown import Activity
from perfkit.analysis.per_rank.classify import Device, Names
from perfkit.analysis.per_rank.lost_device import lost_device
from perfkit.analysis.per_rank.possible_communication import possible_communication
from perfkit.analysis.per_rank.steps import BEFORE_THE_FIRST, Steps
from perfkit.analysis.per_rank.unknown_origin import unknown_origins
from perfkit.schema.common import Finding
from perfkit.trace.events import EventKind, Events, RankTrace
from perfkit.util.formatting import duration

_MESSAGES: Final = frozenset({"send", "recv"})


def trace_findings(
    trace: RankTrace, names: Names, device: Device, activity: Activity, steps: Steps, step_marker: str | None
) -> list[Finding]:
    """Return the findings about a trace's file, device, steps and kernels."""
    return [
        *damage_findings(trace),
        *([] if len(device.row) else lost_device(trace)),
        *_step_findings(steps, device, step_marker),
        *unknown_origins(trace.events, device, activity, steps),
        *possible_communication(trace.events, names, device, trace.header.world_size),
    ]


def sizes_unmatched(operators: list[str], collectives: int) -> list[Finding]:
    """Return a finding for the collectives, by operator, that the run's record of collectives does not match."""
    if not operators:
        return []
    which = sorted(set(operators))
    why = (
        "torch's record of collectives has no sends and receives on the CPU"
        if _MESSAGES.issuperset(which)
        else "the run's record of collectives lacks them (torch keeps the last TORCH_FR_BUFFER_SIZE of them) or does "
        "not match the trace"
    )
    message = (
        f"the message sizes of {len(operators)} of {collectives} collectives ({', '.join(which)}) are unknown: {why}"
    )
    return [Finding(code="collective_sizes_unmatched", severity="info", message=message)]


def damage_findings(trace: RankTrace) -> list[Finding]:
    """Return what is damaged, was repaired or is unusual in the file."""
    findings = [
        Finding(code="skipped_events", severity="warning", message=repair.sentence(count))
        if repair.skips_events
        else Finding(code="repaired_events", severity="warning", message=repair.sentence(count))
        for repair, count in trace.repaired.items()
    ]
    findings.extend(Finding(code="damaged_trace", severity="warning", message=what) for what in trace.damage)
    findings.extend(Finding(code="damaged_header", severity="warning", message=what) for what in trace.header_damage)
    if trace.unknown:
        listed = ", ".join(f"{name!r} ({count})" for name, count in sorted(trace.unknown.items())[:5])
        more = f" and {len(trace.unknown) - 5} more" if len(trace.unknown) > 5 else ""
        message = f"{sum(trace.unknown.values())} events of unknown categories were ignored: {listed}{more}"
        findings.append(Finding(code="unknown_events", severity="warning", message=message))
    if (hours := _longest_gap_ns(trace.events) / _HOUR_NS) > 1:
        message = (
            f"{hours:,.1f} hours pass between two events, or within one device event: a timestamp may be corrupt, "
            "which would inflate its step"
        )
        findings.append(Finding(code="timestamp_gap", severity="warning", message=message))
    if not trace.counts.get(EventKind.OPERATOR) and trace.counts.get(EventKind.KERNEL):
        message = "no host operators: collectives are identified by kernel name only"
        findings.append(Finding(code="no_host_operators", severity="info", message=message))
    return findings


_HOUR_NS: Final = 3600 * 10**9


def _longest_gap_ns(events: Events) -> int:
    """Return the longest time without any event, or within one device event."""
    if not len(events.kind) or int(events.end_ns.max()) - int(events.start_ns.min()) < _HOUR_NS:
        return 0
    order = np.argsort(events.start_ns, kind="stable")
    gap_ns = events.start_ns[order][1:] - np.maximum.accumulate(events.end_ns[order])[:-1]
    on_device = events.rows(EventKind.KERNEL, EventKind.COPY)
    longest_ns = (events.end_ns[on_device] - events.start_ns[on_device]).max(initial=0)
    return int(max(gap_ns.max(initial=0), longest_ns))


def _step_findings(steps: Steps, device: Device, marker: str | None) -> list[Finding]:
    findings = []
    if not steps.from_annotations:
        what = f"annotation matches --step-marker {marker!r}" if marker else "ProfilerStep annotation"
        message = f"no {what}: the whole trace counts as one step, start-up included"
        findings.append(Finding(code="no_steps", severity="warning", message=message))
    findings += _steps_cut(steps)
    repeated = len(steps.number) - len(set(steps.number))
    if repeated:
        message = f"{repeated} step numbers occur more than once"
        findings.append(Finding(code="repeated_steps", severity="warning", message=message))
    idle = int((~np.isin(np.arange(len(steps.number)), steps.device_step)).sum()) if len(device.row) else 0
    if idle:
        message = (
            f"no device activity belongs to {idle} of {len(steps.number)} steps: "
            "device events may have been lost, or the program did not use the device in them"
        )
        findings.append(Finding(code="steps_without_device_work", severity="warning", message=message))
    before = int((steps.device_step == BEFORE_THE_FIRST).sum())
    if before:
        message = f"{before} device activities were launched before the first step and belong to no step"
        findings.append(Finding(code="work_before_steps", severity="info", message=message))
    return findings


def _steps_cut(steps: Steps) -> list[Finding]:
    """Return a finding if only the first steps were analysed, with the distribution of all of them."""
    if steps.all_numbers is None or steps.all_wall_ns is None:
        return []
    wall_ns, longest = steps.all_wall_ns, int(steps.all_wall_ns.argmax())
    quantiles = np.percentile(wall_ns, [0, 5, 50, 95, 100])
    least, low, middle, high, most = (duration(float(ns)) for ns in quantiles)
    message = (
        f"of {len(wall_ns):,} steps the first {len(steps.number):,} were analysed, without the work of later ones; all "
        f"steps take {least} to {most} (5 %: {low}, median: {middle}, 95 %: {high}), the longest is step "
        f"{steps.all_numbers[longest]}"
    )
    return [Finding(code="steps_cut", severity="warning", message=message)]
