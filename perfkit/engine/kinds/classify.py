"""Classify events as communication, compute, copies or data loading (metrics.md section 2).

Each name is classified once, because a trace has 100,000 events but 1,000 names; events look up their name's class.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.kinds.kernel_rules import KIND_CODE, NO_RULE, apply_rules, kernel_codes
from perfkit.engine.kinds.plausibility import Work
from perfkit.records.kernel_rules import KernelRule, KernelRuleUse
from perfkit.records.per_rank.work import KernelClass
from perfkit.trace.categories import backend_annotations, communication_operators, whole_span_annotations
from perfkit.trace.events import EventKind, Events
from perfkit.trace.intervals import Ints, contained, innermost
from perfkit.trace.lanes import Id

DATA_LOADING: Final = r"enumerate\(DataLoader\)#|perfkit\.data_loading$"
COMPILING: Final = re.compile(r"(\w+\.)*compile_fx|Inductor::compile")
TIMED_BY_COMPILER: Final = re.compile(r" \(dynamo_timed\)$")
"""torch.compile's own operators and annotations while it compiles, not while it runs what it compiled."""

_CHUNK: Final = 1 << 16
_MAX_CHUNKS: Final = 8
"""Each chunk scans all events, so their number is bounded to keep the time linear."""
_FEW_KEYS: Final = 16
_MOST_DEVICES: Final = 1024
"""Of a process: each takes a pass over the steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """Classes by name; each column has shape (number of names,)."""

    kernel: NDArray[np.int8]
    """The kind that the rules give a kernel of this name: an index into `KERNEL_KINDS`, or `NO_RULE`."""
    given_class: dict[int, KernelClass]
    """Classes that a user's rules give to kernels, by name."""
    rule_uses: list[KernelRuleUse]
    """What each of these rules did."""
    communication_operator: NDArray[np.bool_]
    backend_annotation: NDArray[np.bool_]
    whole_span_annotation: NDArray[np.bool_]
    data_loading: NDArray[np.bool_]
    compiling: NDArray[np.bool_]
    """Operators and annotations that compile."""


def classify_names(events: Events, kernel_rules: Sequence[KernelRule] = ()) -> Names:
    """Classify each name by everything that the name alone decides; `kernel_rules` come before perfkit's own.

    A name is looked up only as what it occurs as, because a program may put a counter into the names of a million
    operators: a name that no kernel has is `NO_RULE`.
    """
    count = len(events.names)
    kernel = np.full(count, NO_RULE, np.int8)
    is_kernel = events.kind == EventKind.KERNEL
    kernels = events.names_of(is_kernel)
    kernel[kernels] = kernel_codes(events.shapes, kernels, kernel_rules)
    host = np.zeros(count, np.bool_)
    host[events.names_of(events.rows(EventKind.OPERATOR, EventKind.ANNOTATION))] = True
    number = np.bincount(events.name[is_kernel], minlength=count)
    applied = apply_rules({name: events.names[name] for name in kernels.tolist()}, number, tuple(kernel_rules))
    return Names(
        kernel=kernel,
        given_class=applied.classes,
        rule_uses=applied.uses,
        communication_operator=matching(events, host, communication_operators()),
        backend_annotation=matching(events, host, backend_annotations()),
        whole_span_annotation=matching(events, host, whole_span_annotations()),
        data_loading=matching(events, host, re.compile(DATA_LOADING)),
        compiling=matching(events, host, COMPILING) | (host & events.shapes.containing(TIMED_BY_COMPILER)[:count]),
    )


def matching(events: Events, candidates: NDArray[np.bool_], pattern: "re.Pattern[str]") -> NDArray[np.bool_]:
    """Return which of the candidate names begin with a pattern."""
    return candidates & events.shapes.starting_with(pattern)[: len(candidates)]


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
    number: NDArray[np.int16]
    """Index into `numbers` of the device that ran it; 0 where there is one."""
    numbers: tuple[str, ...] = ()
    """The process's devices, if several compute in its steps; else empty."""

    @property
    def is_compute(self) -> NDArray[np.bool_]:
        """Every kernel that is not communication."""
        return ~self.is_copy & ~self.is_communication


def find_device(work: Work, names: Names) -> Device:
    """Identify communication kernels, and leave out waits that the trace lists as kernels."""
    events, row = work.events, work.row
    by_rule = np.where(events.kind[row] == EventKind.COPY, KIND_CODE["memcpy"], names.kernel[events.name[row]])
    works = by_rule != KIND_CODE["wait"]
    row, launch_row, by_rule = row[works], work.launch_row[works], by_rule[works]
    launched_by = innermost_at_launch(events, launch_row, communicating_candidates(events, names))
    by_operator = (launched_by >= 0) & names.communication_operator[events.name[launched_by]]
    return Device(
        row=row,
        launch_row=launch_row,
        launched_ns=np.where(launch_row >= 0, events.start_ns[launch_row], events.start_ns[row]),
        is_copy=by_rule == KIND_CODE["memcpy"],
        is_communication=(by_rule == KIND_CODE["communication"]) | ((by_rule == NO_RULE) & by_operator),
        number=np.broadcast_to(np.int16(0), len(row)),
    )


