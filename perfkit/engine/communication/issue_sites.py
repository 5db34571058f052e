"""Find the host operator that issued each collective, and identify DDP's gradient buckets.

DDP's reducer starts the all-reduce of a bucket from the hook of the last gradient in it, which runs inside autograd's
`AccumulateGrad`. All real traces of DDP show this, on devices and on the CPU.
"""

import re
from typing import Final

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.communication.collective_metadata import OPERATORS, operators_of
from perfkit.engine.kinds.classify import nested_on_thread
from perfkit.trace.events import EventKind, Events
from perfkit.trace.intervals import Ints

_GRADIENT_HOOK: Final = re.compile(r"autograd::engine::evaluate_function: torch::autograd::AccumulateGrad$")
_ISSUE: Final = "c10d::"
_REDUCE_SCATTER: Final = OPERATORS.index("reduce_scatter")


def in_gradient_hook(events: Events, rows: Ints) -> NDArray[np.bool_]:
    """Return for each row (-1: none) whether it ran inside a gradient hook on its thread."""
    inside = np.zeros(len(rows), np.bool_)
    hooks = events.rows(EventKind.OPERATOR)
    hooks = hooks[events.shapes.starting_with(_GRADIENT_HOOK)[events.name[hooks]]]
    known = np.flatnonzero(rows >= 0)
    inside[known] = nested_on_thread(events, rows[known], hooks)
    return inside


def find_issue_sites(events: Events, start_ns: Ints, operator: Ints) -> Ints:
    """Return for each collective on the CPU the row of the operator that issued it; -1 if unknown.

    Issues and spans are paired in order, per operator, because the backend's queue is first in, first out. If their
    counts differ, or a span would start before its issue, nothing is joined. gloo runs a reduce_scatter as an
    all_reduce: without its own spans, it is paired with those.

    Args:
        events: the trace.
        start_ns: start of each span, shape (c,), ascending.
        operator: operator of each, as in `perfkit.engine.communication.collective_metadata`.
    """
    issues = np.full(len(start_ns), -1, np.int64)
    rows = np.flatnonzero((events.kind == EventKind.OPERATOR) & events.shapes.beginning_with(_ISSUE)[events.name])
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    issued = operators_of(events, rows)
    if not (operator == _REDUCE_SCATTER).any():
        issued[issued == _REDUCE_SCATTER] = OPERATORS.index("all_reduce")
    for which in np.unique(issued[issued >= 0]):
        queue, places = rows[issued == which], np.flatnonzero(operator == which)
        if len(places) == len(queue) and (events.start_ns[queue] <= start_ns[places]).all():
            issues[places] = queue
    return issues
