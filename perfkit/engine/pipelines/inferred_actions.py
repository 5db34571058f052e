"""Micro-batches of a pipeline that the program does not annotate, as autograd and the messages tell them.

Sends and receives cut the host's time (metrics.md section 13): what autograd differentiates later, between two of them,
is the forward of one micro-batch. The sequence numbers of its operators tell which operators are its backward. Steps in
which this is not the case for all of them have no actions: a ring of attention, for example, sends within a forward.
"""

import re
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.attribution.autograd import EVALUATES
from perfkit.engine.kinds.classify import nested_on_thread, rows_by_key
from perfkit.engine.pipelines.replay import BACKWARD, FORWARD
from perfkit.engine.steps.windows import Steps
from perfkit.trace.events import EventKind, Events
from perfkit.trace.intervals import Ints, envelopes, outermost

_MESSAGES: Final = re.compile(r"c10d::(send|recv_|recv_any_source_)$")


class InferredActions(NamedTuple):
    """Actions by begin; columns of shape (a,)."""

    begin: Ints
    """On the host."""
    end: Ints
    kind: Ints
    micro_batch: Ints
    """Number in its step, in the order of forwards."""


class _Chunks(NamedTuple):
    """Operators that belong together, by number; columns of shape (c,)."""

    begin: Ints
    end: Ints


def infer_actions(events: Events, steps: Steps) -> InferredActions | None:
    """Return the forward and backward of each micro-batch; None if they cannot be inferred.

    Args:
        steps: the steps; only those are looked at that can be told apart wholly.
    """
    messages = _rows_of(events, events.shapes.starting_with(_MESSAGES))
    if not len(messages) or len(np.unique(events.thread[messages])) > 1:
        return None
    evaluated = _rows_of(events, events.shapes.beginning_with(EVALUATES))
    cuts = np.sort(events.start_ns[messages])
    forward, cause = _forwards(events, int(events.thread[messages[0]]), evaluated)
    if not len(forward):
        return None
    # A forward is what lies between two messages of a step.
    place = np.searchsorted(cuts, events.start_ns[forward], side="right") + (len(cuts) + 1) * steps.of(
        events.start_ns[forward]
    )
    _, chunk = np.unique(place, return_inverse=True)
    forwards = _envelopes(events, forward, chunk)
    backward, of = _backwards(events, evaluated, np.where(cause >= 0, chunk[cause], -1), cuts)
    return _complete_steps(events, steps, forwards, backward, of)


def _rows_of(events: Events, names: NDArray[np.bool_]) -> Ints:
    rows = events.rows(EventKind.OPERATOR)
    return rows[names[events.name[rows]]] if len(events.names) else rows[:0]


def _forwards(events: Events, thread: int, evaluated: Ints) -> tuple[Ints, Ints]:
    """Return the forward operators that backward ones refer to.

    Also returns for each of `evaluated` the place of the one that it refers to, or -1.
    Of several operators with one sequence number the last to begin makes the node of the graph.
    """
    args, rows = events.operator_args, events.rows(EventKind.OPERATOR)
    rows = rows[(events.thread[rows] == thread) & (args.sequence_of(rows) >= 0) & (args.forward_thread_of(rows) <= 0)]
    rows = rows[~nested_on_thread(events, rows, evaluated)]
    sequence = args.sequence_of(rows)
    order = np.lexsort((events.start_ns[rows], sequence))
    wanted, whose = args.sequence_of(evaluated), args.forward_thread_of(evaluated)
    last = np.searchsorted(sequence[order], wanted, side="right") - 1
    # autograd numbers threads by itself: forward ran on one thread only, or nothing is told.
    found = (wanted >= 0) & (whose > 0) & (last >= 0)
    found[found] = sequence[order[last[found]]] == wanted[found]
    if len(np.unique(whose[found])) != 1:
        return rows[:0], np.full(len(evaluated), -1, np.int64)
    used, place = np.unique(order[last[found]], return_inverse=True)
    cause = np.full(len(evaluated), -1, np.int64)
    cause[found] = place
    return rows[used], cause


def _backwards(events: Events, rows: Ints, of: Ints, cuts: Ints) -> tuple[Ints, Ints]:
    """Return the outermost backward operators by start, and of which forward each is the backward; without the others.

    One that refers to no forward, such as the accumulation of a gradient, belongs to the one before it, if no message
    is between them.
    """
    outer = np.zeros(len(rows), np.bool_)
    for places in rows_by_key(events.thread[rows]).values():
        outer[places] = outermost(events.start_ns[rows[places]], events.end_ns[rows[places]])
    rows, of = rows[outer], of[outer]
    order = np.argsort(events.start_ns[rows], kind="stable")
    rows, of = rows[order], of[order]
    between = np.searchsorted(cuts, events.start_ns[rows], side="right")
    last = np.maximum.accumulate(np.where(of >= 0, np.arange(len(of)), -1))
    follows = (last >= 0) & (between[last] == between)
    of = np.where(follows, of[last], -1)
    return rows[of >= 0], of[of >= 0]


def _envelopes(events: Events, rows: Ints, chunk: Ints) -> _Chunks:
    count = int(chunk.max(initial=-1)) + 1
    return _Chunks(*envelopes(chunk, events.start_ns[rows], events.end_ns[rows], count))


def _complete_steps(
    events: Events, steps: Steps, forwards: _Chunks, backward: Ints, of: Ints
) -> InferredActions | None:
    """Return the actions of the steps in which every forward has one backward, and no two actions overlap."""
    run = np.cumsum(np.append(True, of[1:] != of[:-1])) - 1 if len(of) else of
    backwards, whose = _envelopes(events, backward, run), of[np.searchsorted(run, np.arange(run.max(initial=-1) + 1))]
    kind = np.repeat([FORWARD, BACKWARD], [len(forwards.begin), len(whose)])
    chunk = np.concatenate([np.arange(len(forwards.begin)), whose])
    begin, end = (np.concatenate(columns) for columns in zip(forwards, backwards, strict=True))
    order = np.argsort(begin, kind="stable")
    kind, chunk, begin, end = kind[order], chunk[order], begin[order], end[order]
    step = steps.of(begin)
    wrong = step < 0
    wrong[1:] |= begin[1:] < end[:-1]
    pairs = np.bincount(chunk, minlength=len(forwards.begin))
    wrong |= (pairs[chunk] != 2) | (step != steps.of(forwards.begin)[chunk])  # forward and backward
    good = ~np.isin(step, step[wrong])
    if not good.any():
        return None
    _, place = np.unique(step[good], return_inverse=True)
    first = np.full(int(place.max()) + 1, len(forwards.begin))
    np.minimum.at(first, place, chunk[good])
    number = chunk[good] - first[place]
    return InferredActions(begin[good], end[good], kind[good], number)
