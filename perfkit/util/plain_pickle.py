"""Reads pickles of plain values: containers, texts, bytes, numbers, booleans, None.

Python's own `pickle` calls what a file names. Here, nothing is imported or called: what is not a plain value is an
error. Nor is a number in the file taken as the size of anything but what the file itself has.
"""

import struct
from collections.abc import Collection
from typing import Any, Final

from perfkit.errors import StoreError

MOST_CONTAINERS: Final = 5_000_000
"""Lists, dictionaries and tuples of a file; a few hundred bytes each."""
MOST_COUNTED: Final = 1 << 62
"""Numbers that double with every level of a file would take all memory themselves."""

_Value = Any


class PlainPickleError(StoreError):
    """The bytes are not a pickle of plain values."""


def load_plain(data: bytes) -> _Value:
    """Return the value of a pickle, of any protocol of binary pickles (1 to 5).

    Values that the pickle shares are shared in the result.

    Raises:
        PlainPickleError: The pickle is damaged, has something other than plain values, or more than `MOST_CONTAINERS`.
    """
    return _Machine(data).run()


def count_copied(value: _Value) -> int:
    """Return how many values a copy of `value` has in which nothing is shared, at most `MOST_COUNTED`.

    Raises:
        PlainPickleError: A container contains itself.
    """
    counts: dict[int, int] = {}
    opened: set[int] = set()
    stack = [value]
    while stack:
        one = stack[-1]
        if id(one) in counts:
            stack.pop()
            continue
        inner = [part for part in _parts(one) if part.__class__ in _CONTAINERS]
        if id(one) not in opened:
            opened.add(id(one))
            stack += [part for part in inner if id(part) not in counts]
            continue
        try:
            count = 1 + len(_parts(one)) - len(inner) + sum(counts[id(part)] for part in inner)
        except KeyError as error:
            raise PlainPickleError("a list, dictionary or tuple contains itself") from error
        counts[id(one)] = min(count, MOST_COUNTED)
        stack.pop()
    return counts[id(value)]


def _parts(value: _Value) -> Collection[_Value]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, (list, tuple)) else ()


_CONTAINERS: Final = frozenset((dict, list, tuple))


