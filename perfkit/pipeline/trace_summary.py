"""Summarise one trace: the function that executors run for each rank."""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from perfkit.engine.communication.collective_calls import collect_calls
from perfkit.engine.communication.collectives import tabulate_collectives
from perfkit.engine.steps.pauses import traced
from perfkit.engine.trace_context import TraceContext
from perfkit.engine.trace_summary import MOST_STEPS, TraceSummary
from perfkit.pipeline.subject_parts import compute_parts
from perfkit.records.kernel_rules import KernelRule
from perfkit.subjects.table import Asked
from perfkit.trace.events import Header, RankTrace

_FIELDS: Final = frozenset(TraceSummary.__struct_fields__)


def summarize_trace(
    trace: RankTrace,
    file: str,
    step_marker: str | None = None,
    kernel_rules: Sequence[KernelRule] = (),
    graph_events: int | None = None,
    subjects: Asked = None,
) -> TraceSummary:
    """Analyse one trace.

    Args:
        trace: the trace.
        file: its name in findings.
        step_marker: a regular expression for the names of step annotations, instead of `ProfilerStep#N`.
        kernel_rules: rules for the names of kernels, which come before perfkit's own.
        graph_events: of how many events the graph is at most; None for as many as suit the number of ranks.
        subjects: names of the subjects to compute; None for all.

    Raises:
        TraceError: the trace contains neither steps nor work.
    """
    context = TraceContext(trace, file, step_marker, kernel_rules, graph_events, MOST_STEPS)
    del trace  # the context releases it as soon as possible
    parts, added, failed = compute_parts(subjects, "rank", context, _FIELDS)
    header = context.header
    parts |= {
        "has_device": context.has_device,
        "steps": context.break_down(with_causes="idle" in parts),
        "operators": context.operators,
        "rule_uses": context.names.rule_uses,
        "counts": {kind.name.lower(): count for kind, count in sorted(context.trace.counts.items())},
        "findings": [replace(finding, file=file) for finding in (*context.findings, *failed)],
    }
    collectives, activity, steps = context.collectives, context.activity, context.steps
    del context  # the tables of collectives may have millions of rows, as the events have
    return TraceSummary(
        header=_without_lists(header),
        collectives=tabulate_collectives(collectives, steps),
        calls=collect_calls(collectives, activity, steps),
        pauses=traced(steps.pauses, steps.bounds),
        communicated=bool(len(activity.communication.start) or len(collectives.start)),
        subjects=added,
        **parts,
    )


def _without_lists(header: Header) -> Header:
    """Drop the parts of the header that grow with the trace or the number of ranks."""
    own = header.perfkit
    pipeline = own.pipeline and replace(own.pipeline, messages=None) if own else None
    own = own and replace(own, collectives=None, pipeline=pipeline, tensors=None, pauses=None, fetches=None)
    return replace(header, groups=[], perfkit=own)
