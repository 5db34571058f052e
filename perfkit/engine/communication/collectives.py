"""Find the collectives of a trace: operator, size, duration and exposed time of each (metrics.md section 5).

On a device a collective is a communication kernel, joined through its launch to the host events that describe it. On
the CPU it is the backend's annotation (`gloo:all_reduce`), which includes the wait for the other ranks. Its size comes
from recorded shapes, or else from the flight recorder's list in the trace header.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from perfkit.engine.breakdown import Activity
from perfkit.engine.communication.collective_metadata import (
    OPERATORS,
    CollectiveKey,
    flagged,
    from_metadata,
    from_record,
    from_shapes,
    intern_descriptions,
    operator_name,
    operators,
    operators_of,
)
from perfkit.engine.communication.dimensions import Dimensions, find_issuing_sites, is_ddp_hook
from perfkit.engine.communication.flight_recorder_join import join_flight_recorder
from perfkit.engine.communication.issue_sites import find_issue_sites
from perfkit.engine.communication.message_batches import (
    EXCHANGE,
    describe_batch,
    find_message_batches,
    find_peers,
)
from perfkit.engine.kinds.classify import Device, Names, communicating_candidates, innermost_at_launch
from perfkit.engine.steps.windows import Steps
from perfkit.records.aggregate import add_collectives
from perfkit.records.rank import CollectiveStat
from perfkit.records.trace_header import PerfkitHeader, RecordedCollective
from perfkit.trace.events import CollectiveArgs, EventKind, Events, Header
from perfkit.trace.intervals import Ints, covers, measure, merge, split_overlap_to_earliest

_NEVER: Final = int(np.iinfo(np.int64).max)


class Collectives(NamedTuple):
    """Collectives of one trace, by start; columns of shape (c,)."""

    start: Ints
    end: Ints
    exposed: Ints
    kinds: list[CollectiveKey]
    """Distinct kinds, in order of occurrence."""
    kind: Ints
    """Index into `kinds`."""
    step: Ints
    """Index of its step."""
    issued: Ints
    """When the host issued it, or its start if that was not recorded."""
    sequence: Ints
    """Sequence number in its process group; -1 if unknown."""
    blocked: Ints
    """End of its exposed part, if that lasts to its end; -1 if the rank computes by then: it blocks nobody."""
    issue_row: Ints
    """Row of the host event that issued it, the launch of a kernel; -1 if unknown."""
    lane: Ints
    """Stream of the device, or thread of the host, on which it ran: an index as in `Events.thread`."""


def find_collectives(
    events: Events,
    names: Names,
    device: Device,
    activity: Activity,
    steps: Steps,
    header: Header,
) -> tuple[Collectives, list[str]]:
    """Return the collectives within the steps, and the operator of each that the flight recorder's list lacks.

    Without such a list no operator is returned.
    """
    dimensions = Dimensions(header)
    if len(device.row):
        return _device_collectives(events, names, device, activity, steps, dimensions), []
    return _host_collectives(events, names, activity, steps, header.perfkit or PerfkitHeader(), dimensions)


def _exposed(start: Ints, end: Ints, activity: Activity, steps: Steps) -> tuple[Ints, Ints]:
    """Return the exposed time of each span, and its end if that is the span's, else -1: the rank goes on before.

    An instant with several active spans counts for the earliest started. The spans must include all communication, even
    outside the steps, because it may overlap a step.
    """
    own = split_overlap_to_earliest(start, end)
    first = np.clip(own.start, steps.bounds[0], steps.bounds[-1])
    last = np.clip(own.end, steps.bounds[0], steps.bounds[-1])
    del own
    covered = merge(activity.compute, steps.pauses.spans) if steps.pauses.found else activity.compute
    exposed = (last - first) - measure(covered, first, last)
    return exposed, np.where((exposed > 0) & ~covers(covered, last - 1), last, -1)


# ---- on a device ---------------------------------------------------------------------------------------------------


def _device_collectives(
    events: Events, names: Names, device: Device, activity: Activity, steps: Steps, dimensions: Dimensions
) -> Collectives:
    chosen = np.flatnonzero(device.is_communication)
    chosen = chosen[np.argsort(events.start_ns[device.row[chosen]], kind="stable")]
    start, end = events.start_ns[device.row[chosen]], events.end_ns[device.row[chosen]]
    exposed, blocked = _exposed(start, end, activity, steps)
    beside = np.zeros_like(exposed)  # that only another device computes
    for number, active in enumerate(activity.devices):
        own = device.number[chosen] == number
        of_device, of_all = (_exposed(start[own], end[own], one, steps)[0] for one in (active, activity))
        beside[own] = of_device - of_all
    exposed = exposed + activity.mean(beside)
    inside = steps.device_step[chosen] >= 0
    chosen, exposed, blocked = chosen[inside], exposed[inside], blocked[inside]
    rows, launch_row, step = device.row[chosen], device.launch_row[chosen], steps.device_step[chosen]
    kernels = _describe_kernels(events, names, rows, launch_row)
    first, group = _numbered(kernels.source * len(steps.number) + step)
    args = events.collective_args.args

    def describe(kind: int, described: int, site: int) -> CollectiveKey:
        description = args[described].description if described >= 0 else None
        return _complete(kernels.kinds[kind], dimensions, description, site)

    kinds, kind = intern_descriptions(
        describe,
        kernels.kind[first],
        events.collective_args.args_index(kernels.source[first]),
        find_issuing_sites(events, launch_row[first]),
    )

    def latest(column: Ints) -> Ints:
        return _reduce_by_group(np.maximum, column, group, len(first), -_NEVER)

    return Collectives(
        start=_reduce_by_group(np.minimum, events.start_ns[rows], group, len(first), _NEVER),
        end=latest(events.end_ns[rows]),
        exposed=_reduce_by_group(np.add, exposed, group, len(first)),
        kinds=kinds,
        kind=kind,
        step=step[first],
        issued=_reduce_by_group(np.minimum, device.launched_ns[chosen], group, len(first), _NEVER),
        sequence=kernels.sequence[first],
        blocked=latest(blocked),
        issue_row=launch_row[first],
        lane=events.thread[rows[first]].astype(np.int64),
    )


def _complete(kind: CollectiveKey, dimensions: Dimensions, description: str | None, site: int) -> CollectiveKey:
    """Return a collective's identity with what follows from where it was issued."""
    # The all-reduces that a gradient hook issues are those of DDP's buckets.
    kind = kind._replace(ddp_bucket=is_ddp_hook(site) and kind.operator == "all_reduce")
    return kind._replace(dimension=dimensions.name(kind, description, site))


