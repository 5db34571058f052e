"""Forward, backward and optimizer passes of a trace, on the host (metrics.md section 12)."""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.steps.windows import Steps
from perfkit.phases import PASS_NAMES, annotation
from perfkit.records.per_rank.sharding import PASS_PHASES, PassPhase
from perfkit.trace.events import EventKind, Events
from perfkit.trace.intervals import Ints, Union, contained, measure, union

NO_PASS: Final = -1

_MARKERS: Final[dict[PassPhase, str]] = {
    "forward": (
        r"FSDP::(root_pre_forward|pre_forward|post_forward)|FullyShardedDataParallel\.(_root_pre|_pre|_post|)_?forward"
        r"|DistributedDataParallel\.forward|PP:\d+F|Forward \d+$"
    ),
    "backward": (
        r"autograd::engine::evaluate_function|FSDP::(pre_backward|post_backward|backward_prefetch|root_post_backward)"
        r"|FullyShardedDataParallel\._(pre|post)_backward|PP:\d+[BIW]|Backward \d+$"
    ),
    "optimizer": r"Optimizer\.step#",
}
"""What torch calls its operators and annotations that belong to one phase; a layer's name may follow."""


class Passes(NamedTuple):
    """Passes in order, disjoint; columns of shape (p,)."""

    phase: Ints
    """Index into `PASS_PHASES`."""
    begin: Ints
    end: Ints

    def of(self, instant: Ints) -> Ints:
        """Return the index of the pass in which each instant lies, or `NO_PASS`."""
        if not len(self.begin):
            return np.full(len(instant), NO_PASS, np.int64)
        last = np.searchsorted(self.begin, instant, side="right") - 1
        return np.where((last >= 0) & (instant < self.end[last]), last, NO_PASS)


class _Spans(NamedTuple):
    """Spans of one phase."""

    phase: int
    spans: Union
    whole: bool
    """Whether each span is a separate pass."""


def find_passes(events: Events, steps: Steps) -> Passes:
    """Return the passes of a trace.

    perfkit's annotations of a phase are its passes. Without any, torch's operators and annotations of that phase are
    joined to one pass as long as no other phase and no other step comes between.
    """
    found = {spans.phase: spans for spans in _spans_by_phase(events)}
    backward = found.get(PASS_PHASES.index("backward"))
    if backward is not None:
        found = {phase: _outside(spans, backward) for phase, spans in found.items()}
    parts = [spans for spans in found.values() if len(spans.spans.start)]
    if not parts:
        return Passes(*(np.zeros(0, np.int64) for _ in range(3)))
    phase = np.concatenate([np.full(len(part.spans.start), part.phase, np.int64) for part in parts])
    whole = np.concatenate([np.full(len(part.spans.start), part.whole, np.bool_) for part in parts])
    return _joined(phase, whole, merge_columns([part.spans for part in parts]), steps)


def merge_columns(unions: list[Union]) -> Union:
    """Return the columns of several unions, one after the other."""
    return Union(np.concatenate([u.start for u in unions]), np.concatenate([u.end for u in unions]))


def _spans_by_phase(events: Events) -> Iterator[_Spans]:
    # A program may put a counter into the names of a million operators: few of them reach the patterns.
    candidates = np.flatnonzero(events.shapes.beginning_with(*PASS_NAMES)).tolist()
    rows = events.rows(EventKind.ANNOTATION, EventKind.OPERATOR)
    for number, phase in enumerate(PASS_PHASES):
        own = rows[_named(events, candidates, rf"{re.escape(annotation(phase))}$")[events.name[rows]]]
        chosen = own if len(own) else rows[_named(events, candidates, _MARKERS[phase])[events.name[rows]]]
        yield _Spans(number, union(events.start_ns[chosen], events.end_ns[chosen]), whole=bool(len(own)))


def _named(events: Events, candidates: list[int], pattern: str) -> NDArray[np.bool_]:
    matching, match = np.zeros(max(1, len(events.names)), np.bool_), re.compile(pattern).match
    matching[candidates] = [match(events.names[name]) is not None for name in candidates]
    return matching


def _outside(spans: _Spans, backward: _Spans) -> _Spans:
    """Drop what lies in a backward pass (activations computed again), and optimizer steps that run one (a closure)."""
    if spans.phase == backward.phase or spans.whole:
        return spans
    start, end = spans.spans
    if PASS_PHASES[spans.phase] == "optimizer":
        dropped = measure(backward.spans, start, end) > 0
    else:
        dropped = contained(start, end, *backward.spans)
    return spans._replace(spans=Union(start[~dropped], end[~dropped]))


def _joined(phase: Ints, whole: NDArray[np.bool_], spans: Union, steps: Steps) -> Passes:
    order = np.argsort(spans.start, kind="stable")
    phase, whole, start, end = phase[order], whole[order], spans.start[order], spans.end[order]
    step = steps.of(start)
    opens = np.append(True, (phase[1:] != phase[:-1]) | (step[1:] != step[:-1]) | whole[1:] | whole[:-1])
    first = np.flatnonzero(opens)
    begin = start[first]
    # Passes that overlap, as of two threads, end where the next begins.
    return Passes(phase[first], begin, np.minimum(np.maximum.reduceat(end, first), np.append(begin[1:], end.max())))
