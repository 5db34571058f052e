"""Encode protocol buffers by columns: many small messages with the same fields at once.

A message is a sequence of fields, each a tag (number and type of the field) and a value, both in base 128 with the
lowest seven bits first (https://protobuf.dev/programming-guides/encoding). Encoding message by message with a protobuf
library is nine times slower.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_VARINT, _FIXED64, _BYTES = 0, 1, 2
_SEVEN: Final = np.uint64(7)
_LOW: Final = np.uint64(0x7F)


def varint(value: int) -> bytes:
    """Encode one non-negative number."""
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def number(field: int, value: int) -> bytes:
    return varint(field << 3 | _VARINT) + varint(value)


def message(field: int, *parts: bytes) -> bytes:
    """Encode a field of type message, from its encoded fields, or bytes."""
    content = b"".join(parts)
    return varint(field << 3 | _BYTES) + varint(len(content)) + content


def text(field: int, value: str) -> bytes:
    """Encode a string field; characters that UTF-8 cannot encode are replaced."""
    return message(field, value.encode("utf-8", "replace"))


class ProtobufColumn:
    """Bytes of one field of many messages: a table of shape (n, width), and a mask of the bytes that are used."""

    def __init__(self, table: NDArray[np.uint8], mask: NDArray[np.bool_]) -> None:
        self.table, self.mask = table, mask

    @classmethod
    def numbers(cls, field: int, values: NDArray[Any], present: NDArray[np.bool_] | None = None) -> "ProtobufColumn":
        """Encode one non-negative number per message, or nothing where it is not `present`."""
        tag = varint(field << 3 | _VARINT)
        rest = values.astype(np.uint64)
        width = len(tag) + len(varint(int(values.max(initial=0))))
        table = np.empty((len(values), width), np.uint8)
        mask = np.ones((len(values), width), np.bool_)
        table[:, : len(tag)] = np.frombuffer(tag, np.uint8)
        for place in range(len(tag), width):
            if place > len(tag):
                mask[:, place] = rest > 0
            more = rest > _LOW
            table[:, place] = (rest & _LOW).astype(np.uint8) | (more.astype(np.uint8) << 7)
            rest = rest >> _SEVEN
        return cls(table, mask if present is None else mask & present[:, None])

    @classmethod
    def fixed64(cls, field: int, values: NDArray[np.int64], present: NDArray[np.bool_]) -> "ProtobufColumn":
        """Encode one number of eight bytes per message, or nothing where it is not `present`."""
        tag = np.frombuffer(varint(field << 3 | _FIXED64), np.uint8)
        table = np.empty((len(values), len(tag) + 8), np.uint8)
        table[:, : len(tag)] = tag
        table[:, len(tag) :] = values.astype("<i8").view(np.uint8).reshape(len(values), 8)
        return cls(table, np.broadcast_to(present[:, None], table.shape))

    @classmethod
    def joined(cls, columns: Sequence["ProtobufColumn"]) -> "ProtobufColumn":
        return cls(np.hstack([c.table for c in columns]), np.hstack([c.mask for c in columns]))

    def as_submessage(self, field: int) -> "ProtobufColumn":
        """Wrap each row as a submessage field; none may be longer than 127 bytes."""
        size = self.mask.sum(axis=1)
        if int(size.max(initial=0)) > 0x7F:
            raise OverflowError("a message is longer than 127 bytes")
        head = np.empty((len(size), 2), np.uint8)
        head[:, 0], head[:, 1] = field << 3 | _BYTES, size
        return ProtobufColumn.joined([ProtobufColumn(head, np.ones_like(head, np.bool_)), self])

    def to_bytes(self) -> bytes:
        return self.table[self.mask].tobytes()
