"""Locate the work of one trace by itself, for what needs nothing else of its summary."""

from collections.abc import Sequence
from typing import NamedTuple

from perfkit.analysis.per_rank.attribution.tabulate import locate_work
from perfkit.analysis.per_rank.attribution.views import Located
from perfkit.analysis.per_rank.breakdown import find_activity
from perfkit.analysis.per_rank.communication.collectives import find_collectives
from perfkit.analysis.per_rank.sharding.passes import find_passes
from perfkit.analysis.per_rank.steps import Steps
from perfkit.analysis.per_rank.trace_steps import find_trace_steps
from perfkit.schema.kernel_rules import KernelRule, KernelRuleUse
from perfkit.trace.events import RankTrace


class TraceWork(NamedTuple):
    """The work of one trace."""

    located: Located
    steps: Steps
    has_device: bool
    rule_uses: list[KernelRuleUse]
    """What each of the user's rules for kernels did."""


def locate_trace(
    trace: RankTrace, step_marker: str | None, kernel_rules: Sequence[KernelRule], most_steps: int | None
) -> TraceWork | None:
    """Return the work of a trace, as `summarize_trace` adds it up; None if it has neither steps nor work."""
    events = trace.events
    names, device, steps = find_trace_steps(trace, step_marker, kernel_rules, most_steps)
    if steps is None:
        return None
    activity = find_activity(events, names, device, steps)
    collectives, _ = find_collectives(events, names, device, activity, steps, trace.header)
    passes = find_passes(events, steps)
    located = locate_work(events, trace.frames, names, device, activity, collectives, passes, steps, step_marker)
    return TraceWork(located, steps, bool(len(device.row)), names.rule_uses)
