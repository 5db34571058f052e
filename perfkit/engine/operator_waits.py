"""When the main thread waits in Python that an operator runs, on a CPU-only trace (metrics.md section 4).

A hook that autograd runs, or an `autograd.Function`, may sleep or wait for a lock, a file, or another thread. Nothing
is recorded of that but the operator around it; samples show that the thread did not run. A sample is taken between two
instructions of Python: one within an operator is of Python that the operator runs. What an operator itself waits for,
such as threads that compute for it, is its own.
"""

import numpy as np

from perfkit.engine.breakdown import NO_WAITS, OperatorWaits
from perfkit.engine.kinds.classify import Names
from perfkit.engine.samples import HostSamples
from perfkit.engine.step_graph.rank.host_lanes import segments_of
from perfkit.trace.events import EventKind, Events
from perfkit.trace.intervals import difference, union


def waits_in_operators(events: Events, names: Names, thread: int, samples: HostSamples) -> OperatorWaits:
    """Return when a thread waits within operators other than those that communicate.

    Args:
        events: the trace.
        names: its names.
        thread: the main thread.
        samples: of that thread.
    """
    rows = events.rows(EventKind.OPERATOR)
    rows = rows[events.thread[rows] == thread]
    seen = samples.seen_ns[samples.waits]
    if not len(rows) or not len(seen):
        return NO_WAITS
    first, last = int(events.start_ns[rows].min()), int(events.end_ns[rows].max())
    cut = segments_of(events.start_ns, events.end_ns, rows, first, last)
    if not len(cut.start):
        return NO_WAITS
    place = np.searchsorted(cut.start, seen, side="right") - 1
    place = np.unique(place[(place >= 0) & (cut.end[place] > seen)])
    place = place[~names.communication_operator[events.name[cut.row[place]]]]
    inside = union(cut.start[place], cut.end[place])
    return OperatorWaits(thread, difference(samples.waiting, difference(samples.waiting, inside)))
