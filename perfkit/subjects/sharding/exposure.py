"""Collectives by dimension, operator, phase and layer, and what exposes all-gathers (metrics.md section 12).

The compute of each pass is that on the timeline on which collectives run: the device's, or the host's.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.attribution.call_paths import sum_by
from perfkit.engine.breakdown import Activity
from perfkit.engine.communication.collective_metadata import CollectiveKey, message_sizes
from perfkit.engine.communication.collectives import Collectives
from perfkit.engine.communication.issue_sites import UNKNOWN
from perfkit.engine.kinds.classify import Device
from perfkit.engine.steps.passes import NO_PASS, Passes
from perfkit.engine.trace_context import TraceContext
from perfkit.records.aggregate import add_issued
from perfkit.records.per_rank.sharding import PASS_PHASES, IssuedCollectives, PassPhase
from perfkit.trace.events import Events
from perfkit.trace.intervals import Coverage, Ints


def tabulate_issued(trace: TraceContext) -> list[IssuedCollectives]:
    """Return one row per dimension, operator, phase and layer; their sums are those of the collectives exactly."""
    collectives = trace.collectives
    if not len(collectives.start):
        return []
    passes, layers = trace.passes, trace.layers
    kind, kinds = distinct_kinds(collectives)
    phase = phases_of(collectives, passes)
    columns = (kind, phase, layers.layer)
    key, place = group_rows(columns)
    size = message_sizes(collectives.kinds, len(collectives.kind))[collectives.kind]
    sums = (
        np.ones_like(size),
        np.maximum(size, 0),
        (size < 0).astype(np.int64),
        collectives.end - collectives.start,
        collectives.exposed,
    )
    return add_issued(
        IssuedCollectives(
            dimension=kinds[of][0],
            operator=kinds[of][1],
            phase=phase_name(in_phase),
            layer=layers.names[layer] if layer != UNKNOWN else None,
            count=count,
            bytes=total_bytes,
            unsized=unsized,
            total_ns=total_ns,
            exposed_ns=exposed_ns,
        )
        for (of, in_phase, layer), (count, total_bytes, unsized, total_ns, exposed_ns) in zip(
            key, sum_rows(sums, place, len(key)), strict=True
        )
    )


def distinct_kinds(collectives: Collectives) -> tuple[Ints, list[tuple[str | None, str]]]:
    """Return the index of each collective's dimension and operator, and the distinct ones."""
    pairs = [(kind.dimension, kind.operator) for kind in collectives.kinds]
    known = list(dict.fromkeys(pairs))
    number = {pair: place for place, pair in enumerate(known)}
    return np.array([number[pair] for pair in pairs] or [0], np.int64)[collectives.kind], known


def phases_of(collectives: Collectives, passes: Passes) -> Ints:
    """Return the index in `PASS_PHASES` of the pass that issued each collective, or `NO_PASS`."""
    of_pass = passes.of(collectives.issued)
    known = of_pass >= 0
    phase = np.full(len(of_pass), NO_PASS, np.int64)
    phase[known] = passes.phase[of_pass[known]]
    return phase


def phase_name(phase: int) -> PassPhase | None:
    """Return the name of a phase's index; None for `NO_PASS`."""
    return PASS_PHASES[phase] if phase != NO_PASS else None


def group_rows(columns: Sequence[Ints]) -> tuple[list[tuple[int, ...]], Ints]:
    """Return the distinct combinations of the columns' values (>= -1), and the place of each row's."""
    whole = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        whole = whole * (column.max(initial=0) + 2) + column + 1
    _, first, place = np.unique(whole, return_index=True, return_inverse=True)
    return list(zip(*(column[first].tolist() for column in columns), strict=True)), place


def sum_rows(columns: Iterable[Ints], place: Ints, count: int) -> list[list[int]]:
    """Return the exact sums of each column by `place`, one list per place."""
    sums = [sum_by(place, column, count).tolist() for column in columns]
    return [list(row) for row in zip(*sums, strict=True)]


_SHARD: Final = "shard"
_DIVIDING: Final = frozenset({"tp", "cp", "ep", "pp"})


def serves_shards(kind: CollectiveKey) -> bool:
    """Return whether a collective's dimension is one that parameters are sharded along."""
    return _SHARD in _dimensions(kind)


def divides_layers(kind: CollectiveKey) -> bool:
    """Return whether a collective's dimension divides the work of layers, and no samples: it carries no parameters."""
    return kind.dimension is not None and _DIVIDING.issuperset(_dimensions(kind))


def _dimensions(kind: CollectiveKey) -> list[str]:
    return (kind.dimension or "").split("+")


def compute_begins(events: Events, device: Device, activity: Activity, passes: Passes) -> Ints:
    """Return when the compute of each pass begins; the largest int64 if it has none.

    On a device that is the start of the first kernel that was launched in the pass: the device runs behind the host.
    """
    never, compute = np.iinfo(np.int64).max, activity.compute
    begin = np.full(len(passes.begin), never)
    if len(device.row):
        rows, of_pass, _ = _launched_in(device, passes)
        np.minimum.at(begin, of_pass, events.start_ns[rows])
        return begin
    if not len(compute.start):
        return begin
    first = np.minimum(np.searchsorted(compute.end, passes.begin, side="right"), len(compute.start) - 1)
    runs = (compute.start[first] < passes.end) & (compute.end[first] > passes.begin)
    return np.where(runs, np.maximum(compute.start[first], passes.begin), never)


