"""Summarise one trace: the function that executors run for each rank."""

import re
from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from perfkit.analysis.per_rank.annotations import tabulate_phases
from perfkit.analysis.per_rank.attribution.tabulate import locate_work, tabulate_work
from perfkit.analysis.per_rank.breakdown import break_down, find_activity
from perfkit.analysis.per_rank.communication.collective_calls import CollectiveCalls, collect_calls
from perfkit.analysis.per_rank.communication.collectives import find_collectives, tabulate_collectives
from perfkit.analysis.per_rank.findings import damage_findings, sizes_unmatched, trace_findings
from perfkit.analysis.per_rank.idle.attribution import host_time
from perfkit.analysis.per_rank.idle.tabulate import explain_idle
from perfkit.analysis.per_rank.launches import tabulate_launches
from perfkit.analysis.per_rank.loading.waits import explain_loading
from perfkit.analysis.per_rank.memory.tabulate import tabulate_memory
from perfkit.analysis.per_rank.operator_work.tabulate import tabulate_operator_work
from perfkit.analysis.per_rank.operators import names_cut, tabulate_operators
from perfkit.analysis.per_rank.pauses import TracedPause, traced
from perfkit.analysis.per_rank.pipeline_actions import PipelineActions, find_pipeline_actions, find_pipeline_spans
from perfkit.analysis.per_rank.sharding.issued import tabulate_issued
from perfkit.analysis.per_rank.sharding.layers import find_layers
from perfkit.analysis.per_rank.sharding.parameters import summarize_sharding
from perfkit.analysis.per_rank.sharding.passes import find_passes
from perfkit.analysis.per_rank.step_graph.build import build_rank_graph
from perfkit.analysis.per_rank.step_graph.module_owners import ModuleOwners
from perfkit.analysis.per_rank.step_graph.rank_graph import RankGraph
from perfkit.analysis.per_rank.step_graph.selection import most_graph_events
from perfkit.analysis.per_rank.step_graph.table import Trace
from perfkit.analysis.per_rank.trace_steps import find_trace_steps
from perfkit.errors import TraceError, UsageError
from perfkit.schema.common import Finding
from perfkit.schema.kernel_rules import KernelRule, KernelRuleUse
from perfkit.schema.per_rank.idle import IdleTime
from perfkit.schema.per_rank.launches import LaunchStats
from perfkit.schema.per_rank.loading import RankLoading
from perfkit.schema.per_rank.operator_work import RankWork
from perfkit.schema.per_rank.sharding import IssuedCollectives, ShardedParameters
from perfkit.schema.per_rank.work import Work
from perfkit.schema.rank import CollectiveStat, MemoryUse, OperatorStat, PhaseStat, StepBreakdown
from perfkit.trace.events import Header, RankTrace

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
    operator_work: RankWork | None
    """None if no shapes were recorded, or no activity of the device that worked: how long its work took is unknown."""
    launches: LaunchStats | None
    """None if no launches were recorded."""
    work: Work
    calls: CollectiveCalls
    pauses: list[TracedPause] = []
    loading: RankLoading | None = None
    """None if the trace does not contain how batches were fetched."""
    pipeline: PipelineActions | None = None
    """None if no micro-batches of a pipeline are annotated."""
    graph: RankGraph
    communicated: bool
    """Whether the trace contains any communication."""
    rule_uses: list[KernelRuleUse] = []
    """What each of the user's rules for kernels did."""
    counts: dict[str, int]
    findings: list[Finding]


def check_step_marker(marker: str | None) -> None:
    """Raise UsageError unless `marker` is a regular expression."""
    try:
        re.compile(marker or "")
    except (re.error, OverflowError, RecursionError) as error:  # also: a count too large, groups nested too deeply
        raise UsageError(f"--step-marker {marker!r} is not a regular expression: {error}") from error


