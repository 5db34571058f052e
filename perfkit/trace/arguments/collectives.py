"""Collect the metadata of collectives (size, dtype, group) as deduplicated columns: few of a million are distinct."""

from collections.abc import Hashable
from operator import attrgetter
from typing import Any, Final

import msgspec
import numpy as np

from perfkit.trace.event_decoding import RawArgs, parse_count, parse_int, parse_text
from perfkit.trace.events import MOST_RANKS, CollectiveArgs, CollectiveArgsColumns
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
        self._row, self._number, self._sequence = (
            GrowableArray(np.int64),
            GrowableArray(np.int32),
            GrowableArray(np.int64),
        )

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
    """Decode the metadata of one event."""
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
    return bytes(raw) if len(bytes(raw)) <= _LARGEST_ARGUMENT_BYTES else b""


def _decoded(text: bytes) -> Any:
    """Decode a value; None if it is missing or damaged."""
    try:
        return msgspec.json.decode(text) if text else None
    except (ValueError, RecursionError):
        return None