def tell_apart(events: Events, device: Device, in_steps: NDArray[np.bool_]) -> Device:
    """Return a process's device activities by device, if several compute in the steps.

    What runs elsewhere, such as a copy to a device of another process, counts for the first: a device that never
    computes is not one that the program waits for.
    """
    number: dict[Id, int] = {}
    if not events.threads:
        return device
    place = np.array([number.setdefault(pid, len(number)) for pid, _ in events.threads], np.int64)
    of = place[events.thread[device.row]]
    computing = np.unique(of[device.is_compute & in_steps]).tolist()
    labels = {at: str(pid) for pid, at in number.items()}
    computing = sorted(computing, key=lambda at: (len(labels[at]), labels[at]))[:_MOST_DEVICES]
    if len(computing) < 2:
        return device
    index = np.zeros(len(number), np.int16)
    index[computing] = np.arange(len(computing))
    return replace(device, number=index[of], numbers=tuple(labels[at] for at in computing))


def communicating_candidates(events: Events, names: Names) -> NDArray[np.bool_]:
    """Return which events are operators or backend annotations, the candidates for the innermost event at a launch."""
    is_candidate = events.is_of(EventKind.OPERATOR)
    is_candidate[events.rows(EventKind.ANNOTATION, named=names.backend_annotation)] = True
    return is_candidate


def innermost_at_launch(events: Events, launch_row: Ints, is_candidate: NDArray[np.bool_]) -> Ints:
    """Return, per launch, the row of the innermost candidate at its start on its thread; -1 if none runs.

    Works through chunks of time with only the candidates that run in each, because a trace may have millions.
    """
    found = np.full(len(launch_row), -1, np.int64)
    launched = np.flatnonzero(launch_row >= 0)
    if not len(launched) or not is_candidate.any():
        return found
    launched = launched[np.argsort(events.start_ns[launch_row[launched]], kind="stable")]
    chunks = 1 + int(np.count_nonzero(is_candidate)) // _CHUNK
    for part in np.array_split(launched, min(chunks, _MAX_CHUNKS, len(launched))):
        first, last = events.start_ns[launch_row[part[[0, -1]]]]
        runs = is_candidate & (events.start_ns <= last)
        runs &= events.end_ns > first
        candidates = rows_by_key(events.thread, np.flatnonzero(runs))
        for thread, here in rows_by_key(events.thread[launch_row], part).items():
            among = candidates.get(thread, part[:0])
            inner = innermost(events.start_ns[among], events.end_ns[among], events.start_ns[launch_row[here]])
            found[here] = np.append(among, -1)[inner]
    return found


def rows_by_key(key: NDArray[Any], rows: Ints | None = None) -> dict[int, Ints]:
    """Return `rows` (None: all) by the value that `key`, a column, has at each; in order within each.

    Sorting once is what keeps many threads cheap: a scan per thread costs threads times events. Up to sixteen scans
    take less time than a sort (measured with a million rows), and a third of its memory.
    """
    rows = np.arange(len(key)) if rows is None else rows
    if not len(rows):
        return {}
    keys = key[rows]
    low, high = int(keys.min()), int(keys.max())
    if high - low < _FEW_KEYS:
        return {found: of for found in range(low, high + 1) if len(of := rows[keys == found])}
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    cuts = np.flatnonzero(keys[1:] != keys[:-1]) + 1
    return dict(zip(keys[np.append(0, cuts)].tolist(), np.split(rows[order], cuts), strict=True))


def data_loading_rows(events: Events, names: Names) -> Ints:
    """Return the rows of data-loading annotations."""
    return events.rows(EventKind.ANNOTATION, named=names.data_loading)


def in_compilation(events: Events, names: Names, rows: Ints) -> NDArray[np.bool_]:
    """Return for each row whether it is, or lies within, an operator or annotation that compiles, on its thread."""
    compiling = events.rows(EventKind.OPERATOR, EventKind.ANNOTATION, named=names.compiling)
    return nested_on_thread(events, rows, compiling)


def nested_on_thread(events: Events, rows: Ints, outer: Ints) -> NDArray[np.bool_]:
    """Return for each row whether its span lies within the span of an `outer` row on the same thread."""
    inside = np.zeros(len(rows), np.bool_)
    if not len(outer):
        return inside
    places = rows_by_key(events.thread[rows])
    for thread, around in rows_by_key(events.thread, outer).items():
        here = places.get(thread, outer[:0])
        inside[here] = contained(
            events.start_ns[rows[here]], events.end_ns[rows[here]], events.start_ns[around], events.end_ns[around]
        )
    return inside
