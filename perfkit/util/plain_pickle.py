"""Reads pickles of plain values: containers, texts, bytes, numbers, booleans, None.

Python's own `pickle` calls what a file names. Here, nothing is imported or called: what is not a plain value is an
error. Nor is a number in the file taken as the size of anything but what the file itself has.
"""

import struct
from typing import Any, Final

from perfkit.errors import StoreError

MOST_CONTAINERS: Final = 5_000_000
"""Lists, dictionaries and tuples of a file; a few hundred bytes each."""

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


class _Machine:
    """The stack machine of a pickle, see Lib/pickletools.py of Python for its instructions."""

    def __init__(self, data: bytes) -> None:
        self._data, self._position = data, 0
        self._containers = 0

    def run(self) -> _Value:
        try:
            return self._run()
        except (IndexError, struct.error, UnicodeDecodeError, KeyError) as error:
            raise PlainPickleError(f"damaged or cut off near byte {self._position}") from error

    def _run(self) -> _Value:  # noqa: C901  one loop: a call per instruction would double its time
        data, size = self._data, len(self._data)
        stack: list[_Value] = []
        marks: list[int] = []
        memo: dict[int, _Value] = {}
        position = 0
        unpack_int, unpack_long, unpack_float = (struct.Struct(kind).unpack_from for kind in ("<i", "<I", ">d"))
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
                stack.append(memo[unpack_long(data, position)[0]])
                position += 4
            elif code == 0x4B:  # BININT1
                stack.append(data[position])
                position += 1
            elif code == 0x4D:  # BININT2
                stack.append(data[position] | data[position + 1] << 8)
                position += 2
            elif code == 0x4A:  # BININT
                stack.append(unpack_int(data, position)[0])
                position += 4
            elif code == 0x8A:  # LONG1
                length = data[position]
                stack.append(int.from_bytes(self._slice(position + 1, length), "little", signed=True))
                position += 1 + length
            elif code in _TEXTS or code in _BYTES:
                width = _TEXTS.get(code) or _BYTES[code]
                length = int.from_bytes(self._slice(position, width), "little")
                content = self._slice(position + width, length)
                stack.append(content.decode("utf-8", "surrogatepass") if code in _TEXTS else content)
                position += width + length
            elif code == 0x28:  # MARK
                marks.append(len(stack))
            elif code in _EMPTY:
                stack.append(self._container(_EMPTY[code]()))
            elif code == 0x75:  # SETITEMS
                mark = marks.pop()
                self._update(stack[mark - 1], stack[mark:], code)
                del stack[mark:]
            elif code == 0x65:  # APPENDS
                mark = marks.pop()
                self._list(stack[mark - 1]).extend(stack[mark:])
                del stack[mark:]
            elif code == 0x73:  # SETITEM
                self._update(stack[-3], stack[-2:], code)
                del stack[-2:]
            elif code == 0x61:  # APPEND
                self._list(stack[-2]).append(stack.pop())
            elif code == 0x74:  # TUPLE
                mark = marks.pop()
                stack[mark:] = [self._container(tuple(stack[mark:]))]
            elif code in _TUPLES:
                length = _TUPLES[code]
                if len(stack) < length:
                    raise IndexError
                stack[-length:] = [self._container(tuple(stack[-length:]))]
            elif code in _CONSTANTS:
                stack.append(_CONSTANTS[code])
            elif code == 0x47:  # BINFLOAT
                stack.append(unpack_float(data, position)[0])
                position += 8
            elif code in (0x71, 0x72):  # BINPUT, LONG_BINPUT
                width = 1 if code == 0x71 else 4
                memo[int.from_bytes(self._slice(position, width), "little")] = stack[-1]
                position += width
            elif code == 0x80:  # PROTO
                position += 1
            elif code == 0x95:  # FRAME: what follows can be read at once, which matters for streams only
                position += 8
            elif code == 0x2E:  # STOP
                if len(stack) != 1 or marks:
                    raise IndexError
                return stack[0]
            else:
                raise PlainPickleError(
                    f"byte {position}: something other than containers, texts and numbers (instruction 0x{code:02x}): "
                    "it is not read, because it could run code"
                )
        raise IndexError

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
_EMPTY: Final[dict[int, type]] = {0x7D: dict, 0x5D: list, 0x29: tuple}
_TUPLES: Final = {0x85: 1, 0x86: 2, 0x87: 3}
_CONSTANTS: Final = {0x4E: None, 0x88: True, 0x89: False}