def compute_ends(events: Events, device: Device, activity: Activity, passes: Passes, limit: Ints) -> Ints:
    """Return when the compute ends that each pass issued before `limit`, shape (p,); the smallest int64 without any."""
    never, compute = np.iinfo(np.int64).min, activity.compute
    end = np.full(len(passes.begin), never)
    if len(device.row):
        rows, of_pass, launched = _launched_in(device, passes)
        within = launched < limit[of_pass]
        np.maximum.at(end, of_pass[within], events.end_ns[rows[within]])
        return end
    if not len(compute.start):
        return end
    last = np.searchsorted(compute.start, limit, side="left") - 1
    runs = (last >= 0) & (compute.end[last] > passes.begin)
    return np.where(runs, np.minimum(compute.end[last], limit), never)


def _launched_in(device: Device, passes: Passes) -> tuple[Ints, Ints, Ints]:
    """Return the compute kernels that were launched in a pass: row, index of the pass, and time of the launch."""
    launched = device.launched_ns[device.is_compute]
    of_pass = passes.of(launched)
    within = of_pass >= 0
    return device.row[device.is_compute][within], of_pass[within], launched[within]


def compute_between(compute: Coverage, begin: Ints, end: Ints) -> Ints:
    """Return the compute in each window `[begin, end)`; 0 where it ends before it begins."""
    return np.asarray(np.where(end > begin, compute.until(np.maximum(begin, end)) - compute.until(begin), 0))


class Exposure(NamedTuple):
    """The exposed time of each all-gather, split by cause; columns of shape (g,) that add up to it."""

    late: Ints
    queued: Ints
    held: Ints
    first: Ints
    short: Ints
    synchronous: Ints


def queue_free_from(collectives: Collectives) -> Ints:
    """Return when the queue of each collective has finished everything that started before it; shape (c,).

    A queue is a process group, and also a stream of the device. Without anything before it: the smallest int64.
    """
    by_group = {kind: number for number, kind in enumerate(dict.fromkeys(map(_group, collectives.kinds)))}
    group = np.array([by_group[_group(kind)] for kind in collectives.kinds] or [0], np.int64)[collectives.kind]
    unknown = np.array([kind.group is None for kind in collectives.kinds] or [True], np.bool_)[collectives.kind]
    # A group of unknown name is one of many: only the stream tells what was before.
    group = np.where(unknown, -1 - np.arange(len(group)), group)
    return np.maximum(_latest_end_before(group, collectives), _latest_end_before(collectives.lane, collectives))


def _group(kind: object) -> tuple[object, object]:
    return getattr(kind, "group", None), getattr(kind, "members", None)


def _latest_end_before(queue: Ints, collectives: Collectives) -> Ints:
    """Return the latest end of what started before each collective in its queue."""
    never = np.iinfo(np.int64).min
    order = np.lexsort((collectives.start, queue))
    latest = np.full(len(order), never)
    begins = np.flatnonzero(np.append(True, queue[order][1:] != queue[order][:-1]))
    ends = np.append(begins[1:], len(order))
    several = ends - begins > 1
    for begin, end in zip(begins[several].tolist(), ends[several].tolist(), strict=True):
        latest[begin + 1 : end] = np.maximum.accumulate(collectives.end[order[begin : end - 1]])
    result = np.empty_like(latest)
    result[order] = latest
    return result


def split_exposed(
    collectives: Collectives,
    chosen: Ints,
    begin: Ints,
    compute: Coverage,
    synchronous: NDArray[np.bool_],
) -> Exposure:
    """Split the exposed time of all-gathers by what prevented it from being hidden.

    Args:
        collectives: all collectives of the trace.
        chosen: indices of the all-gathers, shape (g,).
        begin: when the compute of each one's pass begins, shape (g,).
        compute: all compute.
        synchronous: whether the host waited for each where it issued it, shape (g,).
    """
    start, rest = collectives.start[chosen], collectives.exposed[chosen]
    issued = np.minimum(collectives.issued[chosen], start)
    free = np.clip(queue_free_from(collectives)[chosen], begin, np.maximum(begin, start))
    at_once = np.where(synchronous, rest, 0)
    rest = rest - at_once
    windows = ((free, issued), (np.maximum(issued, begin), free), (np.maximum(issued, free), start))
    parts = []
    for window_begin, window_end in windows:
        part = np.minimum(rest, compute_between(compute, window_begin, window_end))
        parts.append(part)
        rest = rest - part
    is_first = compute_between(compute, begin, start) == 0
    nothing = np.zeros_like(rest)
    late, queued, held = parts
    first, short = np.where(is_first, rest, nothing), np.where(is_first, nothing, rest)
    return Exposure(late, queued, held, first, short, at_once)
