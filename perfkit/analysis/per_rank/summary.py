"""Summarise one trace: the function that executors run for each rank."""

import re
from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from perfkit.analysis.per_rank.annotations import tabulate_phases
from perfkit.analysis.per_rank.breakdown import break_down, find_activity
from perfkit.analysis.per_rank.classify import Device, classify_names, find_device
from perfkit.analysis.per_rank.communication.collective_calls import CollectiveCalls, collect_calls
from perfkit.analysis.per_rank.communication.collectives import find_collectives, tabulate_collectives
from perfkit.analysis.per_rank.idle.tabulate import explain_idle
from perfkit.analysis.per_rank.lost_device import lost_device
from perfkit.analysis.per_rank.memory import tabulate_memory
from perfkit.analysis.per_rank.operators import names_cut, tabulate_operators
from perfkit.analysis.per_rank.pipeline_actions import PipelineActions, find_pipeline_actions, find_pipeline_spans
from perfkit.analysis.per_rank.possible_communication import possible_communication
from perfkit.analysis.per_rank.sharding.issued import tabulate_issued
from perfkit.analysis.per_rank.sharding.layers import find_layers
from perfkit.analysis.per_rank.sharding.parameters import summarize_sharding
from perfkit.analysis.per_rank.sharding.passes import find_passes
from perfkit.analysis.per_rank.steps import BEFORE_THE_FIRST, Steps, find_steps
from perfkit.errors import TraceError, UsageError
from perfkit.schema.common import Finding
from perfkit.schema.kernel_rules import KernelRule
from perfkit.schema.per_rank.idle import IdleTime
from perfkit.schema.per_rank.sharding import IssuedCollectives, ShardedParameters
from perfkit.schema.rank import CollectiveStat, MemoryUse, OperatorStat, PhaseStat, StepBreakdown
from perfkit.trace.events import EventKind, Events, Header, RankTrace
from perfkit.util.formatting import duration

MOST_STEPS: Final = 20_000
"""Most steps that are analysed of a trace: a report has a record for each."""


class TraceSummary(Struct, frozen=True, kw_only=True):
    """Summary of a trace: picklable, and small however large the trace is."""

    header: Header
    has_device: bool
    steps: list[StepBreakdown]
    operators: list[OperatorStat]
    collectives: list[CollectiveStat]
    issued_collectives: list[IssuedCollectives]
    sharded_parameters: ShardedParameters | None
    phases: list[PhaseStat]
    memory: list[MemoryUse]
    idle: IdleTime
    calls: CollectiveCalls
    pipeline: PipelineActions | None = None
    """None if no micro-batches of a pipeline are annotated."""
    communicated: bool
    """Whether the trace contains any communication."""
    counts: dict[str, int]
    findings: list[Finding]


def check_step_marker(marker: str | None) -> None:
    """Raise UsageError unless `marker` is a regular expression."""
    try:
        re.compile(marker or "")
    except re.error as error:
        raise UsageError(f"--step-marker {marker!r} is not a regular expression: {error}") from error


def summarize_trace(
    trace: RankTrace, file: str, step_marker: str | None = None, kernel_rules: Sequence[KernelRule] = ()
) -> TraceSummary:
    """Analyse one trace.

    Args:
        trace: the trace.
        file: its name in findings.
        step_marker: a regular expression for the names of step annotations, instead of `ProfilerStep#N`.
        kernel_rules: rules for the names of kernels, which come before perfkit's own.

    Raises:
        TraceError: the trace contains neither steps nor work.
    """
    events = trace.events
    names = classify_names(events, kernel_rules)
    device = find_device(events, names)
    own = trace.header.perfkit
    steps = find_steps(events, device, step_marker, own.steps[1] if own and own.steps else None, MOST_STEPS)
    if steps is None:
        damage = "; ".join(finding.message for finding in _damage(trace))
        message = f"{file}: no host operators, device activity or steps: nothing to analyse"
        raise TraceError(f"{message} ({damage})" if damage else message)
    activity = find_activity(events, names, device, steps)
    collectives, unrecorded = find_collectives(events, names, device, activity, steps, trace.header)
    findings = [*_damage(trace), *([] if len(device.row) else lost_device(trace))]
    findings += _step_findings(steps, device, step_marker)
    findings += possible_communication(events, names, device, trace.header.world_size)
    findings += _sizes_unmatched(unrecorded, len(collectives.start))
    header, has_device = _without_lists(trace.header), bool(len(device.row))
    recorded = header.perfkit.pipeline if header.perfkit else None
    spans = find_pipeline_spans(events, device, activity, collectives, steps)
    pipeline = find_pipeline_actions(spans, steps, recorded) if spans else None
    counts = {kind.name.lower(): count for kind, count in sorted(trace.counts.items())}
    idle = explain_idle(events, trace.frames, names, device, activity, steps, step_marker)
    breakdown = break_down(events, names, activity, steps, idle.steps)
    operators, distinct = tabulate_operators(events, names, device, activity, steps)
    findings += names_cut(operators, distinct)
    phases = tabulate_phases(events, names, steps, step_marker)
    memory = tabulate_memory(trace, names, activity, steps, step_marker)
    passes, layers = find_passes(events, steps), find_layers(events, collectives.issue_row)
    sharding = summarize_sharding(events, device, activity, collectives, passes, layers)
    del trace, events, names, device  # free the events before building the collective tables: each may be millions
    return TraceSummary(
        header=header,
        has_device=has_device,
        steps=breakdown,
        operators=operators,
        collectives=tabulate_collectives(collectives),
        issued_collectives=tabulate_issued(collectives, passes, layers),
        sharded_parameters=sharding,
        phases=phases,
        memory=memory,
        idle=idle.time,
        calls=collect_calls(collectives, activity, steps),
        pipeline=pipeline,
        communicated=bool(len(activity.communication.start) or len(collectives.start)),
        counts=counts,
        findings=[Finding(code=f.code, severity=f.severity, message=f.message, file=file) for f in findings],
    )


def _sizes_unmatched(operators: list[str], collectives: int) -> list[Finding]:
    """Return a finding for the collectives, by operator, that the run's record of collectives does not match."""
    if not operators:
        return []
    which = ", ".join(sorted(set(operators)))
    message = (
        f"the message sizes of {len(operators)} of {collectives} collectives ({which}) are unknown: the run's record "
        "of collectives lacks them or does not match the trace"
    )
    return [Finding(code="collective_sizes_unmatched", severity="info", message=message)]


def _without_lists(header: Header) -> Header:
    """Drop the parts of the header that grow with the trace or the number of ranks."""
    own = header.perfkit
    pipeline = own.pipeline and replace(own.pipeline, messages=None) if own else None
    return replace(header, groups=[], perfkit=own and replace(own, collectives=None, pipeline=pipeline))


def _damage(trace: RankTrace) -> list[Finding]:
    findings = [
        Finding(code="repaired_events", severity="warning", message=f"{count} {what}")
        for what, count in trace.repaired.items()
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
            f"{idle} of {len(steps.number)} steps have no device activity of their own: "
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
