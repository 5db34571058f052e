"""What marks the steps of a trace: annotations, else steps of the optimizer, else loads (metrics.md section 3)."""

import re
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.kinds.classify import DATA_LOADING, Device, rows_by_key
from perfkit.engine.steps.pauses import ENGINE, backward_starts
from perfkit.trace.events import EventKind, Events
from perfkit.trace.intervals import Ints, covers, envelopes, outermost, union

StepSource = Literal["host", "device", "optimizer", "loader", "trace"]
"""What marks the steps: their annotations on the host or on the device, those of optimizers or loads, or nothing."""
STEP: Final = "ProfilerStep#"
"""What torch calls a step, before its number."""
_STEP: Final = re.compile(rf"{STEP}(\d+)$")
_DIGITS: Final = re.compile(r"\d+")
_STEP_NUMBER: Final = slice(len(STEP), len(STEP) + 18)
"""Where a step's name has its number, of which no more digits fit a column."""
_OPTIMIZER: Final = re.compile(r"Optimizer\.step#")
_HOST: Final = EventKind.OPERATOR, EventKind.ANNOTATION, EventKind.LAUNCH
NEVER_NS: Final = np.iinfo(np.int64).max


class Marks(NamedTuple):
    """The steps on the host, in order; columns of shape (k,)."""

    source: StepSource
    number: list[int]
    start_ns: Ints
    end_ns: Ints
    after_ns: int
    """What the host does from then on belongs to no step."""


class _Spans(NamedTuple):
    """Spans of the host by start; columns of shape (s,)."""

    name: Ints
    start_ns: Ints
    end_ns: Ints
    on_device: bool = False
    """Whether they were recorded on the device: each from the first launch within it to the last."""


def find_marks(events: Events, device: Device, marker: str | None, counted: tuple[int, int] | None) -> Marks | None:
    """Return the steps that the trace marks; None without any. The arguments are those of `find_steps`."""
    marked = _spans(events, device, _matching(events, marker))
    if len(marked.name):
        return _of_annotations(events, marked, marker, counted)
    return None if marker else _of_optimizer(events, device) or _of_loader(events, device)


def step_names(events: Events, rows: Ints, marker: str | None) -> NDArray[np.bool_]:
    """Return which names, of those that the annotations `rows` have, mark a step; `marker` as in `find_steps`."""
    marks = np.zeros(len(events.names), np.bool_)
    marks[events.names_of(rows)] = True
    return marks & _matching(events, marker)[: len(marks)]


def step_number(name: str) -> int:
    """Return N of `ProfilerStep#N`."""
    return int(name[_STEP_NUMBER])


def training_thread(events: Events, marker: str | None) -> int:
    """Return the thread that trains; -1 without any: that of the steps, if it runs anything, else that which runs most.

    On a device autograd's thread runs the backward pass, and most operators: what its nodes run does not count.
    """
    annotations = events.rows(EventKind.ANNOTATION)
    steps = annotations[step_names(events, annotations, marker)[events.name[annotations]]]
    operators, launches = events.rows(EventKind.OPERATOR), events.rows(EventKind.LAUNCH)
    works = np.isin(events.thread[steps], events.thread[np.concatenate((operators, launches))])
    for rows in (steps[works], _besides_nodes(events, operators), operators, launches, steps):
        if len(rows):
            return int(np.bincount(events.thread[rows]).argmax())
    return -1


def _besides_nodes(events: Events, operators: Ints) -> Ints:
    """Return the operators that no node of autograd runs on the same thread."""
    is_node, kept = events.shapes.beginning_with(ENGINE)[events.name], []
    for rows in rows_by_key(events.thread, operators).values():
        nodes = rows[is_node[rows]]
        kept.append(rows[~covers(union(events.start_ns[nodes], events.end_ns[nodes]), events.start_ns[rows])])
    return np.concatenate([operators[:0], *kept])


def _matching(events: Events, marker: str | None) -> NDArray[np.bool_]:
    return events.shapes.containing(re.compile(marker)) if marker else events.shapes.starting_with(_STEP)


def _of_annotations(events: Events, marked: _Spans, marker: str | None, counted: tuple[int, int] | None) -> Marks:
    number = _numbers(events, marked.name, marker)
    begin, count = 0, len(number)
    if marker is None and counted is not None:
        begin, count = sum(step < counted[0] for step in number), sum(step <= counted[1] for step in number)
        begin, count = (begin, count) if begin < count else (0, len(number))
    # Of torch's steps one begins where the other ends; what lies between a program's own belongs to none.
    after_ns = int(marked.end_ns[-1]) if marker else NEVER_NS
    after_ns = int(marked.start_ns[count]) if count < len(number) else after_ns
    source: StepSource = "device" if marked.on_device else "host"
    return Marks(source, number[begin:count], marked.start_ns[begin:count], marked.end_ns[begin:count], after_ns)


