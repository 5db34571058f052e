"""Joining the backend's spans on the CPU to what the run's own recorder saw of their issue (header key `perfkit`)."""

from typing import NamedTuple

import numpy as np

from perfkit.analysis.per_rank.collective_metadata import operators
from perfkit.schema.trace_header import RecordedCollective
from perfkit.trace.intervals import Ints


class RecorderMatch(NamedTuple):
    """What was recorded of spans; columns of shape (c,)."""

    record_index: Ints
    """Index of a record that says the same of what the collective is; -1 for a span without one."""
    issued: Ints
    """When it was issued."""
    sequence: Ints
    """Its number in its process group; -1 where the record does not say."""


def join_flight_recorder(start: Ints, end: Ints, operator: Ints, recorded: list[RecordedCollective]) -> RecorderMatch:
    """Join spans, in order of start, to the record of their issue.

    Both in order, operator by operator: the backend's queue is first in, first out. Where their numbers differ nothing
    is joined: a wrong size is worse than none. Nor where collectives of several groups, each of which has a queue of
    its own, run at once: then one may have overtaken another.
    """
    if not recorded:
        nothing = np.broadcast_to(np.int64(-1), len(start))
        return RecorderMatch(nothing, nothing, nothing)
    found = RecorderMatch(*np.full((3, len(start)), -1, np.int64))
    issued = np.array([record.ns for record in recorded], np.int64)
    first: dict[object, int] = {}
    alike = [first.setdefault(_what(record), place) for place, record in enumerate(recorded)]
    sequence = [-1 if record.seq is None else record.seq for record in recorded]
    in_order = np.argsort(issued, kind="stable")
    of_record = operators(record.op for record in recorded)[in_order]
    for which in np.unique(of_record):
        queue, places = in_order[of_record == which], np.flatnonzero(operator == which)
        # A span cannot begin before its issue: then the two lists do not belong together after all.
        fits = len(places) == len(queue) and bool((issued[queue] <= start[places]).all())
        at_once = bool((start[places][1:] < end[places][:-1]).any())
        if fits and not (at_once and len({recorded[place].group for place in queue.tolist()}) > 1):
            found.record_index[places] = np.array(alike, np.int64)[queue]
            found.issued[places] = issued[queue]
            found.sequence[places] = np.array(sequence, np.int64)[queue]
    return found


def _what(record: RecordedCollective) -> tuple[object, ...]:
    return record.group, record.group_size, record.bytes, record.dtype
