"""Collect what a trace records of collectives, device activities and operators, as deduplicated columns.

Of a million collectives, few are distinct.
"""

import math
from collections.abc import Hashable, Iterable
from itertools import compress
from operator import attrgetter
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from perfkit.trace.event_decoding import MISSING, RawArgs, all_integers, parse_count, parse_int, parse_text
from perfkit.trace.events import (
    MOST_RANKS,
    UNKNOWN,
    CollectiveArgs,
    CollectiveArgsColumns,
    DeviceArgsColumns,
    KernelLaunch,
    OperatorArgsColumns,
    OperatorInputs,
)
from perfkit.trace.growable_array import GrowableArray
from perfkit.trace.intervals import Ints

_LARGEST_ARGUMENT_BYTES: Final = 1 << 16
_FIELDS: Final = attrgetter(
    "collective",
    "in_elements",
    "out_elements",
    "dtype",
    "group",
    "group_size",
    "members",
    "description",
    "source",
    "destination",
)


class CollectiveArgsBuilder:
    """Collects the metadata of a trace's events."""

    def __init__(self) -> None:
        self._index_by_key: dict[Hashable, int] = {}
        self._args: list[CollectiveArgs] = []
        self._row, self._number = GrowableArray(np.int64), GrowableArray(np.int32)
        self._sequence = GrowableArray(np.int64)

    def add(self, rows: Ints, args: list[RawArgs], dispatches: list[bool]) -> None:
        """Add the metadata of events, whose rows must ascend; `dispatches` is `CollectiveArgs.is_dispatch` of each."""
        indices = [self._index_of(one, is_dispatch) for one, is_dispatch in zip(args, dispatches, strict=True)]
        self._row.extend(rows)
        self._number.extend(np.array(indices, np.int32))
        self._sequence.extend(np.array([parse_int(one.sequence, -1) for one in args], np.int64))

    def _index_of(self, args: RawArgs, is_dispatch: bool) -> int:
        fields = _FIELDS(args)
        # 1, 1.0 and True compare equal, but differ.
        key = (fields, tuple(map(type, fields)), _limited(args.input_dims), _limited(args.input_type), is_dispatch)
        try:
            index = self._index_by_key.setdefault(key, len(self._args))
        except TypeError:  # a list or an object instead of a string
            index = len(self._args)
        if index == len(self._args):
            self._args.append(decode_collective_args(args, is_dispatch=is_dispatch))
        return index

    def build(self) -> CollectiveArgsColumns:
        """Return the columns; nothing can be added afterwards."""
        return CollectiveArgsColumns(
            row=self._row.build(),
            number=self._number.build(),
            sequence=self._sequence.build(),
            args=tuple(self._args),
        )


def decode_collective_args(args: RawArgs, *, is_dispatch: bool) -> CollectiveArgs:
    return CollectiveArgs(
        operator=parse_text(args.collective),
        in_elements=parse_count(args.in_elements),
        out_elements=parse_count(args.out_elements),
        dtype=parse_text(args.dtype),
        group=parse_text(args.group),
        group_size=parse_count(args.group_size),
        members=parse_text(args.members),
        description=parse_text(args.description),
        peer=_parse_rank(args.destination if args.source is None else args.source),
        input_dims=_decoded(_limited(args.input_dims)),
        input_type=_decoded(_limited(args.input_type)),
        is_dispatch=is_dispatch,
    )


def _parse_rank(value: Any) -> int | None:
    rank = parse_count(value)
    return rank if rank is not None and rank < MOST_RANKS else None


def _limited(raw: msgspec.Raw) -> bytes:
    """Return the text of a value; empty if it is too large to be kept."""
    text = bytes(raw)
    return text if len(text) <= _LARGEST_ARGUMENT_BYTES else b""


def _decoded(text: bytes) -> Any:
    """Decode a value; None if it is missing or damaged."""
    try:
        return msgspec.json.decode(text) if text else None
    except (ValueError, RecursionError):
        return None


MOST_TEXTS: Final = 1 << 16
"""Most distinct inputs that are kept of a trace: a program may put a counter into them."""
MOST_BYTES: Final = 1 << 26
"""Most bytes of text that are kept of these."""
LONGEST_TEXT: Final = 1 << 16
"""Longer texts are not kept: an operator with thousands of tensors. A fused optimizer has four lists of hundreds."""
SEPARATOR: Final = b"\n"
"""Between the texts of a key: kineto writes each list on one line, and another text only makes another key."""


class Texts(dict[bytes, int]):
    """Indexes distinct texts in the order of their first appearance, limited in number, length and sum."""

    def __init__(self) -> None:
        super().__init__()
        self._bytes = 0

    def __missing__(self, text: bytes) -> int:
        is_full = len(self) >= MOST_TEXTS or self._bytes + len(text) > MOST_BYTES
        if is_full or len(text) > LONGEST_TEXT:
            return UNKNOWN
        self._bytes += len(text)
        self[text] = index = len(self)
        return index

    def column(self, texts: Iterable[bytes], count: int) -> NDArray[np.int32]:
        """Return the index of each text; -1 for those that are not kept."""
        return np.fromiter(map(self.__getitem__, texts), np.int32, count)


