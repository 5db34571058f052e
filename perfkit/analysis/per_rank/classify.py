"""Classify events as communication, compute, copies or data loading (metrics.md section 2).

Each name is classified once, because a trace has 100,000 events but 1,000 names; events look up their name's class.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from perfkit.analysis.per_rank.kernel_rules import KIND_CODE, NO_RULE, kernel_code
from perfkit.analysis.per_rank.name_patterns import DATA_LOADING
from perfkit.schema.kernel_rules import KernelRule
from perfkit.trace.categories import backend_annotations, communication_operators, whole_span_annotations
from perfkit.trace.events import EventKind, Events
from perfkit.trace.intervals import Ints, contained, innermost

_CHUNK: Final = 1 << 16
_MAX_CHUNKS: Final = 8
"""Chunks scan all events, so their number over all threads is bounded to keep the time linear."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Classes by name; each column has shape (number of names,)."""

    kernel: NDArray[np.int8]
    """What the rules say of a kernel of this name: an index into `KERNEL_KINDS`, or `NO_RULE`."""
    communication_operator: NDArray[np.bool_]
    backend_annotation: NDArray[np.bool_]
    whole_span_annotation: NDArray[np.bool_]
    data_loading: NDArray[np.bool_]


def classify_names(names: tuple[str, ...], kernel_rules: Sequence[KernelRule] = ()) -> Names:
    """Classify each name by everything that the name alone decides; `kernel_rules` come before perfkit's own."""
    own = tuple(kernel_rules)

    def matching(pattern: "re.Pattern[str]") -> NDArray[np.bool_]:
        return _by_name(names, lambda name: pattern.match(name) is not None)

    return Names(
        kernel=np.fromiter((kernel_code(name, own) for name in names), np.int8, len(names)),
        communication_operator=matching(communication_operators()),
        backend_annotation=matching(backend_annotations()),
        whole_span_annotation=matching(whole_span_annotations()),
        data_loading=matching(re.compile(DATA_LOADING)),
    )


def _by_name(names: tuple[str, ...], decide: Callable[[str], bool]) -> NDArray[np.bool_]:
    return np.fromiter((decide(name) for name in names), np.bool_, len(names))


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """Device activities of a trace and their launches; columns of shape (d,)."""

    row: Ints
    """Row in `Events`."""
    launch_row: Ints
    """Row of the earliest launch with the same correlation; -1 if none was recorded."""
    launched_ns: Ints
    """Start of that launch; the activity's own start without one."""
    is_copy: NDArray[np.bool_]
    is_communication: NDArray[np.bool_]

    @property
    def is_compute(self) -> NDArray[np.bool_]:
        """Every kernel that is not communication."""
        return ~self.is_copy & ~self.is_communication


def find_device(events: Events, names: Names) -> Device:
    """Join device activities to their launches, and identify communication kernels."""
    row = events.rows(EventKind.KERNEL, EventKind.COPY)
    by_rule = np.where(events.kind[row] == EventKind.COPY, KIND_CODE["memcpy"], names.kernel[events.name[row]])
    works = by_rule != KIND_CODE["wait"]
    row, by_rule = row[works], by_rule[works]
    launch_row = _join_launches(events, row)
    launched_by = innermost_at_launch(events, launch_row, communicating_candidates(events, names))
    by_operator = (launched_by >= 0) & names.communication_operator[events.name[launched_by]]
    return Device(
        row=row,
        launch_row=launch_row,
        launched_ns=np.where(launch_row >= 0, events.start_ns[launch_row], events.start_ns[row]),
        is_copy=by_rule == KIND_CODE["memcpy"],
        is_communication=(by_rule == KIND_CODE["communication"]) | ((by_rule == NO_RULE) & by_operator),
    )


def communicating_candidates(events: Events, names: Names) -> NDArray[np.bool_]:
    """Return which events are operators or backend annotations, the candidates for the innermost event at a launch."""
    is_annotation = (events.kind == EventKind.ANNOTATION) & names.backend_annotation[events.name]
    return np.asarray((events.kind == EventKind.OPERATOR) | is_annotation)


def _join_launches(events: Events, device: Ints) -> Ints:
    """Return for each device row the row of the earliest launch with its correlation, or -1."""
    launches = events.rows(EventKind.LAUNCH)
    launches = launches[events.correlation[launches] >= 0]
    if not len(launches):
        return np.full(len(device), -1, np.int64)
    launches = launches[np.lexsort((events.start_ns[launches], events.correlation[launches]))]
    ids = events.correlation[launches]
    wanted = events.correlation[device]
    first = np.minimum(np.searchsorted(ids, wanted, side="left"), len(ids) - 1)
    return np.where(ids[first] == wanted, launches[first], -1)


def innermost_at_launch(events: Events, launch_row: Ints, is_candidate: NDArray[np.bool_]) -> Ints:
    """Return, per launch, the row of the innermost candidate at its start on its thread; -1 if none runs.

    Works through chunks of time with only the candidates that run in each, because a trace may have millions.
    """
    found = np.full(len(launch_row), -1, np.int64)
    for thread in np.unique(events.thread[launch_row[launch_row >= 0]]):
        of_thread = is_candidate & (events.thread == thread)
        here = np.flatnonzero((launch_row >= 0) & (events.thread[launch_row] == thread))
        here = here[np.argsort(events.start_ns[launch_row[here]], kind="stable")]
        chunks = 1 + int(np.count_nonzero(of_thread)) // max(_CHUNK, len(of_thread) // _MAX_CHUNKS)
        for part in np.array_split(here, min(chunks, len(here))):
            instant = events.start_ns[launch_row[part]]
            among = np.flatnonzero(of_thread & (events.start_ns <= instant[-1]) & (events.end_ns > instant[0]))
            inner = innermost(events.start_ns[among], events.end_ns[among], instant)
            hit = inner >= 0
            found[part[hit]] = among[inner[hit]]
    return found


def data_loading_rows(events: Events, names: Names) -> Ints:
    """Return the rows of data-loading annotations."""
    return np.flatnonzero((events.kind == EventKind.ANNOTATION) & names.data_loading[events.name])


def nested_on_thread(events: Events, rows: Ints, outer: Ints) -> NDArray[np.bool_]:
    """Return for each row whether its span lies within the span of an `outer` row on the same thread."""
    inside = np.zeros(len(rows), np.bool_)
    for thread in np.unique(events.thread[outer]):
        here = np.flatnonzero(events.thread[rows] == thread)
        around = outer[events.thread[outer] == thread]
        inside[here] = contained(
            events.start_ns[rows[here]], events.end_ns[rows[here]], events.start_ns[around], events.end_ns[around]
        )
    return inside