def summarize_trace(
    trace: RankTrace,
    file: str,
    step_marker: str | None = None,
    kernel_rules: Sequence[KernelRule] = (),
    graph_events: int | None = None,
) -> TraceSummary:
    """Analyse one trace.

    Args:
        trace: the trace.
        file: its name in findings.
        step_marker: a regular expression for the names of step annotations, instead of `ProfilerStep#N`.
        kernel_rules: rules for the names of kernels, which come before perfkit's own.
        graph_events: of how many events the graph is at most; None for as many as suit the number of ranks.

    Raises:
        TraceError: the trace contains neither steps nor work.
    """
    events, own = trace.events, trace.header.perfkit
    names, device, steps = find_trace_steps(trace, step_marker, kernel_rules, MOST_STEPS)
    if steps is None:
        raise _nothing_to_analyse(trace, file)
    activity = find_activity(events, names, device, steps)
    collectives, unrecorded = find_collectives(events, names, device, activity, steps, trace.header)
    findings = trace_findings(trace, names, device, activity, steps, step_marker)
    findings += sizes_unmatched(unrecorded, len(collectives.start))
    header, has_device = _without_lists(trace.header), bool(len(device.row))
    spans = find_pipeline_spans(events, device, activity, collectives, steps)
    pipeline = find_pipeline_actions(spans, steps, trace.header)
    counts = {kind.name.lower(): count for kind, count in sorted(trace.counts.items())}
    host, threads = host_time(events, trace.frames, names, device, steps, step_marker)
    idle = explain_idle(device, activity, steps, host, threads)
    most = most_graph_events(trace.header.world_size) if graph_events is None else graph_events
    passes, layers = find_passes(events, steps), find_layers(events, collectives.issue_row)
    located = locate_work(events, trace.frames, names, device, activity, collectives, passes, steps, step_marker)
    known = Trace(events, names, device, collectives, steps, host, threads, ModuleOwners(located))
    graph = build_rank_graph(known, most)
    breakdown = break_down(events, names, activity, steps, idle.steps)
    operators, distinct = tabulate_operators(events, names, device, activity, steps)
    findings += names_cut(operators, distinct)
    launches = tabulate_launches(events, device, steps)
    phases = tabulate_phases(events, names, activity, steps, step_marker)
    memory = tabulate_memory(trace, names, activity, steps, step_marker)
    work = tabulate_work(located, names, device, steps)
    rule_uses = names.rule_uses
    lost = any(finding.code == "no_device_events" for finding in findings)
    operator_work = None if lost else tabulate_operator_work(events, names, device, activity, steps, located)
    sharding = summarize_sharding(events, device, activity, collectives, passes, layers)
    # Free the events before building the collective tables: each may be millions.
    loading = explain_loading(events, names, steps, own.fetches if own else None)
    del trace, events, names, device, host, threads, located, known
    return TraceSummary(
        header=header,
        has_device=has_device,
        steps=breakdown,
        operators=operators,
        collectives=tabulate_collectives(collectives, steps),
        issued_collectives=tabulate_issued(collectives, passes, layers),
        sharded_parameters=sharding,
        phases=phases,
        memory=memory,
        idle=idle.time,
        operator_work=operator_work,
        launches=launches,
        work=work,
        calls=collect_calls(collectives, activity, steps),
        pauses=traced(steps.pauses, steps.bounds),
        loading=loading,
        pipeline=pipeline,
        graph=graph,
        communicated=bool(len(activity.communication.start) or len(collectives.start)),
        rule_uses=rule_uses,
        counts=counts,
        findings=[replace(finding, file=file) for finding in findings],
    )


def _nothing_to_analyse(trace: RankTrace, file: str) -> TraceError:
    damage = "; ".join(finding.message for finding in damage_findings(trace))
    message = f"{file}: no host operators, device activity or steps: nothing to analyse"
    return TraceError(f"{message} ({damage})" if damage else message)


def _without_lists(header: Header) -> Header:
    """Drop the parts of the header that grow with the trace or the number of ranks."""
    own = header.perfkit
    pipeline = own.pipeline and replace(own.pipeline, messages=None) if own else None
    own = own and replace(own, collectives=None, pipeline=pipeline, tensors=None, pauses=None, fetches=None)
    return replace(header, groups=[], perfkit=own)
