"""What events say of the collectives they belong to, into columns: a trace may have a million, of which few differ."""

from collections.abc import Hashable
from operator import attrgetter
from typing import Any, Final

import msgspec
import numpy as np

from perfkit.trace.event_decoding import RawArgs
from perfkit.trace.events import CollectiveArgs, CollectiveArgsColumns
from perfkit.trace.growable_array import GrowableArray
from perfkit.trace.intervals import Ints
from perfkit.trace.scalars import integer, natural, text

_LARGEST_ARGUMENT_BYTES: Final = 1 << 16
_FIELDS: Final = attrgetter("collective", "in_elements", "out_elements", "dtype", "group", "group_size", "members")


class CollectiveArgsBuilder:
    """Collects them."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._args: list[CollectiveArgs] = []
        self._row, self._number, self._sequence = (
            GrowableArray(np.int64),
            GrowableArray(np.int32),
            GrowableArray(np.int64),
        )

    def add(self, rows: Ints, args: list[RawArgs], dispatches: list[bool]) -> None:
        """Take what the events of some rows say, later ones than before; `dispatches` as in `CollectiveArgs`."""
        number = [self._number_of(one, is_dispatch) for one, is_dispatch in zip(args, dispatches, strict=True)]
        self._row.extend(rows)
        self._number.extend(np.array(number, np.int32))
        self._sequence.extend(np.array([integer(one.sequence, -1) for one in args], np.int64))

    def _number_of(self, args: RawArgs, is_dispatch: bool) -> int:
        fields = _FIELDS(args)
        # 1, 1.0 and True are equal, and not the same.
        key = (fields, tuple(map(type, fields)), _small(args.input_dims), _small(args.input_type), is_dispatch)
        try:
            number = self._numbers.setdefault(key, len(self._args))
        except TypeError:  # a list or an object where a word should be
            number = len(self._args)
        if number == len(self._args):
            self._args.append(describe(args, is_dispatch=is_dispatch))
        return number

    def build(self) -> CollectiveArgsColumns:
        """Return what has been collected; nothing can be added afterwards."""
        return CollectiveArgsColumns(
            row=self._row.build(),
            number=self._number.build(),
            sequence=self._sequence.build(),
            args=tuple(self._args),
        )


def describe(args: RawArgs, *, is_dispatch: bool) -> CollectiveArgs:
    """Return what an event says of its collective."""
    return CollectiveArgs(
        operator=text(args.collective),
        in_elements=natural(args.in_elements),
        out_elements=natural(args.out_elements),
        dtype=text(args.dtype),
        group=text(args.group),
        group_size=natural(args.group_size),
        members=text(args.members),
        input_dims=_decoded(_small(args.input_dims)),
        input_type=_decoded(_small(args.input_type)),
        is_dispatch=is_dispatch,
    )


def _small(raw: msgspec.Raw) -> bytes:
    """Return the text of a value; nothing of one that is too large to be kept."""
    return bytes(raw) if len(bytes(raw)) <= _LARGEST_ARGUMENT_BYTES else b""


def _decoded(text: bytes) -> Any:
    """Decode a value; None where there is none, or it is damaged."""
    try:
        return msgspec.json.decode(text) if text else None
    except (ValueError, RecursionError):
        return None