def _numbered(keys: Ints) -> tuple[Ints, Ints]:
    """Number distinct keys by first occurrence; return the first index of each, and the number of every key."""
    _, first, place = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return first[order], np.argsort(order)[place]


def _reduce_by_group(how: np.ufunc, values: Ints, group: Ints, count: int, start: int = 0) -> Ints:
    """Reduce the values of each group with the ufunc `how`, from the initial value `start`."""
    reduced = np.full(count, start, np.int64)
    how.at(reduced, group, values)
    return reduced


class _Described(NamedTuple):
    """Description of each kernel; columns of shape (k,)."""

    kinds: list[CollectiveKey]
    kind: Ints
    """Index into `kinds`."""
    source: Ints
    """Row of the event that describes it; its own row without one."""
    sequence: Ints
    """Sequence number in its group, from that event or the issuing one; -1 if unknown."""


def _describe_kernels(events: Events, names: Names, rows: Ints, launch_row: Ints) -> _Described:
    """Describe kernels by their own metadata, else by that of the launching operator, else by name only.

    A batch of messages is described by those that were issued before its launch.

    Kernels described by the same host event are one collective (oneCCL launches several). A kernel with its own
    metadata, or without any description, is a collective by itself.
    """
    metadata, args = events.collective_args, events.collective_args.args
    host, source, shaped, issued = _describing_rows(events, names, rows, launch_row)
    described = metadata.args_index(source)
    operator = _operators_of_kernels(events, rows, described, issued)
    is_batch = (described < 0) & (operator == OPERATORS.index(EXCHANGE))
    batch = find_message_batches(events, launch_row, is_batch, np.concatenate([source, host]))

    def describe(
        operator: int, described: int, shapes: int, message: int, count: int, receives: int, peer: int
    ) -> CollectiveKey:
        if message >= 0:
            return describe_batch(args[message], count, receives, peer)
        if described >= 0:
            return from_metadata(operator_name(operator), args[described])
        return from_shapes(operator_name(operator), args[shapes] if shapes >= 0 else None)

    kinds, kind = intern_descriptions(
        describe,
        operator,
        described,
        np.where(described >= 0, -1, metadata.args_index(shaped)),
        metadata.args_index(batch.source),
        *batch[1:],
    )
    source = np.where(described >= 0, source, np.where(shaped >= 0, shaped, rows))
    sequence = metadata.sequence_of(source)
    sequence = np.where(sequence >= 0, sequence, metadata.sequence_of(host))
    # Messages are numbered by themselves, not among the group's collectives.
    is_batch &= batch.source >= 0
    return _Described(kinds, kind, np.where(is_batch, batch.source, source), np.where(is_batch, -1, sequence))


