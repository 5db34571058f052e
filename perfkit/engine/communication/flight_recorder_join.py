"""Join the backend's spans on the CPU to the flight recorder's list of issued collectives (header key `perfkit`)."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.communication.collective_metadata import operators
from perfkit.records.trace_header import RecordedCollective
from perfkit.trace.intervals import Ints


class RecorderMatch(NamedTuple):
    """The record of each span; columns of shape (c,)."""

    record_index: Ints
    """Index of the first record with the same description; -1 for a span without a record."""
    issued: Ints
    """Time of issue."""
    sequence: Ints
    """Sequence number in its process group; -1 if unknown."""


class _Pairs(NamedTuple):
    """Spans and records of one operator, as many of both: spans by start, records by issue."""

    spans: Ints
    records: Ints


def join_flight_recorder(
    start: Ints, thread: Ints, operator: Ints, recorded: list[RecordedCollective]
) -> RecorderMatch:
    """Join spans, sorted by start, to the records of their issue.

    Spans and records are paired in order, per operator and process group, because the queue of a group is first in,
    first out. If their counts differ nothing is joined: a wrong size is worse than none. A trace does not name the
    group of a span. It is certain where no other group had a collective in its queue, and is that of the span's thread
    elsewhere: each group has its own threads. Where neither tells it, one group may have overtaken another, and
    nothing is joined.

    Args:
        start: Start of each span.
        thread: Index of its thread.
        operator: Index of its operator.
        recorded: The list.
    """
    if not recorded:
        nothing = np.broadcast_to(np.int64(-1), len(start))
        return RecorderMatch(nothing, nothing, nothing)
    issued = np.array([record.ns for record in recorded], np.int64)
    known: dict[object, int] = {}
    group = np.array([known.setdefault(record.group, len(known)) for record in recorded], np.int64)
    record = np.full(len(start), -1, np.int64)
    mixed: list[_Pairs] = []
    for pairs in _pairs_by_operator(start, operator, issued, recorded):
        is_sure, parts = _split(pairs, start, issued, group)
        record[pairs.spans[is_sure]] = pairs.records[is_sure]
        mixed += parts
    owners = _owners(thread[record >= 0], group[record[record >= 0]])
    for part in mixed:
        for spans, records in _by_group(part, thread, group, owners):
            if len(spans) == len(records) and (issued[records] <= start[spans]).all():
                record[spans] = records
    return _columns(record, issued, recorded)


def _pairs_by_operator(
    start: Ints, operator: Ints, issued: Ints, recorded: list[RecordedCollective]
) -> Iterator[_Pairs]:
    """Yield the spans and records of each operator if the two lists belong together."""
    in_order = np.argsort(issued, kind="stable")
    of_record = operators(record.op for record in recorded)[in_order]
    for which in np.unique(of_record):
        pairs = _Pairs(np.flatnonzero(operator == which), in_order[of_record == which])
        # A span that starts before its issue shows that they do not.
        if len(pairs.spans) == len(pairs.records) and (issued[pairs.records] <= start[pairs.spans]).all():
            yield pairs


def _split(pairs: _Pairs, start: Ints, issued: Ints, group: Ints) -> tuple[NDArray[np.bool_], list[_Pairs]]:
    """Return which spans certainly have the record in their place, and the others in separate parts.

    A part ends where all that was issued has started: what follows cannot have overtaken it.
    """
    begins = np.append(True, issued[pairs.records][1:] > start[pairs.spans][:-1])
    first, of_record = np.flatnonzero(begins), group[pairs.records]
    is_mixed = np.minimum.reduceat(of_record, first) != np.maximum.reduceat(of_record, first)
    last = np.append(first[1:], len(begins))
    parts = [_Pairs(pairs.spans[a:b], pairs.records[a:b]) for a, b in zip(first[is_mixed], last[is_mixed], strict=True)]
    return ~is_mixed[np.cumsum(begins) - 1], parts


def _owners(thread: Ints, group: Ints) -> dict[int, int]:
    """Return the group of each thread whose spans all belong to one."""
    groups: dict[int, set[int]] = {}
    for own, of_group in np.unique(np.stack([thread, group]), axis=1).T.tolist():
        groups.setdefault(own, set()).add(of_group)
    return {own: min(several) for own, several in groups.items() if len(several) == 1}


def _by_group(part: _Pairs, thread: Ints, group: Ints, owners: dict[int, int]) -> Iterator[_Pairs]:
    """Yield the spans and records of each group, not always as many of both."""
    held = np.array([owners.get(own, -1) for own in thread[part.spans].tolist()], np.int64)
    wanted = group[part.records]
    groups = np.unique(wanted).tolist()
    short = [one for one in groups if (held == one).sum() < (wanted == one).sum()]
    if len(short) == 1:  # it alone can own the remaining threads
        held[held < 0] = short[0]
    yield from (_Pairs(part.spans[held == one], part.records[wanted == one]) for one in groups)


def _columns(record: Ints, issued: Ints, recorded: list[RecordedCollective]) -> RecorderMatch:
    first: dict[object, int] = {}
    described = [(one.group, one.group_size, one.bytes, one.dtype) for one in recorded]
    same_as = np.array([first.setdefault(one, place) for place, one in enumerate(described)], np.int64)
    sequence = np.array([-1 if one.seq is None else one.seq for one in recorded], np.int64)
    return RecorderMatch(*(np.where(record >= 0, column[record], -1) for column in (same_as, issued, sequence)))