class _Machine:
    """The stack machine of a pickle, see Lib/pickletools.py of Python for its instructions."""

    def __init__(self, data: bytes) -> None:
        self._data, self._position = data, 0
        self._containers = 0
        self._stack: list[_Value] = []
        self._marks: list[int] = []
        self._memo: dict[int, _Value] = {}

    def run(self) -> _Value:
        try:
            return self._run()
        except (IndexError, struct.error, UnicodeDecodeError, KeyError) as error:
            raise PlainPickleError(f"damaged or cut off near byte {self._position}") from error

    def _run(self) -> _Value:
        """Carry out all instructions; the frequent ones here, because a call for each would double the time."""
        data, size, stack, memo = self._data, len(self._data), self._stack, self._memo
        position = 0
        while position < size:
            code = data[position]
            position += 1
            self._position = position
            if code == 0x94:  # MEMOIZE
                memo[len(memo)] = stack[-1]
            elif code == 0x68:  # BINGET
                stack.append(memo[data[position]])
                position += 1
            elif code == 0x6A:  # LONG_BINGET
                stack.append(memo[_UINT(data, position)[0]])
                position += 4
            elif code == 0x4B:  # BININT1
                stack.append(data[position])
                position += 1
            elif code == 0x4D:  # BININT2
                stack.append(data[position] | data[position + 1] << 8)
                position += 2
            elif code == 0x4A:  # BININT
                stack.append(_INT(data, position)[0])
                position += 4
            elif code == 0x2E:  # STOP
                return self._result()
            else:
                position = self._carry_out(code, position)
        raise IndexError

    def _carry_out(self, code: int, position: int) -> int:
        """Carry out any other instruction; `position` is that of its arguments. Return that of the next one."""
        if code in _COUNTED:
            return self._counted(code, position)
        if code in _ON_ITEMS:
            return self._collect(code, position)
        if code in _EMPTY:
            self._stack.append(self._container(_EMPTY[code]()))
        elif code in _TUPLES:
            self._tuple(len(self._stack) - _TUPLES[code])
        elif code in _CONSTANTS:
            self._stack.append(_CONSTANTS[code])
        elif code == 0x28:  # MARK
            self._marks.append(len(self._stack))
        elif code == 0x47:  # BINFLOAT
            self._stack.append(_FLOAT(self._data, position)[0])
            return position + 8
        elif code in _PUT:
            self._memo[int.from_bytes(self._slice(position, _PUT[code]), "little")] = self._stack[-1]
            return position + _PUT[code]
        elif code in _IGNORED:
            return position + _IGNORED[code]
        else:
            raise PlainPickleError(
                f"byte {position}: something other than containers, texts and numbers (instruction 0x{code:02x}): "
                "it is not read, because it could run code"
            )
        return position

    def _counted(self, code: int, position: int) -> int:
        """Put a value on the stack whose length in bytes precedes it."""
        width = _COUNTED[code]
        length = int.from_bytes(self._slice(position, width), "little")
        content = self._slice(position + width, length)
        if code in _TEXTS:
            self._stack.append(content.decode("utf-8", "surrogatepass"))
        else:
            self._stack.append(int.from_bytes(content, "little", signed=True) if code == _LONG else content)
        return position + width + length

    def _collect(self, code: int, position: int) -> int:
        """Put what is on top of the stack into the container below it."""
        stack = self._stack
        begin = len(stack) - _ON_ITEMS[code] if _ON_ITEMS[code] else self._marks.pop()
        if code == 0x74:  # TUPLE
            self._tuple(begin)
        elif begin < 1:
            raise IndexError
        elif code in (0x61, 0x65):  # APPEND, APPENDS
            self._list(stack[begin - 1]).extend(stack[begin:])
            del stack[begin:]
        else:
            self._update(stack[begin - 1], stack[begin:], code)
            del stack[begin:]
        return position

    def _tuple(self, begin: int) -> None:
        if begin < 0:
            raise IndexError
        self._stack[begin:] = [self._container(tuple(self._stack[begin:]))]

    def _result(self) -> _Value:
        if len(self._stack) != 1 or self._marks:
            raise IndexError
        return self._stack[0]

    def _slice(self, begin: int, length: int) -> bytes:
        if begin + length > len(self._data):
            raise IndexError
        return self._data[begin : begin + length]

    def _container(self, value: _Value) -> _Value:
        self._containers += 1
        if self._containers > MOST_CONTAINERS:
            raise PlainPickleError(f"more than {MOST_CONTAINERS:,} lists, dictionaries and tuples")
        return value

    def _list(self, value: _Value) -> list[_Value]:
        if not isinstance(value, list):
            raise IndexError
        return value

    def _update(self, value: _Value, items: list[_Value], code: int) -> None:
        keys = items[::2]
        # Texts only: integers can be chosen so that all have one hash.
        if not isinstance(value, dict) or len(items) % 2 or any(key.__class__ is not str for key in keys):
            raise PlainPickleError(f"a dictionary's keys are not texts (instruction 0x{code:02x})")
        value.update(zip(keys, items[1::2], strict=True))


_TEXTS: Final = {0x8C: 1, 0x58: 4, 0x8D: 8}
"""SHORT_BINUNICODE, BINUNICODE, BINUNICODE8: bytes of the length."""
_BYTES: Final = {0x43: 1, 0x42: 4}
"""SHORT_BINBYTES, BINBYTES."""
_LONG: Final = 0x8A
"""LONG1: an integer of any size."""
_COUNTED: Final = {**_TEXTS, **_BYTES, _LONG: 1}
_EMPTY: Final[dict[int, type]] = {0x7D: dict, 0x5D: list, 0x29: tuple}
_TUPLES: Final = {0x85: 1, 0x86: 2, 0x87: 3}
_CONSTANTS: Final = {0x4E: None, 0x88: True, 0x89: False}
_ON_ITEMS: Final = {0x61: 1, 0x65: 0, 0x73: 2, 0x75: 0, 0x74: 0}
"""APPEND, APPENDS, SETITEM, SETITEMS, TUPLE: how many values they take; 0 is all since the last mark."""
_PUT: Final = {0x71: 1, 0x72: 4}
"""BINPUT, LONG_BINPUT: bytes of the index."""
_IGNORED: Final = {0x80: 1, 0x95: 8}
"""PROTO, FRAME (what follows can be read at once, which matters for streams only): bytes of the argument."""
_INT, _UINT, _FLOAT = (struct.Struct(kind).unpack_from for kind in ("<i", "<I", ">d"))
