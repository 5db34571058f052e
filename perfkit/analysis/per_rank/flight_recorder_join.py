"""Join the backend's spans on the CPU to the flight recorder's list of issued collectives (header key `perfkit`)."""

from typing import NamedTuple

import numpy as np

from perfkit.analysis.per_rank.collective_metadata import operators
from perfkit.schema.trace_header import RecordedCollective
from perfkit.trace.intervals import Ints


class RecorderMatch(NamedTuple):
    """The record of each span; columns of shape (c,)."""

    record_index: Ints
    """Index of the first record with the same description; -1 for a span without a record."""
    issued: Ints
    """Time of issue."""
    sequence: Ints
    """Sequence number in its process group; -1 if unknown."""


def join_flight_recorder(start: Ints, end: Ints, operator: Ints, recorded: list[RecordedCollective]) -> RecorderMatch:
    """Join spans, sorted by start, to the records of their issue.

    Spans and records are paired in order, per operator, because the backend's queue is first in, first out. If their
    counts differ nothing is joined: a wrong size is worse than none. Nor is anything joined if collectives of several
    groups overlap, because each group has its own queue and one may have overtaken another.
    """
    if not recorded:
        nothing = np.broadcast_to(np.int64(-1), len(start))
        return RecorderMatch(nothing, nothing, nothing)
    match = RecorderMatch(*np.full((3, len(start)), -1, np.int64))
    issued = np.array([record.ns for record in recorded], np.int64)
    first: dict[object, int] = {}
    same_as = [first.setdefault(_description(record), place) for place, record in enumerate(recorded)]
    sequence = [-1 if record.seq is None else record.seq for record in recorded]
    in_order = np.argsort(issued, kind="stable")
    of_record = operators(record.op for record in recorded)[in_order]
    for which in np.unique(of_record):
        queue, places = in_order[of_record == which], np.flatnonzero(operator == which)
        # A span that starts before its issue shows that the two lists do not belong together.
        fits = len(places) == len(queue) and bool((issued[queue] <= start[places]).all())
        at_once = bool((start[places][1:] < end[places][:-1]).any())
        if fits and not (at_once and len({recorded[place].group for place in queue.tolist()}) > 1):
            match.record_index[places] = np.array(same_as, np.int64)[queue]
            match.issued[places] = issued[queue]
            match.sequence[places] = np.array(sequence, np.int64)[queue]
    return match


def _description(record: RecordedCollective) -> tuple[object, ...]:
    return record.group, record.group_size, record.bytes, record.dtype
