"""What every analysis of one trace begins with: what its names mean, its device and its steps."""

from collections.abc import Sequence
from typing import NamedTuple

from perfkit.engine.kinds.classify import Device, Names, classify_names, find_device
from perfkit.engine.steps.pauses import find_pauses
from perfkit.engine.steps.windows import Steps, find_steps
from perfkit.records.kernel_rules import KernelRule
from perfkit.trace.events import RankTrace


class TraceSteps(NamedTuple):
    """The steps of one trace, and what tells them."""

    names: Names
    device: Device
    steps: Steps | None
    """None if the trace contains neither steps nor work."""


def find_trace_steps(
    trace: RankTrace, step_marker: str | None = None, kernel_rules: Sequence[KernelRule] = (), most: int | None = None
) -> TraceSteps:
    """Return the steps of a trace, without one that its run did not complete.

    Args:
        trace: the trace.
        step_marker: a regular expression for the names of the annotations that mark steps, or None.
        kernel_rules: rules for the names of kernels, which come before perfkit's own.
        most: number of steps at most, the first ones; None for all.
    """
    names = classify_names(trace.events, kernel_rules)
    device = find_device(trace.events, names)
    pauses = find_pauses(trace.events, trace.frames, device, trace.header)
    own = trace.header.perfkit
    completed = own.steps[1] if own and own.steps else None
    return TraceSteps(names, device, find_steps(trace.events, device, step_marker, completed, most, pauses))
