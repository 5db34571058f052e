"""Host spans annotated by the program: forward, backward, optimizer and others."""

import numpy as np

from perfkit.analysis.per_rank.classify import Names
from perfkit.analysis.per_rank.steps import Steps, step_names
from perfkit.schema.aggregate import MOST_PHASES
from perfkit.schema.rank import PhaseStat
from perfkit.trace.events import EventKind, Events
from perfkit.trace.intervals import Ints


def annotation_rows(events: Events, names: Names, steps: Steps, step_marker: str | None) -> Ints:
    """Return the annotations that start within the steps, without step and collective annotations."""
    wanted = ~(names.backend_annotation | names.whole_span_annotation)
    rows = events.rows(EventKind.ANNOTATION)
    rows = rows[wanted[events.name[rows]] & ~step_names(events, rows, step_marker)[events.name[rows]]]
    return rows[steps.within(events.start_ns[rows])]


def tabulate_phases(events: Events, names: Names, steps: Steps, step_marker: str | None) -> list[PhaseStat]:
    """Sum the annotations of `annotation_rows` by name, largest first."""
    rows = annotation_rows(events, names, steps, step_marker)
    duration_ns = events.end_ns[rows] - events.start_ns[rows]
    keys, place = np.unique(events.name[rows], return_inverse=True)
    total_ns, max_ns = (np.zeros(len(keys), np.int64) for _ in range(2))
    np.add.at(total_ns, place, duration_ns)
    np.maximum.at(max_ns, place, duration_ns)
    count = np.bincount(place, minlength=len(keys))
    return [
        PhaseStat(name=events.names[keys[k]], count=int(count[k]), total_ns=int(total_ns[k]), max_ns=int(max_ns[k]))
        for k in np.lexsort((keys, -total_ns))[:MOST_PHASES].tolist()
    ]
