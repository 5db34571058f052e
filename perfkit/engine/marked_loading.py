"""Count what a user's marker matches as data loading: annotations and Python functions of the thread that trains.

Each outermost span that it matches is added to the trace as an annotation `perfkit.data_loading`, which is what the
program would have recorded with `perfkit.data_loading()` around it (metrics.md section 2).
"""

import re
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.kinds.classify import DATA_LOADING as LOADING_NAMES
from perfkit.engine.steps.marks import step_names, training_thread
from perfkit.phases import DATA_LOADING
from perfkit.trace.categories import backend_annotations, whole_span_annotations
from perfkit.trace.events import UNKNOWN, EventKind, Events, PythonFrames, RankTrace, TimelineDetail
from perfkit.trace.intervals import Ints, Union, contained, outermost
from perfkit.trace.name_matching import NameShapes

_FUNCTION: Final = re.compile(r"\(\d+\): ([^():]+)$")
"""The function in the name of a Python frame, as in `train.py(116): get_batch`."""
_CATEGORY: Final = "user_annotation"

_Number = TypeVar("_Number", bound=np.integer[Any])


class Marked(NamedTuple):
    """A trace with the spans that a marker matches."""

    trace: RankTrace
    has_loading: bool
    """Whether it matches any, or the program was recorded with marks of its own: these may be of the same functions."""


def mark_loading(trace: RankTrace, data_marker: str, step_marker: str | None) -> Marked:
    """Return a trace in which what a marker matches is data loading.

    Neither annotations of steps and collectives nor a span that contains a whole step can be: a function that trains
    contains its loading, and all else.

    Args:
        data_marker: a regular expression for the names of annotations and functions, searched for in each.
        step_marker: as in `find_steps`.
    """
    events = trace.events
    annotations = events.rows(EventKind.ANNOTATION)
    is_step = step_names(events, annotations, None) | step_names(events, annotations, step_marker)
    steps = annotations[is_step[events.name[annotations]]]
    thread = training_thread(events, step_marker)
    annotations = annotations[(events.thread[annotations] == thread) & ~is_step[events.name[annotations]]]
    spans = _matching_spans(trace, annotations, thread, re.compile(data_marker))
    kept = ~_contains_any(spans, Union(events.start_ns[steps], events.end_ns[steps]))
    spans = Union(spans.start[kept], spans.end[kept])
    known = annotations[events.shapes.starting_with(re.compile(LOADING_NAMES))[events.name[annotations]]]
    fresh = ~contained(*spans, events.start_ns[known], events.end_ns[known])
    fresh[fresh] = outermost(spans.start[fresh], spans.end[fresh])
    own_marks = events.shapes.beginning_with(DATA_LOADING)[events.name[known]]
    has_loading = bool(len(fresh) or own_marks.any())
    spans = Union(spans.start[fresh], spans.end[fresh])
    return Marked(_with_annotations(trace, spans, thread) if len(spans.start) else trace, has_loading)


def _matching_spans(trace: RankTrace, annotations: Ints, thread: int, pattern: "re.Pattern[str]") -> Union:
    """Return the spans of the annotations, and of functions of the thread, that match; in no order."""
    events, frames = trace.events, trace.frames
    rows = annotations[_matching_names(events, pattern)[events.name[annotations]]]
    calls = np.flatnonzero((frames.thread == thread) & _matching_functions(frames, pattern)[frames.name])
    return Union(
        np.concatenate((events.start_ns[rows], frames.start_ns[calls])),
        np.concatenate((events.end_ns[rows], frames.end_ns[calls])),
    )


def _matching_names(events: Events, pattern: "re.Pattern[str]") -> NDArray[np.bool_]:
    """Return which names an annotation may have that is to be data loading; shape (number of names,)."""
    shapes, found = events.shapes, np.zeros(len(events.names), np.bool_)
    if len(found):
        collective = shapes.starting_with(backend_annotations()) | shapes.starting_with(whole_span_annotations())
        found[:] = shapes.containing(pattern) & ~collective
    return found


def _matching_functions(frames: PythonFrames, pattern: "re.Pattern[str]") -> NDArray[np.bool_]:
    """Return which names of frames are those of functions that match; shape (number of names,)."""
    functions = (_FUNCTION.search(name) for name in frames.names)
    matches = (match is not None and pattern.search(match[1]) is not None for match in functions)
    return np.fromiter(matches, np.bool_, len(frames.names))


def _contains_any(spans: Union, steps: Union) -> NDArray[np.bool_]:
    """Return which spans contain a whole step; steps do not overlap."""
    order = np.argsort(steps.start, kind="stable")
    ends = np.append(steps.end[order], np.iinfo(np.int64).max)
    following = np.searchsorted(steps.start[order], spans.start, side="left")
    return np.asarray(ends[following] <= spans.end)


def _with_annotations(trace: RankTrace, spans: Union, thread: int) -> RankTrace:
    events, count = trace.events, len(spans.start)
    name, names, shapes = _index_of(events)

    def extended(column: NDArray[_Number], value: int) -> NDArray[_Number]:
        return np.append(column, np.full(count, value, column.dtype))

    added = replace(
        events,
        kind=extended(events.kind, EventKind.ANNOTATION),
        name=extended(events.name, name),
        start_ns=np.append(events.start_ns, spans.start),
        end_ns=np.append(events.end_ns, spans.end),
        thread=np.append(events.thread, np.full(count, thread, events.thread.dtype)),
        correlation=np.append(events.correlation, np.full(count, UNKNOWN, events.correlation.dtype)),
        names=names,
        known_shapes=[shapes],
    )
    return replace(trace, events=added, detail=trace.detail and _with_category(trace.detail, count))


def _index_of(events: Events) -> tuple[int, tuple[str, ...], NameShapes]:
    """Return the index of the annotation's name, and the names and shapes that have it."""
    if DATA_LOADING in events.names:
        return events.names.index(DATA_LOADING), events.names, events.shapes
    names = (*events.names, DATA_LOADING)
    return len(events.names), names, NameShapes(names, [events.shapes, NameShapes((DATA_LOADING,))])


def _with_category(detail: TimelineDetail, count: int) -> TimelineDetail:
    categories = detail.categories if _CATEGORY in detail.categories else (*detail.categories, _CATEGORY)
    added = np.full(count, categories.index(_CATEGORY), detail.category.dtype)
    return replace(detail, category=np.append(detail.category, added), categories=categories)
