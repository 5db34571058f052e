"""Name the layer that issued a collective, from the annotations of torch's FSDP (metrics.md section 12)."""

import re
from typing import Final, NamedTuple

import numpy as np

from perfkit.engine.kinds.classify import innermost_at_launch
from perfkit.records.per_rank.sharding import ROOT_LAYER
from perfkit.trace.events import EventKind, Events
from perfkit.trace.intervals import Ints

FSDP: Final = ("FSDP::", "FullyShardedDataParallel._")
"""Beginnings of the annotations of what torch's FSDP2 and FSDP1 do; `.forward` of FSDP1 contains the model's own."""
_LAYER: Final = re.compile(r"FSDP::\w+(?: for | \()(?P<layer>[^()]+)\)?$")
"""FSDP2 appends the names of the modules whose parameters are together, unless they are the root's."""
UNKNOWN: Final = -1


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
