"""Host spans annotated by the program: forward, backward, optimizer and others."""

import re
from typing import Final

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.breakdown import Activity, measure_exposed
from perfkit.engine.kinds.classify import Names
from perfkit.engine.steps.marks import step_names
from perfkit.engine.steps.windows import Steps
from perfkit.phases import PIPELINE_ACTION
from perfkit.records.aggregate import MOST_PHASES
from perfkit.records.common import CATEGORIES
from perfkit.records.rank import ExposedNs, PhaseStat
from perfkit.trace.events import EventKind, Events
from perfkit.trace.intervals import Ints

_FSDP: Final = "FSDP::"
_PIPELINE: Final = re.compile(r"PP:\d+([A-Z_]+?)\d*")
"""torch's annotations of a pipeline: stage, action, micro-batch."""
_MICRO_BATCH: Final = re.compile(rf"((?:{re.escape(PIPELINE_ACTION)}|PP:)\d+[FBIW])\d+")
_WITH_PART: Final = re.compile(f"{_FSDP}|PP:")
"""What begins like either. A program may put a counter into its annotations, and have a million of them."""


def annotation_rows(events: Events, names: Names, steps: Steps, step_marker: str | None) -> Ints:
    """Return the annotations that start within the steps, without step and collective annotations."""
    wanted = ~(names.backend_annotation | names.whole_span_annotation)
    rows = events.rows(EventKind.ANNOTATION)
    rows = rows[wanted[events.name[rows]] & ~step_names(events, rows, step_marker)[events.name[rows]]]
    return rows[steps.within(events.start_ns[rows])]


def tabulate_phases(
    events: Events, names: Names, activity: Activity, steps: Steps, step_marker: str | None
) -> list[PhaseStat]:
    """Sum the annotations of `annotation_rows` by name, largest first; those of FSDP over its layers.

    perfkit's own annotations of micro-batches are left out: `perfkit.forward` and `perfkit.backward` are inside them.
    """
    rows = annotation_rows(events, names, steps, step_marker)
    micro_batch = events.shapes.beginning_with(PIPELINE_ACTION)
    rows = rows[~micro_batch[events.name[rows]]]
    duration_ns = events.end_ns[rows] - events.start_ns[rows]
    duration_ns = duration_ns - steps.pauses.time_in(events.start_ns[rows], events.end_ns[rows])
    keys, place = np.unique(events.name[rows], return_inverse=True)
    phases, phase_of = _fold(events, keys)
    place = phase_of[place]
    total_ns, max_ns = (np.zeros(len(phases), np.int64) for _ in range(2))
    np.add.at(total_ns, place, duration_ns)
    np.maximum.at(max_ns, place, duration_ns)
    listed = np.lexsort((np.arange(len(phases)), -total_ns))[:MOST_PHASES]
    exposed_ns = _exposed_ns(events, rows, place, listed, activity, steps)
    count = np.bincount(place, minlength=len(phases))
    return [
        PhaseStat(
            name=phases[k],
            count=int(count[k]),
            total_ns=int(total_ns[k]),
            max_ns=int(max_ns[k]),
            exposed_ns=exposed,
        )
        for k, exposed in zip(listed.tolist(), exposed_ns, strict=True)
    ]


def micro_batch_names(events: Events) -> dict[int, str]:
    """Return the annotations of a pipeline's micro-batches by index, each without its micro-batch (`PP:1F`).

    What a stage computes of one micro-batch it computes of all: rows of them differ in nothing else.
    """
    if not events.names:
        return {}
    found = np.flatnonzero(events.shapes.beginning_with(PIPELINE_ACTION, "PP:")).tolist()
    matches = ((key, _MICRO_BATCH.fullmatch(events.names[key])) for key in found)
    return {key: match[1] for key, match in matches if match}


def names_without_part(events: Events) -> dict[int, str]:
    """Return the annotations of micro-batches and of FSDP's layers by index, each without what they differ in."""
    merged = micro_batch_names(events)
    has_part = np.flatnonzero(events.shapes.starting_with(_WITH_PART)) if events.names else ()
    without = ((key, _without_part(events.names[key])) for key in map(int, has_part) if key not in merged)
    return merged | {key: name for key, name in without if name != events.names[key]}


def _exposed_ns(
    events: Events, rows: Ints, place: Ints, listed: Ints, activity: Activity, steps: Steps
) -> list[ExposedNs] | list[None]:
    """Return the time of each listed phase by category; None with a device, whose time the host's does not show."""
    if not len(activity.self_ns):
        return [None] * len(listed)
    start, end = events.start_ns[rows], events.end_ns[rows]
    total_ns = np.zeros((int(place.max(initial=-1)) + 1, len(CATEGORIES)), np.int64)
    paused_ns = steps.pauses.time_in(start, end)
    np.add.at(total_ns, place, measure_exposed(activity, start, end, paused_ns))
    return [ExposedNs(**dict(zip(CATEGORIES, row, strict=True))) for row in total_ns[listed].tolist()]


def _fold(events: Events, keys: Ints | NDArray[np.int32]) -> tuple[list[str], Ints]:
    """Return the distinct phases that annotations belong to, and the place of each name's phase among them.

    FSDP2 annotates each layer by name (`FSDP::pre_forward (layers.7)`), and a pipeline each micro-batch of a stage
    (`PP:1F0`): hundreds of rows that differ in the layer or micro-batch only.
    """
    names = [events.names[key] for key in keys.tolist()]
    has_part = events.shapes.starting_with(_WITH_PART)[keys] if names else np.zeros(0, np.bool_)
    for k in np.flatnonzero(has_part).tolist():
        names[k] = _without_part(names[k])
    if not has_part.any():
        return names, np.arange(len(names))
    phases = list(dict.fromkeys(names))
    place = {name: k for k, name in enumerate(phases)}
    return phases, np.array([place[name] for name in names], np.int64)


def _without_part(name: str) -> str:
    if name.startswith(_FSDP):
        return name.partition(" ")[0]
    match = _PIPELINE.fullmatch(name)
    return f"PP:{match[1]}" if match else name
