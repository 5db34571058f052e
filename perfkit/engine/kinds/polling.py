"""Take loops of calls that ask whether the device is done as what they are: one call that waits for it (section 14)."""

from dataclasses import replace
from typing import Final

import numpy as np

from perfkit.engine.kinds.runtime_calls import POLLING, call_patterns
from perfkit.trace.events import EventKind, Events
from perfkit.trace.intervals import Ints, Union
from perfkit.trace.name_matching import NameShapes

_SHORTEST_NS: Final = 100_000
"""Ten queries of torch's allocator, one after the other, take up to 26 us in recorded traces."""


def merge_polls(events: Events) -> Events:
    """Return the events with each loop of queries as one call, of the first one's name and `POLLING`.

    A loop is on a thread that launches work, has at least two queries with no call or operator between them, and lasts
    100 us or more.
    """
    is_query = events.shapes.starting_with(call_patterns().querying)
    calls = events.rows(EventKind.LAUNCH)
    queries = is_query[events.name[calls]]
    if not queries.any():
        return events
    launching = events.shapes.starting_with(call_patterns().launching)[events.name[calls]]
    threads = np.intersect1d(events.thread[calls[queries]], events.thread[calls[launching]])
    rows = events.rows(EventKind.LAUNCH, EventKind.OPERATOR)
    rows = rows[np.isin(events.thread[rows], threads)]
    rows = rows[np.lexsort((events.start_ns[rows], events.thread[rows]))]
    loops = _runs(events, rows, is_query[events.name[rows]] & (events.kind[rows] == EventKind.LAUNCH))
    lasts = events.end_ns[rows[loops.end - 1]] - events.start_ns[rows[loops.start]] >= _SHORTEST_NS
    loops = Union(loops.start[lasts], loops.end[lasts])
    return _merged(events, rows, loops) if len(loops.start) else events


def _runs(events: Events, rows: Ints, queries: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Union:
    """Return the places of the rows where each run of two queries or more on a thread begins and ends."""
    thread = events.thread[rows]
    follows = queries[1:] & queries[:-1] & (thread[1:] == thread[:-1])
    edges = np.flatnonzero(np.diff(np.concatenate(([0], follows.astype(np.int8), [0]))))
    return Union(edges[::2], edges[1::2] + 1)


def _merged(events: Events, rows: Ints, loops: Union) -> Events:
    first, last = rows[loops.start], rows[loops.end - 1]
    end_ns, kind, name = events.end_ns.copy(), events.kind.copy(), events.name.copy()
    end_ns[first] = end_ns[last]
    inside = np.zeros(len(rows) + 1, np.int8)
    inside[loops.start + 1], inside[loops.end] = 1, -1
    kind[rows[np.cumsum(inside[:-1]) > 0]] = EventKind.OTHER
    asked, number = np.unique(name[first], return_inverse=True)
    added = tuple(events.names[at] + POLLING for at in asked.tolist())
    name[first] = len(events.names) + number
    names = (*events.names, *added)
    shapes = [NameShapes(names, [events.shapes, NameShapes(added)])]
    return replace(events, end_ns=end_ns, kind=kind, name=name, names=names, known_shapes=shapes)
