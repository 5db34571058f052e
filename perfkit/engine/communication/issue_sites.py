"""Find the host operator, gradient hook or layer (metrics.md section 12) that issued each collective.

DDP's reducer starts the all-reduce of a bucket from the hook of the last gradient in it, which runs inside autograd's
`AccumulateGrad`. All real traces of DDP show this, on devices and on the CPU.
"""

import re
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.communication.collective_metadata import OPERATORS, operators_of
from perfkit.engine.kinds.classify import innermost_at_launch, nested_on_thread
from perfkit.records.per_rank.sharding import ROOT_LAYER
from perfkit.trace.events import EventKind, Events
from perfkit.trace.intervals import Ints

_GRADIENT_HOOK: Final = re.compile(r"autograd::engine::evaluate_function: torch::autograd::AccumulateGrad$")
_ISSUE: Final = "c10d::"
_REDUCE_SCATTER: Final = OPERATORS.index("reduce_scatter")
FSDP: Final = ("FSDP::", "FullyShardedDataParallel._")
"""Beginnings of the annotations of what torch's FSDP2 and FSDP1 do; `.forward` of FSDP1 contains the model's own."""
_LAYER: Final = re.compile(r"FSDP::\w+(?: for | \()(?P<layer>[^()]+)\)?$")
"""FSDP2 appends the names of the modules whose parameters are together, unless they are the root's."""
UNKNOWN: Final = -1


def in_gradient_hook(events: Events, rows: Ints) -> NDArray[np.bool_]:
    """Return for each row (-1: none) whether it ran inside a gradient hook on its thread."""
    inside = np.zeros(len(rows), np.bool_)
    is_hook = events.shapes.starting_with(_GRADIENT_HOOK)
    hooks = events.rows(EventKind.OPERATOR, named=is_hook)
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
    rows = events.rows(EventKind.OPERATOR, named=events.shapes.beginning_with(_ISSUE))
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    issued = operators_of(events, rows)
    if not (operator == _REDUCE_SCATTER).any():
        issued[issued == _REDUCE_SCATTER] = OPERATORS.index("all_reduce")
    for which in np.unique(issued[issued >= 0]):
        queue, places = rows[issued == which], np.flatnonzero(operator == which)
        if len(places) == len(queue) and (events.start_ns[queue] <= start_ns[places]).all():
            issues[places] = queue
    return issues


class Layers(NamedTuple):
    """Layers of collectives; columns of shape (c,)."""

    names: list[str]
    """Distinct layers, in order of occurrence."""
    layer: Ints
    """Index into `names`, or `UNKNOWN`."""
    site: Ints
    """Row of the innermost annotation of FSDP around the issue; -1 if none is."""


def find_layers(events: Events, issue_row: Ints) -> Layers:
    """Return the layer of each collective.

    Args:
        events: the trace.
        issue_row: row of the host event that issued each collective, shape (c,); -1 if unknown.
    """
    fsdp = events.shapes.beginning_with(*FSDP)
    site = innermost_at_launch(events, issue_row, (events.kind == EventKind.ANNOTATION) & fsdp[events.name])
    distinct, place = np.unique(np.where(site >= 0, events.name[site], -1), return_inverse=True)
    given = [_layer(events.names[name]) if name >= 0 else None for name in distinct.tolist()]
    # Versions of torch that name no layer would make all of them the root's.
    if not any(name is not None and name != ROOT_LAYER for name in given):
        return Layers([], np.full(len(site), UNKNOWN, np.int64), site)
    number = {name: k for k, name in enumerate(dict.fromkeys(name for name in given if name is not None))}
    numbers = [UNKNOWN if name is None else number[name] for name in given]
    return Layers(list(number), np.array(numbers, np.int64)[place], site)


def _layer(annotation: str) -> str | None:
    if not annotation.startswith(FSDP[0]):
        return None
    match = _LAYER.match(annotation)
    return match["layer"] if match else ROOT_LAYER
