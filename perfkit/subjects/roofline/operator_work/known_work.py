"""The work of each distinct call, looked up once, and which of nested operators counts."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.kinds.classify import rows_by_key
from perfkit.records.per_rank.operator_work import WorkKind
from perfkit.subjects.roofline.operator_work.arguments import (
    LARGEST,
    Arguments,
    UnknownArgumentsError,
    Work,
    decode_arguments,
)
from perfkit.subjects.roofline.operator_work.models.table import MODELS
from perfkit.trace.events import Events, decode_list
from perfkit.trace.intervals import Ints, contained, outermost

MOST_CALLS = 200_000
"""Most distinct calls whose work is computed; more are as if nothing were recorded of them."""
_LONGEST_SHAPES = 200


class DistinctCall(NamedTuple):
    """An operator with certain arguments."""

    operator: str
    kind: WorkKind
    is_composite: bool
    shapes: str
    work: Work


class KnownWork(NamedTuple):
    """The calls whose work is known."""

    call: Ints
    """For each row of operators, the index into `calls`, or -1; shape (rows,)."""
    has_model: NDArray[np.bool_]
    """Whether the operator of a row has a model at all; shape (rows,)."""
    calls: list[DistinctCall]


def find_known_work(events: Events, rows: Ints) -> KnownWork:
    """Return what is known of the work of operators, by their rows."""
    name = events.name[rows]
    of_name = np.array([text in MODELS for text in events.names], np.bool_)
    has_model = of_name[name]
    inputs, concrete = events.operator_args.inputs_of(rows), events.operator_args.concrete_of(rows)
    call = np.full(len(rows), -1, np.int64)
    asked = np.flatnonzero(has_model & (inputs >= 0))
    if not len(asked):
        return KnownWork(call, has_model, [])
    recorded = events.operator_args
    sizes = len(recorded.distinct_inputs), len(recorded.distinct_concrete) + 1
    keys = (name[asked].astype(np.int64) * sizes[0] + inputs[asked]) * sizes[1] + concrete[asked] + 1
    distinct, which = np.unique(keys, return_inverse=True)
    calls: list[DistinctCall] = []
    index = np.full(len(distinct), -1, np.int64)
    for place, key in enumerate(distinct[:MOST_CALLS].tolist()):
        texts, values = divmod(key, sizes[1])
        name_index, inputs_index = divmod(texts, sizes[0])
        found = _call(events, name_index, inputs_index, values - 1)
        if found is not None:
            index[place] = len(calls)
            calls.append(found)
    call[asked] = index[which]
    return KnownWork(call, has_model, calls)


def _call(events: Events, name: int, inputs: int, concrete: int) -> DistinctCall | None:
    operator, recorded = events.names[name], events.operator_args
    model = MODELS[operator]
    texts = recorded.distinct_inputs[inputs]
    values = decode_list(recorded.distinct_concrete[concrete]) if concrete >= 0 else None
    try:
        arguments = decode_arguments(texts.dims, texts.types, values)
        work = model.work(arguments)
    except (UnknownArgumentsError, IndexError):
        return None
    if not (0 <= work.flops <= LARGEST and 0 <= work.bytes <= LARGEST):
        return None
    return DistinctCall(operator, model.kind, model.is_composite, shapes_text(arguments), work)


def shapes_text(arguments: Arguments) -> str:
    """Return the shapes of tensors in words: `64×512, 512×512`; of lists, the number of tensors and elements."""
    parts = []
    for tensor, shapes in zip(arguments.tensors, arguments.lists, strict=True):
        if tensor is not None:
            parts.append("×".join(map(str, tensor.shape)) or "scalar")
        elif shapes:
            parts.append(f"{len(shapes)} tensors")
    text = ", ".join(parts)
    return text if len(text) <= _LONGEST_SHAPES else f"{text[: _LONGEST_SHAPES - 1]}…"


# ---- which operator's work the time of a nested one belongs to -------------------------------------------------------


class Owners(NamedTuple):
    """The counted operator of each operator; columns of shape (rows,)."""

    place: Ints
    """Place, among the same rows, of the counted operator that it is or lies within; -1 for none."""
    calls_others: NDArray[np.bool_]
    """Whether another operator begins within it."""


def find_owners(events: Events, rows: Ints, modelled: NDArray[np.bool_], composite: NDArray[np.bool_]) -> Owners:
    """Return the operator that counts for each operator.

    On each thread the outermost operators with a known result count, and what lies within them is part of them; a
    composite one counts only if it lies within none of these and contains none.

    Args:
        events: the trace.
        rows: rows of operators.
        modelled: which of them have a known result.
        composite: which of these are composite.
    """
    place = np.full(len(rows), -1, np.int64)
    calls = np.zeros(len(rows), np.bool_)
    start, end = events.start_ns[rows], events.end_ns[rows]
    for here in rows_by_key(events.thread[rows], np.arange(len(rows))).values():
        counted = _counted(start[here], end[here], modelled[here], composite[here])
        place[here] = _within(start[here], end[here], here[counted], start, end)
        calls[here] = _contains_a_start(start[here], end[here])
    return Owners(place, calls)


def _counted(start: Ints, end: Ints, modelled: NDArray[np.bool_], composite: NDArray[np.bool_]) -> Ints:
    """Return the indices of the operators of one thread that count."""
    plain = np.flatnonzero(modelled & ~composite)
    plain = plain[outermost(start[plain], end[plain])]
    passing = np.flatnonzero(modelled & composite)
    passing = passing[~contained(start[passing], end[passing], start[plain], end[plain])]
    begins = np.sort(start[plain])
    inside = np.searchsorted(begins, end[passing]) - np.searchsorted(begins, start[passing])
    passing = passing[inside == 0]
    passing = passing[outermost(start[passing], end[passing])]
    return np.concatenate((plain, passing))


def _within(start: Ints, end: Ints, owners: Ints, all_starts: Ints, all_ends: Ints) -> Ints:
    """Return for each span the owner that contains it, or -1; owners do not overlap."""
    if not len(owners):
        return np.full(len(start), -1, np.int64)
    owners = owners[np.argsort(all_starts[owners], kind="stable")]
    last = owners[np.maximum(np.searchsorted(all_starts[owners], start, side="right") - 1, 0)]
    inside = (all_starts[last] <= start) & (end <= all_ends[last])
    return np.where(inside, last, -1)


def _contains_a_start(start: Ints, end: Ints) -> NDArray[np.bool_]:
    """Return for each span whether another one begins within it; of equal spans, the first contains the others."""
    order = np.lexsort((-end, start))
    following = np.append(start[order][1:], np.iinfo(np.int64).max)
    found = np.zeros(len(start), np.bool_)
    found[order] = following < end[order]
    return found
