"""What one host thread did in given spans of time, and which idle time that explains."""

from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.idle import host_names as kinds
from perfkit.engine.idle import pieces as causes
from perfkit.engine.idle.host_names import HostNames
from perfkit.engine.idle.pieces import Pieces, Texts, merge_neighbours
from perfkit.engine.idle.python_stack import FrameNames, PythonStack, SampledStack, Stacks
from perfkit.engine.samples import HostSamples
from perfkit.records.per_rank.idle import CAUSES, Cause
from perfkit.trace.events import EventKind, Events, PythonFrames
from perfkit.trace.intervals import EMPTY, Ints, Nesting, Union, concatenated, covers, outermost, split, union

ISSUING_NS: Final = 1_000_000
"""Between two launches closer than this, the host is issuing work; otherwise it does something else."""
BETWEEN_OPERATORS_NS: Final = 100_000
"""Getting from one operator to the next in less than this is part of issuing: Python in between takes 2 to 20 us,
several times that under the profiler."""

_PART: Final = 1 << 13
_MOST_PARTS: Final = 32
"""Each part may scan the events of the thread, so their number is bounded to keep the time linear."""
_BLOCK: Final = 4096

_OF_CALL: Final = np.isin(CAUSES, ("allocation", "compilation", "host_work"))
"""Causes whose detail is the runtime call, not the operator around it."""
_OF_CALLEE: Final = np.isin(CAUSES, ("not_running", "profiler"))
"""Causes whose detail is a Python function, not an annotation around it."""
_NEVER: Final = np.iinfo(np.int64).min


@dataclass(frozen=True, kw_only=True)
class Host:
    """What is the same for all threads of a trace."""

    events: Events
    names: HostNames
    frames: PythonFrames
    frame_names: FrameNames
    texts: Texts
    blocking: NDArray[np.bool_]
    """Of each event: whether it is a call that lasted until the copy it launched was done."""
    launches: Union
    """Calls that launched work on a device, in order of their start; not merged."""
    profiling: Union
    """Spans in which the profiling library worked."""
    compiling: Union
    """Spans in which the driver compiled or loaded code."""
    stepless: Union
    """Between the steps that torch's profiler annotated: only the profiler's `step()` runs there."""
    samples: HostSamples | None = None
    """Of the main thread; None without any."""

    @cached_property
    def own_text(self) -> NDArray[np.bool_]:
        """Whether each of `texts` is a function of the program; the last value is that of -1."""
        others = len(self.texts) - len(self.frame_names.names)
        return np.concatenate((np.zeros(others, np.bool_), self.frame_names.own, np.zeros(1, np.bool_)))

    @cached_property
    def waits(self) -> Union:
        """Calls that wait for a device, in order of their start; not merged."""
        calls = self.events.rows(EventKind.LAUNCH)
        rows = calls[(self.names.call[self.events.name[calls]] == kinds.SYNCHRONISING) | self.blocking[calls]]
        rows = rows[np.argsort(self.events.start_ns[rows], kind="stable")]
        return Union(self.events.start_ns[rows], self.events.end_ns[rows])

    @property
    def by_samples(self) -> HostSamples | None:
        """The samples, where they tell what Python did: where the trace has no frames."""
        return None if len(self.frames.name) else self.samples

    def is_issuing(self, instant: Ints) -> NDArray[np.bool_]:
        """Return whether each instant lies in a short launch, between two close together, or shortly before one."""
        if not len(self.launches.start):
            return np.zeros(len(instant), np.bool_)
        last = np.searchsorted(self.launches.start, instant, side="right") - 1
        following = np.minimum(last + 1, len(self.launches.start) - 1)
        begun, ended = self.launches.start[last], self.launches.end[last]
        inside = instant < ended
        length = np.where(inside, ended - begun, self.launches.start[following] - ended)
        known = (last >= 0) & (inside | (following > last))
        before_ns = self.launches.start[np.maximum(following, 0)] - instant
        soon = (before_ns > 0) & (before_ns < BETWEEN_OPERATORS_NS)
        return np.asarray(soon | (known & (length < ISSUING_NS)))


class _Running(NamedTuple):
    """What runs at instants on a thread: rows of events, or -1; columns of shape (n,)."""

    call: Ints
    operator: Ints
    named: Ints
    """Outermost operator that is no wrapper, otherwise the innermost."""
    annotation: Ints
    stack: Stacks


