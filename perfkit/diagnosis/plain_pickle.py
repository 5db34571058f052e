"""Reads a pickle of plain containers, strings and numbers; anything else in it is refused, and nothing is executed.

Python's own `pickle` is not used: even with every class refused, a few bytes make it allocate gigabytes for its memo.
Here what is allocated is bounded by the size of the data. The opcodes are those of `pickletools`.
"""

import struct
from collections.abc import Callable
from typing import Any, Final

from perfkit.errors import StoreError

_MARK: Final = object()

_CONSTANTS: Final[dict[int, Callable[[], Any]]] = {
    ord("N"): lambda: None,
    0x88: lambda: True,
    0x89: lambda: False,
    ord("]"): list,
    ord("}"): dict,
    ord(")"): tuple,
}
_NUMBERS: Final = {ord("J"): "<i", ord("K"): "<B", ord("M"): "<H", ord("G"): ">d"}
_INTEGERS: Final = {0x8A: 1, 0x8B: 4}
"""Bytes of the length of a long integer, by opcode."""
_MOST_INTEGER_BYTES: Final = 16
_TEXTS: Final = {0x8C: 1, ord("X"): 4, 0x8D: 8}
_STRINGS: Final = {ord("C"): 1, ord("U"): 1, ord("B"): 4, ord("T"): 4}
_MEMO_PUT: Final = {ord("q"): 1, ord("r"): 4}
_MEMO_GET: Final = {ord("h"): 1, ord("j"): 4}
_TUPLES: Final = {0x85: 1, 0x86: 2, 0x87: 3}


class NotPlainError(StoreError):
    """A pickle that is damaged, or that contains more than plain data."""


def load_plain(data: bytes) -> Any:
    """Return what a pickle contains: None, booleans, numbers, strings, bytes, lists, tuples and dicts.

    Raises:
        NotPlainError: It is damaged, or contains anything else.
    """
    try:
        return _Machine(data).run()
    except (IndexError, struct.error, UnicodeDecodeError, TypeError, KeyError, AttributeError) as error:
        raise NotPlainError("it is not a complete pickle of plain data") from error


class _Machine:
    """The stack machine of pickle, without the opcodes that import or call anything."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def run(self) -> Any:
        """Execute until STOP, and return the only value."""
        while (opcode := self._take(1)[0]) != ord("."):
            if opcode == ord("("):
                self._stack.append(_MARK)
            elif opcode == 0x80:  # the protocol
                self._take(1)
            elif opcode == 0x95:  # the length of a frame
                self._take(8)
            elif not (self._push_value(opcode) or self._use_memo(opcode)):
                self._build(opcode)
        (value,) = self._stack if len(self._stack) == 1 else [_MARK]
        if value is _MARK:
            raise NotPlainError("it is not a complete pickle of plain data")
        return value

    def _push_value(self, opcode: int) -> bool:
        if opcode in _CONSTANTS:
            self._stack.append(_CONSTANTS[opcode]())
        elif opcode in _NUMBERS:
            form = _NUMBERS[opcode]
            self._stack.append(struct.unpack(form, self._take(struct.calcsize(form)))[0])
        elif opcode in _INTEGERS:
            length = self._length(_INTEGERS[opcode])
            if length > _MOST_INTEGER_BYTES:
                raise NotPlainError("it contains an integer of more than 128 bits")
            self._stack.append(int.from_bytes(self._take(length), "little", signed=True))
        elif opcode in _TEXTS:
            self._stack.append(self._take(self._length(_TEXTS[opcode])).decode("utf-8", "backslashreplace"))
        elif opcode in _STRINGS:
            self._stack.append(self._take(self._length(_STRINGS[opcode])))
        else:
            return False
        return True

    def _use_memo(self, opcode: int) -> bool:
        if opcode in _MEMO_PUT:
            self._memo[self._length(_MEMO_PUT[opcode])] = self._stack[-1]
        elif opcode == 0x94:
            self._memo[len(self._memo)] = self._stack[-1]
        elif opcode in _MEMO_GET:
            self._stack.append(self._memo[self._length(_MEMO_GET[opcode])])
        else:
            return False
        return True

    def _build(self, opcode: int) -> None:
        stack = self._stack
        if opcode == ord("a"):
            item = stack.pop()
            _list(stack[-1]).append(item)
        elif opcode == ord("s"):
            value, key = stack.pop(), stack.pop()
            _dict(stack[-1])[key] = value
        elif opcode in _TUPLES:
            count = _TUPLES[opcode]
            items = tuple(stack[-count:])
            if len(items) < count or _MARK in items:
                raise NotPlainError("it is not a complete pickle of plain data")
            del stack[-count:]
            stack.append(items)
        elif opcode in (ord("e"), ord("u"), ord("t"), ord("l"), ord("d")):
            self._build_to_mark(opcode)
        else:
            raise NotPlainError(
                f"it contains more than plain data (opcode {opcode:#04x} at byte {self._at - 1}), and is not loaded"
            )

    def _build_to_mark(self, opcode: int) -> None:
        stack = self._stack
        start = len(stack) - 1
        while stack[start] is not _MARK:  # never beyond the bottom: -1 begins again at the top, which is none
            start -= 1
            if start < 0:
                raise NotPlainError("it is not a complete pickle of plain data")
        items = stack[start + 1 :]
        del stack[start:]
        if opcode == ord("e"):
            _list(stack[-1]).extend(items)
        elif opcode == ord("u"):
            _dict(stack[-1]).update(zip(items[::2], items[1::2], strict=False))
        elif opcode == ord("t"):
            stack.append(tuple(items))
        elif opcode == ord("l"):
            stack.append(items)
        else:
            stack.append(dict(zip(items[::2], items[1::2], strict=False)))

    def _length(self, count: int) -> int:
        return int.from_bytes(self._take(count), "little")

    def _take(self, count: int) -> bytes:
        part = self._data[self._at : self._at + count]
        if len(part) < count:
            raise NotPlainError("it ends in the middle")
        self._at += count
        return part


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise NotPlainError("it is not a complete pickle of plain data")
    return value


def _dict(value: Any) -> dict[Any, Any]:
    if not isinstance(value, dict):
        raise NotPlainError("it is not a complete pickle of plain data")
    return value
