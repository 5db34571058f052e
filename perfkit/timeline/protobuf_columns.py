"""Protocol buffers' wire format, by columns: many small messages of the same fields, encoded at once.

A message is fields one after the other: a tag (number and type of the field) and a value, both in base 128 with the
lowest seven bits first (https://protobuf.dev/programming-guides/encoding).
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_VARINT, _FIXED64, _BYTES = 0, 1, 2
_SEVEN: Final = np.uint64(7)
_LOW: Final = np.uint64(0x7F)


def varint(value: int) -> bytes:
    """Encode one number that is not negative."""
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def number(field: int, value: int) -> bytes:
    """Encode a field that is a number."""
    return varint(field << 3 | _VARINT) + varint(value)


def message(field: int, *parts: bytes) -> bytes:
    """Encode a field that is a message of the given fields, or bytes."""
    content = b"".join(parts)
    return varint(field << 3 | _BYTES) + varint(len(content)) + content


def text(field: int, value: str) -> bytes:
    """Encode a field that is a text; what UTF-8 has no place for is replaced."""
    return message(field, value.encode("utf-8", "replace"))


class ProtobufColumn:
    """Bytes of one field of many messages: a table of shape (n, width), and which of its bytes are there."""

    def __init__(self, table: NDArray[np.uint8], there: NDArray[np.bool_]) -> None:
        self.table, self.there = table, there

    @classmethod
    def numbers(cls, field: int, values: NDArray[Any], present: NDArray[np.bool_] | None = None) -> "ProtobufColumn":
        """Encode a number a message, none of them negative; none where it is not `present`."""
        tag = varint(field << 3 | _VARINT)
        rest = values.astype(np.uint64)
        width = len(tag) + len(varint(int(values.max(initial=0))))
        table = np.empty((len(values), width), np.uint8)
        there = np.ones((len(values), width), np.bool_)
        table[:, : len(tag)] = np.frombuffer(tag, np.uint8)
        for place in range(len(tag), width):
            if place > len(tag):
                there[:, place] = rest > 0
            more = rest > _LOW
            table[:, place] = (rest & _LOW).astype(np.uint8) | (more.astype(np.uint8) << 7)
            rest = rest >> _SEVEN
        return cls(table, there if present is None else there & present[:, None])

    @classmethod
    def fixed64(cls, field: int, values: NDArray[np.int64], present: NDArray[np.bool_]) -> "ProtobufColumn":
        """Encode a number of eight bytes a message."""
        tag = np.frombuffer(varint(field << 3 | _FIXED64), np.uint8)
        table = np.empty((len(values), len(tag) + 8), np.uint8)
        table[:, : len(tag)] = tag
        table[:, len(tag) :] = values.astype("<i8").view(np.uint8).reshape(len(values), 8)
        return cls(table, np.broadcast_to(present[:, None], table.shape))

    @classmethod
    def joined(cls, columns: Sequence["ProtobufColumn"]) -> "ProtobufColumn":
        """Put fields one after the other."""
        return cls(np.hstack([c.table for c in columns]), np.hstack([c.there for c in columns]))

    def as_submessage(self, field: int) -> "ProtobufColumn":
        """Make each row a message that is a field itself; none may be longer than 127 bytes."""
        size = self.there.sum(axis=1)
        if int(size.max(initial=0)) > 0x7F:
            raise OverflowError("a message is longer than 127 bytes")
        head = np.empty((len(size), 2), np.uint8)
        head[:, 0], head[:, 1] = field << 3 | _BYTES, size
        return ProtobufColumn.joined([ProtobufColumn(head, np.ones_like(head, np.bool_)), self])

    def to_bytes(self) -> bytes:
        """Return all rows, one after the other."""
        return self.table[self.there].tobytes()
