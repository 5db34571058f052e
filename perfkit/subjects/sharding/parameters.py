"""All-gathers of sharded parameters and reductions of their gradients (metrics.md section 12)."""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.communication.collective_metadata import flagged, message_sizes
from perfkit.engine.communication.collectives import Collectives
from perfkit.engine.communication.issue_sites import UNKNOWN, Layers
from perfkit.engine.trace_context import TraceContext
from perfkit.records.aggregate import add_gathers
from perfkit.records.per_rank.sharding import PASS_PHASES, ParameterGathers, ShardedParameters
from perfkit.subjects.sharding.exposure import (
    Exposure,
    compute_begins,
    compute_between,
    compute_ends,
    divides_layers,
    group_rows,
    phase_name,
    phases_of,
    serves_shards,
    split_exposed,
    sum_rows,
)
from perfkit.trace.intervals import Coverage, Ints

_BACKWARD: Final = PASS_PHASES.index("backward")
_LATE_SHARE: Final = 0.1
"""Part of an all-gather that must have been avoidable for it to count as issued late."""


class _Context(NamedTuple):
    collectives: Collectives
    layers: Layers
    phase: Ints
    of_pass: Ints
    compute: Coverage
    begins: Ints
    """When the compute of each pass begins."""


def summarize_sharding(trace: TraceContext) -> ShardedParameters | None:
    """Return what the collectives of sharded parameters cost; None without any all-gather of parameters."""
    collectives = trace.collectives
    if not len(collectives.start):
        return None
    events, device, activity, passes, layers = trace.events, trace.device, trace.activity, trace.passes, trace.layers
    shards = flagged(collectives.kinds, collectives.kind, serves_shards)
    divides = flagged(collectives.kinds, collectives.kind, divides_layers)
    shards |= (layers.site >= 0) & ~divides
    gathers = np.flatnonzero(shards & _is(collectives, "all_gather"))
    if not len(gathers):
        return None
    context = _Context(
        collectives,
        layers,
        phases_of(collectives, passes),
        passes.of(collectives.issued),
        Coverage(activity.compute),
        compute_begins(events, device, activity, passes),
    )
    on_host = not len(device.row)
    synchronous = on_host & (layers.site >= 0) & (events.end_ns[layers.site] >= collectives.end)
    reductions = np.flatnonzero(
        shards & (context.phase == _BACKWARD) & _is(collectives, "reduce_scatter", "all_reduce")
    )
    exposed = collectives.exposed[reductions]
    limit = np.full(len(passes.begin), np.iinfo(np.int64).min)
    np.maximum.at(limit, context.of_pass[reductions], collectives.issued[reductions])
    ends = compute_ends(events, device, activity, passes, limit)[context.of_pass[reductions]]
    return ShardedParameters(
        gathers=_tabulate_gathers(context, gathers, synchronous[gathers]),
        regathered_bytes=_regathered_bytes(context, gathers),
        reductions=len(reductions),
        reductions_ns=int((collectives.end - collectives.start)[reductions].sum()),
        reductions_exposed_ns=int(exposed.sum()),
        tail_ns=int(np.minimum(exposed, _alone_after(context, reductions, ends)).sum()),
    )


def _is(collectives: Collectives, *operators: str) -> NDArray[np.bool_]:
    return flagged(collectives.kinds, collectives.kind, lambda kind: kind.operator in operators)


def _tabulate_gathers(context: _Context, gathers: Ints, synchronous: NDArray[np.bool_]) -> list[ParameterGathers]:
    collectives, layers = context.collectives, context.layers
    split = split_exposed(collectives, gathers, _compute_begin(context, gathers), context.compute, synchronous)
    duration = (collectives.end - collectives.start)[gathers]
    key, place = group_rows((context.phase[gathers], layers.layer[gathers]))
    late = ((split.late > 0) & (split.late >= _LATE_SHARE * duration)).astype(np.int64)
    waited = np.where(synchronous, duration, 0)
    columns = (np.ones_like(late), np.maximum(_sizes(context, gathers), 0), duration, late, waited, *split)
    return add_gathers(
        _row(phase, layers.names[layer] if layer != UNKNOWN else None, sums)
        for (phase, layer), sums in zip(key, sum_rows(columns, place, len(key)), strict=True)
    )


def _row(phase: int, layer: str | None, sums: list[int]) -> ParameterGathers:
    count, total_bytes, total_ns, late, waited_ns, *parts_ns = sums
    named = {f"{name}_ns": ns for name, ns in zip(Exposure._fields, parts_ns, strict=True)}
    return ParameterGathers(
        phase=phase_name(phase),
        layer=layer,
        count=count,
        bytes=total_bytes,
        total_ns=total_ns,
        exposed_ns=sum(parts_ns),
        late=late,
        waited_ns=waited_ns,
        **named,
    )


def _sizes(context: _Context, chosen: Ints) -> Ints:
    """Return the size of each collective; -1 if unknown."""
    sizes = message_sizes(context.collectives.kinds, len(context.collectives.kind))
    return np.asarray(sizes[context.collectives.kind[chosen]])


def _compute_begin(context: _Context, chosen: Ints) -> Ints:
    """Return when the compute of each collective's pass begins; outside of passes only its own start is known."""
    of_pass = context.of_pass[chosen]
    known, begin = of_pass >= 0, context.collectives.start[chosen].copy()
    begin[known] = context.begins[of_pass[known]]
    return begin


def _regathered_bytes(context: _Context, gathers: Ints) -> int | None:
    """Return the bytes gathered in a backward pass, the most of all; None if a size is unknown."""
    again = gathers[context.phase[gathers] == _BACKWARD]
    sizes = _sizes(context, again)
    if (sizes < 0).any():
        return None
    passes, place = np.unique(context.of_pass[again], return_inverse=True)
    return max((sums[0] for sums in sum_rows((sizes,), place, len(passes))), default=0)


def _alone_after(context: _Context, chosen: Ints, instant: Ints) -> Ints:
    """Return for how long each collective runs without compute after its own instant."""
    start, end = context.collectives.start[chosen], context.collectives.end[chosen]
    begin = np.clip(instant, start, end)
    return (end - begin) - compute_between(context.compute, begin, end)