class OperatorArgsBuilder:
    """Collects the arguments of a trace's operators."""

    def __init__(self) -> None:
        self._sequence_row, self._sequence = GrowableArray(np.int64), GrowableArray(np.int64)
        self._forward_thread = GrowableArray(np.int64)
        self._inputs_row = GrowableArray(np.int64)
        self._inputs, self._concrete = GrowableArray(np.int32), GrowableArray(np.int32)
        self._input_texts, self._concrete_texts = Texts(), Texts()

    def add(self, rows: Ints, args: list[RawArgs]) -> None:
        """Add the arguments of operators, whose rows must ascend."""
        has_sequence = [one.sequence_number != UNKNOWN for one in args]
        if any(has_sequence):
            self._add_sequences(rows[has_sequence], list(compress(args, has_sequence)))
        has_inputs = [one.input_dims is not MISSING for one in args]
        if any(has_inputs):
            self._add_inputs(rows[has_inputs], list(compress(args, has_inputs)))

    def _add_sequences(self, rows: Ints, args: list[RawArgs]) -> None:
        self._sequence_row.extend(rows)
        self._sequence.extend(numbers([one.sequence_number for one in args]))
        self._forward_thread.extend(numbers([one.forward_thread for one in args]))

    def _add_inputs(self, rows: Ints, args: list[RawArgs]) -> None:
        count = len(args)
        texts = map(SEPARATOR.join, [(one.input_dims, one.input_type) for one in args])
        self._inputs_row.extend(rows)
        self._inputs.extend(self._input_texts.column(texts, count))
        concrete = [one.concrete_inputs for one in args]
        self._concrete.extend(self._concrete_texts.column(map(bytes, concrete), count))

    def build(self) -> OperatorArgsColumns:
        """Return the columns; nothing can be added afterwards."""
        return OperatorArgsColumns(
            sequence_row=self._sequence_row.build(),
            sequence=self._sequence.build(),
            forward_thread=self._forward_thread.build(),
            inputs_row=self._inputs_row.build(),
            inputs=self._inputs.build(),
            concrete=self._concrete.build(),
            distinct_inputs=tuple(map(_inputs, self._input_texts)),
            distinct_concrete=tuple(self._concrete_texts),
        )


def _inputs(text: bytes) -> OperatorInputs:
    dims, _, types = text.partition(SEPARATOR)
    return OperatorInputs(dims_text=dims, types_text=types)


def numbers(values: list[Any]) -> Ints:
    """Return numbers as a column; -1 for those that are missing or invalid."""
    column = all_integers(values)
    if column is None:
        column = np.array([parse_int(value, UNKNOWN) for value in values], np.int64)
    return np.maximum(column, UNKNOWN, out=column)


_AXES: Final = 3
_MOST_PERCENT: Final = 1000


class DeviceArgsBuilder:
    """Collects the arguments of a trace's kernels."""

    def __init__(self) -> None:
        self._kernel_row, self._launch = GrowableArray(np.int64), GrowableArray(np.int32)
        self._launches = Texts()

    def add_kernels(self, rows: Ints, args: list[RawArgs]) -> None:
        """Add the arguments of kernels, whose rows must ascend."""
        texts = map(SEPARATOR.join, [(one.grid, one.block, one.occupancy) for one in args])
        self._kernel_row.extend(rows)
        self._launch.extend(self._launches.column(texts, len(args)))

    def build(self) -> DeviceArgsColumns:
        """Return the columns; nothing can be added afterwards."""
        return DeviceArgsColumns(
            kernel_row=self._kernel_row.build(),
            launch=self._launch.build(),
            launches=tuple(map(_launch, self._launches)),
        )


def _launch(text: bytes) -> KernelLaunch:
    grid, block, occupancy = (_decoded(part) for part in text.split(SEPARATOR, 2))
    return KernelLaunch(grid=_extent(grid), block=_extent(block), occupancy_percent=_percent(occupancy))


def _extent(sizes: Any) -> tuple[int, int, int] | None:
    if not isinstance(sizes, list) or len(sizes) != _AXES:
        return None
    x, y, z = (parse_int(size, -1) for size in sizes)
    return (x, y, z) if min(x, y, z) >= 0 else None


def _percent(value: Any) -> float | None:
    # A kernel that runs occupies something: kineto writes 0 for kernels whose occupancy it cannot compute.
    is_number = type(value) in (int, float) and math.isfinite(value) and 0 < value <= _MOST_PERCENT
    return float(value) if is_number else None