class _DescribingRows(NamedTuple):
    """Rows of the events that tell what each kernel is; columns of shape (k,), -1 where there is none."""

    host: Ints
    """Host event with the metadata."""
    source: Ints
    """The kernel itself if it has metadata, else `host`."""
    shaped: Ints
    """Host event with shapes."""
    issued: Ints
    """Operator that issued it."""


def _describing_rows(events: Events, names: Names, rows: Ints, launch_row: Ints) -> _DescribingRows:
    metadata = events.collective_args
    communicating = communicating_candidates(events, names)
    communicating[communicating] = names.communication_operator[events.name[communicating]]

    def innermost(is_described: Callable[[CollectiveArgs], bool]) -> Ints:
        candidates = np.zeros(len(communicating), np.bool_)
        candidates[metadata.rows_where(is_described)] = True
        return innermost_at_launch(events, launch_row, candidates & communicating)

    def has_size(args: CollectiveArgs) -> bool:
        return args.in_elements is not None

    host = innermost(has_size)
    return _DescribingRows(
        host=host,
        source=np.where(np.isin(rows, metadata.rows_where(has_size)), rows, host),
        # The dims of a `c10d::*` operator include its outputs.
        shaped=innermost(lambda one: one.input_dims is not None and not one.is_dispatch),
        issued=innermost_at_launch(events, launch_row, communicating),
    )


def _operators_of_kernels(events: Events, rows: Ints, described: Ints, issued: Ints) -> Ints:
    """Return the operator that the metadata of each kernel names, else what has issued it, else its own name; or -1."""
    args = events.collective_args.args
    operator = np.append(operators(one.operator for one in args), -1)[described]
    for row in (issued, rows):
        operator = np.where(operator >= 0, operator, operators_of(events, row))
    return operator


# ---- on the host ---------------------------------------------------------------------------------------------------