def explain(host: Host, rows: Ints, frame_rows: Ints, spans: Union, samples: HostSamples | None = None) -> Pieces:
    """Cut spans of idle time where what the thread does changes, and return each piece with its cause.

    Works through parts of the time, each with the events that run in it, because there may be millions.

    Args:
        rows: runtime calls, operators and annotations of the thread.
        frame_rows: its Python frames.
        spans: disjoint spans, in order.
        samples: of the thread, in place of frames.
    """
    sampled = None if samples is None else SampledStack(samples, host.frame_names)
    work = _Spans(host.events.start_ns, host.events.end_ns, rows)
    python = _Spans(host.frames.start_ns, host.frames.end_ns, frame_rows)
    parts = []
    for places in np.array_split(np.arange(len(spans.start)), min(_MOST_PARTS, 1 + len(spans.start) // _PART)):
        some = Union(spans.start[places], spans.end[places])
        parts.append(_explain(host, work.near(some), python.near(some), some, sampled))
    return concatenated(parts)


class _Spans:
    """Rows of events, with the time that each block of them spans: most are in order, so few blocks run at a time."""

    def __init__(self, start_ns: Ints, end_ns: Ints, rows: Ints) -> None:
        self._start_ns, self._end_ns, self._rows = start_ns, end_ns, rows
        edges = np.arange(0, len(rows), _BLOCK)
        self._first = np.minimum.reduceat(start_ns[rows], edges) if len(rows) else rows
        self._last = np.maximum.reduceat(end_ns[rows], edges) if len(rows) else rows

    def near(self, spans: Union) -> Ints:
        """Return the rows that run in a span, or so close to it that the pause between may be short."""
        if not len(spans.start):
            return self._rows[:0]
        first, last = spans.start[0] - BETWEEN_OPERATORS_NS, spans.end[-1] + BETWEEN_OPERATORS_NS
        blocks = np.flatnonzero((self._last > first) & (self._first < last)) * _BLOCK
        rows: Ints = np.concatenate([self._rows[:0], *(self._rows[at : at + _BLOCK] for at in blocks.tolist())])
        following = np.searchsorted(spans.end, self._start_ns[rows] - BETWEEN_OPERATORS_NS, side="right")
        begins = np.append(spans.start - BETWEEN_OPERATORS_NS, np.iinfo(np.int64).max)[following]
        return np.asarray(rows[self._end_ns[rows] > begins])


def _explain(host: Host, rows: Ints, frame_rows: Ints, spans: Union, sampled: SampledStack | None) -> Pieces:
    cuts = [host.events.start_ns[rows], host.events.end_ns[rows]]
    cuts += [host.frames.start_ns[frame_rows], host.frames.end_ns[frame_rows]]
    for others in (host.profiling, host.compiling, host.stepless, host.launches):
        cuts += [_between(edges, spans) for edges in others]
    if sampled is not None:
        cuts.append(_between(sampled.bounds, spans))
    parts = split(spans, np.concatenate(cuts))
    if sampled is not None:
        stack = sampled.at(parts.start, spans)
    else:
        stack = PythonStack(host.frames, frame_rows, host.frame_names).at(parts.start)
    running = _running(host, rows, parts.start, stack)
    working = spans_of_rows(host.events, rows[host.events.kind[rows] != EventKind.ANNOTATION])
    issuing = host.is_issuing(parts.start) & _is_short(working, parts.start)
    return merge_neighbours(_with_causes(host, rows, parts, running, issuing), spans.start)


def _between(edges: Ints, spans: Union) -> Ints:
    """Return the edges within the time from the first to the last of the spans."""
    return edges[(edges > spans.start[0]) & (edges < spans.end[-1])] if len(spans.start) else edges[:0]


def spans_of_rows(events: Events, rows: Ints) -> Union:
    """Return the union of the spans (ns) of rows of `events`."""
    return union(events.start_ns[rows], events.end_ns[rows]) if len(rows) else EMPTY


def _is_short(working: Union, instant: Ints) -> NDArray[np.bool_]:
    """Return whether each instant lies in an operator or call (`working`), or in a short pause between two."""
    if not len(working.start):
        return np.zeros(len(instant), np.bool_)
    last = np.searchsorted(working.start, instant, side="right") - 1
    following = np.minimum(last + 1, len(working.start) - 1)
    pause_ns = working.start[following] - working.end[last]
    short = (following > last) & (pause_ns < BETWEEN_OPERATORS_NS)
    return np.asarray((last >= 0) & (short | (instant < working.end[last])))


def _running(host: Host, rows: Ints, instant: Ints, stack: Stacks) -> _Running:
    kind = host.events.kind[rows]
    operators = rows[kind == EventKind.OPERATOR]
    named = operators[~host.names.wrapper[host.events.name[operators]]]
    named = named[outermost(host.events.start_ns[named], host.events.end_ns[named])]
    annotations = rows[kind == EventKind.ANNOTATION]
    operator = _innermost(host.events, operators, instant)
    outer = _innermost(host.events, named, instant)
    return _Running(
        call=_innermost(host.events, rows[kind == EventKind.LAUNCH], instant),
        operator=operator,
        named=np.where(outer >= 0, outer, operator),
        annotation=_innermost(host.events, annotations[host.names.context[host.events.name[annotations]]], instant),
        stack=stack,
    )


def _innermost(events: Events, rows: Ints, instant: Ints) -> Ints:
    if not len(rows):
        return np.full(len(instant), -1, np.int64)
    found = Nesting(events.start_ns[rows], events.end_ns[rows]).at(instant)
    return np.where(found >= 0, rows[found], -1)


def _at(column: NDArray[np.generic], rows: Ints, missing: int) -> Ints:
    """Return the value of a column at each row, and `missing` for -1."""
    if not len(column):
        return np.full(len(rows), missing, np.int64)
    return np.where(rows >= 0, column[rows], missing).astype(np.int64)


def _with_causes(host: Host, rows: Ints, parts: Union, now: _Running, issuing: NDArray[np.bool_]) -> Pieces:
    events, names, instant, stack = host.events, host.names, parts.start, now.stack
    call_kind = np.where(now.call >= 0, names.call[_at(events.name, now.call, 0)], kinds.ISSUING)
    # A Python function within an operator (a hook, an autograd.Function) is what runs, not the operator.
    in_frame = (stack.innermost >= 0) & (stack.start_ns > _at(events.start_ns, now.operator, _NEVER))
    in_frame &= stack.start_ns <= _at(events.end_ns, now.operator, _NEVER)
    in_call = now.call >= 0
    in_operator = ~in_call & (now.operator >= 0) & ~in_frame
    outside = ~in_call & ~in_operator
    waits = (in_call & _at(host.blocking, now.call, 0).astype(np.bool_)) | (call_kind == kinds.SYNCHRONISING)
    waits |= covers(spans_of_rows(events, _synchronising(host, rows)), instant)
    compiles = covers(spans_of_rows(events, rows[names.compiling[events.name[rows]]]), instant)
    compiles |= covers(host.compiling, instant)
    compiles |= (call_kind == kinds.COMPILING) | ((stack.compiler >= 0) & ~in_operator)
    sleeps = outside & stack.waits
    between_steps = outside & covers(host.stepless, instant)
    known = ~outside | (stack.innermost >= 0) | (now.annotation >= 0)
    decided: list[tuple[NDArray[np.bool_], Cause]] = [
        (covers(host.profiling, instant) | (outside & stack.in_profiler) | between_steps, "profiler"),
        (compiles, "compilation"),
        (waits, "synchronisation"),
        (call_kind == kinds.ALLOCATING, "allocation"),
        (sleeps, "not_running"),
        (issuing, "launch_bound"),
        (known, "host_work"),
    ]
    tests, found = zip(*decided, strict=True)
    cause = np.select(tests, [causes.INDEX[name] for name in found], causes.INDEX["unknown"]).astype(np.int8)
    return Pieces(parts.start, parts.end, cause, *_describe(host, now, cause, in_call, in_operator))


def _synchronising(host: Host, rows: Ints) -> Ints:
    """Return the rows of operators that wait for a device; of one that reads a value from the CPU no call does."""
    events, names = host.events, host.names
    operators = rows[names.synchronising_operator[events.name[rows]]]
    if not (events.kind[rows] == EventKind.LAUNCH).any():
        return operators
    first, last = (np.searchsorted(host.waits.start, edge[operators]) for edge in (events.start_ns, events.end_ns))
    return operators[last > first]


def _describe(
    host: Host, now: _Running, cause: NDArray[np.int8], in_call: NDArray[np.bool_], in_operator: NDArray[np.bool_]
) -> tuple[Ints, Ints, Ints]:
    """Return the numbers of the texts of detail, context and annotation."""
    events, stack, texts = host.events, now.stack, host.texts
    operator = texts.of_event_name(_at(events.name, now.named, -1))
    call = texts.of_event_name(_at(events.name, now.call, -1))
    annotation = texts.of_event_name(_at(events.name, now.annotation, -1))
    own, callee = texts.of_frame_name(stack.own), texts.of_frame_name(stack.callee)
    caller = np.where(own >= 0, own, annotation)
    # An annotation made by the innermost function of the program is more specific than that function.
    deeper = (now.annotation >= 0) & (_at(events.start_ns, now.annotation, _NEVER) >= stack.own_start_ns)
    by_callee = (callee >= 0) & ~(deeper & ~_OF_CALLEE[cause])
    python = np.select([by_callee, deeper, own >= 0], [callee, annotation, own], causes.NOTHING_RECORDED)
    around = np.select([by_callee | deeper, own >= 0], [own, np.where(deeper, -1, annotation)], -1)
    outside = ~in_call & ~in_operator
    is_call = in_call & _OF_CALL[cause]
    between = outside & (cause == causes.INDEX["launch_bound"])
    detail = np.select(
        [between, is_call | (in_call & (operator < 0)), ~outside],
        [np.full_like(operator, causes.BETWEEN_OPERATORS), call, operator],
        python,
    )
    context = np.select([is_call & (operator >= 0) & (own < 0), ~outside | between], [operator, caller], around)
    stepless = outside & (cause == causes.INDEX["profiler"]) & ~stack.in_profiler
    detail = np.where(stepless, causes.BETWEEN_STEPS, detail)
    compiling = outside & (cause == causes.INDEX["compilation"]) & (stack.compiler >= 0)
    detail = np.where(compiling, texts.of_frame_name(stack.compiler), detail)
    return detail, np.where(stepless | (context == detail), -1, context), annotation