def _of_optimizer(events: Events, device: Device) -> Marks | None:
    """Return the steps that end with those of the first optimizer that steps, if gradients were computed in them.

    The first begins with what is loaded or differentiated first: start-up comes before.
    """
    spans = _first_named(_spans(events, device, events.shapes.starting_with(_OPTIMIZER)))
    operators = events.rows(EventKind.OPERATOR)
    engine = operators[events.shapes.beginning_with(ENGINE)[events.name[operators]]]
    # An optimizer that steps within backward does so for each parameter.
    apart = ~covers(union(events.start_ns[engine], events.end_ns[engine]), spans.start_ns)
    spans = spans._replace(name=spans.name[apart], start_ns=spans.start_ns[apart], end_ns=spans.end_ns[apart])
    backward = backward_starts(events)
    ends = spans.end_ns
    if len(backward):
        ends = ends[np.diff(np.searchsorted(backward, ends), prepend=0) > 0]
    if not len(ends):
        return None
    loads = _spans(events, device, events.shapes.starting_with(re.compile(DATA_LOADING)))
    begins = np.concatenate((loads.start_ns, events.start_ns[events.operator_args.sequence_row]))
    begins = begins if len(begins) else np.append(events.start_ns[events.rows(*_HOST)], spans.start_ns)
    starts = np.append(min(begins.min(), spans.start_ns[0]), ends[:-1])
    return Marks("optimizer", list(range(len(ends))), starts, ends, int(ends[-1]))


def _of_loader(events: Events, device: Device) -> Marks | None:
    """Return the steps that begin with loads; after one that finds no batch, nothing runs before the next."""
    loads = _first_named(_spans(events, device, events.shapes.starting_with(re.compile(DATA_LOADING))))
    if not len(loads.name):
        return None
    rows = events.rows(*_HOST)
    work = np.sort(events.start_ns[rows[events.kind[rows] != EventKind.ANNOTATION]])
    following = np.append(loads.start_ns[1:], NEVER_NS)
    used = np.searchsorted(work, following) > np.searchsorted(work, loads.end_ns)
    if not used.any():
        return None
    last = int(np.flatnonzero(used)[-1])
    after_ns = int(following[last])
    end_ns = np.append(loads.start_ns[used][1:], min(after_ns, int(events.end_ns[rows].max())))
    return Marks("loader", list(range(len(end_ns))), loads.start_ns[used], end_ns, after_ns)


def _first_named(spans: _Spans) -> _Spans:
    """Return the outermost spans of the name that occurs first."""
    kept = np.flatnonzero(spans.name == spans.name[:1])
    kept = kept[outermost(spans.start_ns[kept], spans.end_ns[kept])]
    kept = kept[np.argsort(spans.start_ns[kept], kind="stable")]
    return spans._replace(name=spans.name[kept], start_ns=spans.start_ns[kept], end_ns=spans.end_ns[kept])


def _spans(events: Events, device: Device, wanted: NDArray[np.bool_]) -> _Spans:
    """Return the annotations of the wanted names on the host, or without any those on the device."""
    found = []
    for kind in (EventKind.ANNOTATION, EventKind.DEVICE_ANNOTATION):
        rows = events.rows(kind)
        rows = rows[wanted[events.name[rows]]] if len(rows) else rows
        found.append(rows[np.argsort(events.start_ns[rows], kind="stable")])
    host, on_device = found
    again = (np.diff(events.start_ns[host]) == 0) & (np.diff(events.name[host]) == 0)
    host = host[np.append(True, ~again)[: len(host)]]  # without those that repeat the name and start of the one before
    if len(host) or not len(on_device):
        return _Spans(events.name[host].astype(np.int64), events.start_ns[host], events.end_ns[host])
    return _launched_in(events, device, on_device)


def _launched_in(events: Events, device: Device, rows: Ints) -> _Spans:
    """Return when the host launched what ran in each of the device's annotations, of which each stream has one."""
    first_ns, last_ns = np.full(len(rows), NEVER_NS), np.full(len(rows), -NEVER_NS)
    work_ns, work = events.start_ns[device.row], rows_by_key(events.thread[device.row])
    for thread, here in rows_by_key(events.thread[rows]).items():
        own = work.get(thread, rows[:0])
        own = own[np.argsort(work_ns[own], kind="stable")]
        begin = np.searchsorted(work_ns[own], events.start_ns[rows[here]])
        end = np.searchsorted(work_ns[own], events.end_ns[rows[here]])
        some = end > begin
        first_ns[here[some]] = device.launched_ns[own[begin[some]]]
        last_ns[here[some]] = device.launched_ns[own[end[some] - 1]]
    used = last_ns >= first_ns
    return _over_streams(events.thread[rows[used]], events.name[rows[used]], first_ns[used], last_ns[used] + 1)


def _over_streams(stream: NDArray[np.integer], name: NDArray[np.integer], start_ns: Ints, end_ns: Ints) -> _Spans:
    """Return the spans of all streams together if each step has a name, else those of the stream with most."""
    chosen = max(rows_by_key(stream).values(), key=len, default=np.zeros(0, np.int64))
    names, key = np.unique(name, return_inverse=True)
    if len(np.unique(name[chosen])) < len(chosen):
        names, start_ns, end_ns = name[chosen], start_ns[chosen], end_ns[chosen]
        key = np.arange(len(names))
    first_ns, last_ns = envelopes(key, start_ns, end_ns, len(names))
    order = np.argsort(first_ns, kind="stable")
    return _Spans(names[order].astype(np.int64), first_ns[order], last_ns[order], on_device=True)


def _numbers(events: Events, names: Ints, marker: str | None) -> list[int]:
    """Return the number of each step: the marker's first group, or the last number in the match, or its index."""
    if marker is None:
        return [step_number(events.names[name]) for name in names.tolist()]
    pattern = re.compile(marker)
    return [_number(pattern.search(events.names[name]), order) for order, name in enumerate(names.tolist())]


def _number(match: re.Match[str] | None, order: int) -> int:
    text = (match.group(1) if match.re.groups else match.group()) if match else None
    digits = _DIGITS.findall(text or "")
    return int(digits[-1][:18]) if digits else order
