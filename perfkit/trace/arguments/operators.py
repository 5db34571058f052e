"""Collect what a trace records of operators: sequence numbers, threads of forward, and inputs as deduplicated texts."""

from collections.abc import Iterable
from itertools import compress
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from perfkit.trace.event_decoding import MISSING, RawArgs, parse_int
from perfkit.trace.events import OperatorArgsColumns, OperatorInputs
from perfkit.trace.growable_array import GrowableArray
from perfkit.trace.intervals import Ints

MOST_TEXTS: Final = 1 << 16
"""Most distinct inputs that are kept of a trace: a program may put a counter into them."""
MOST_BYTES: Final = 1 << 26
"""Most bytes of text that are kept of these."""
LONGEST_TEXT: Final = 1 << 16
"""Longer texts are not kept: an operator with thousands of tensors. A fused optimizer has four lists of hundreds."""
SEPARATOR: Final = b"\n"
"""Between the texts of a key: kineto writes each list on one line, and another text only makes another key."""
_UNKNOWN: Final = -1


class Texts(dict[bytes, int]):
    """Indexes distinct texts in the order of their first appearance, limited in number, length and sum."""

    def __init__(self) -> None:
        super().__init__()
        self._bytes = 0

    def __missing__(self, text: bytes) -> int:
        is_full = len(self) >= MOST_TEXTS or self._bytes + len(text) > MOST_BYTES
        if is_full or len(text) > LONGEST_TEXT:
            return _UNKNOWN
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
        has_sequence = [one.sequence_number != _UNKNOWN for one in args]
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
    try:
        column = np.fromiter(values, np.int64, len(values))
    except (TypeError, ValueError, OverflowError):
        column = np.array([parse_int(value, _UNKNOWN) for value in values], np.int64)
    return np.maximum(column, _UNKNOWN, out=column)