def _host_collectives(
    events: Events,
    names: Names,
    activity: Activity,
    steps: Steps,
    own: PerfkitHeader,
    dimensions: Dimensions,
) -> tuple[Collectives, list[str]]:
    recorded = own.collectives or []
    rows = events.rows(EventKind.ANNOTATION, named=names.whole_span_annotation)
    rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
    start, end = events.start_ns[rows], events.end_ns[rows]
    operator = operators_of(events, rows)
    exposed, blocked = _exposed(start, end, activity, steps)
    record = join_flight_recorder(start, events.thread[rows].astype(np.int64), operator, recorded)
    issues = find_issue_sites(events, start, operator)
    # gloo runs a reduce_scatter as an all_reduce, and calls it that: what the program asked for is in the issue.
    asked = np.where(issues >= 0, operators_of(events, issues), operator)
    within = steps.in_windows(start)  # also in pauses: ranks are matched by the order of all
    inside = slice(None) if within.all() else np.flatnonzero(within)

    step = np.searchsorted(steps.bounds, start[inside], side="right") - 1
    messages = (own.pipeline.messages if own.pipeline else None) or []
    kinds, kind = _host_kinds(
        events,
        recorded,
        dimensions,
        asked[inside],
        record.record_index[inside],
        events.collective_args.args_index(rows)[inside],
        find_issuing_sites(events, issues)[inside],
        find_peers(operator[inside], step, messages),
    )
    issued = np.where(issues >= 0, events.start_ns[issues], start)
    collectives = Collectives(
        start=start[inside],
        end=end[inside],
        exposed=exposed[inside],
        kinds=kinds,
        kind=kind,
        step=step,
        issued=np.where(record.record_index >= 0, record.issued, issued)[inside],
        sequence=record.sequence[inside],
        blocked=blocked[inside],
        issue_row=issues[inside],
        lane=events.thread[rows][inside].astype(np.int64),
    )
    if own.collectives is None:
        return collectives, []
    sized = flagged(collectives.kinds, collectives.kind, lambda one: one.bytes is not None)
    lacks = (record.record_index[inside] < 0) & ~sized
    return collectives, [operator_name(one) for one in asked[inside][lacks].tolist()]


def _host_kinds(
    events: Events,
    recorded: list[RecordedCollective],
    dimensions: Dimensions,
    operator: Ints,
    record: Ints,
    args: Ints,
    site: Ints,
    peer: Ints,
) -> tuple[list[CollectiveKey], Ints]:
    """Return the distinct kinds of collectives on the host, and which one each is.

    Args:
        events: Of the trace.
        recorded: By torch's flight recorder.
        dimensions: Of the rank's groups.
        operator: What the program has asked for, of each collective.
        record: Index into `recorded`, or -1.
        args: Index into the arguments that events have, or -1; they count where there is no record.
        site: What has issued it.
        peer: Rank at the other end of a message, or -1.
    """

    def describe(operator: int, record: int, args: int, site: int, peer: int) -> CollectiveKey:
        if record >= 0:
            kind = from_record(operator_name(operator), recorded[record])
        else:
            kind = from_shapes(operator_name(operator), events.collective_args.args[args] if args >= 0 else None)
        kind = _complete(kind, dimensions, None, site)
        return kind._replace(peer=peer) if peer >= 0 else kind

    return intern_descriptions(describe, operator, record, np.where(record >= 0, -1, args), site, peer)


# ---- the table -----------------------------------------------------------------------------------------------------


def tabulate_collectives(collectives: Collectives, steps: Steps) -> list[CollectiveStat]:
    """Sum collectives of one kind, group, size and type."""
    count = len(collectives.kinds)
    duration = collectives.end - collectives.start
    longest = _reduce_by_group(np.maximum, duration, collectives.kind, count)
    places = np.flatnonzero(duration == longest[collectives.kind])[::-1]
    first = np.zeros(count, np.int64)
    first[collectives.kind[places]] = places
    columns = zip(
        collectives.kinds,
        np.bincount(collectives.kind, minlength=count).tolist(),
        _reduce_by_group(np.add, duration, collectives.kind, count).tolist(),
        _reduce_by_group(np.add, collectives.exposed, collectives.kind, count).tolist(),
        longest.tolist(),
        first.tolist(),
        strict=True,
    )
    return add_collectives(
        CollectiveStat(
            **kind.as_columns(),
            count=of_kind,
            total_ns=total_ns,
            exposed_ns=exposed_ns,
            max_ns=max_ns,
            max_step=steps.number[int(collectives.step[at])],
            max_at_ns=int(collectives.start[at] - steps.bounds[collectives.step[at]]),
        )
        for kind, of_kind, total_ns, exposed_ns, max_ns, at in columns
    )
