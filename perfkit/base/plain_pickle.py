"""Reads pickles of plain values: containers, texts, bytes, numbers, booleans, None.

The unpickler is that of the standard library which is written in Python, with only the instructions that make plain
values: nothing that a file names is imported or called. The one in C makes room for as many values as an index in the
file says. It is private to `pickle`, and has been there, with its table of instructions, since Python 3.0.
"""

import io
import pickle
from collections.abc import Callable, Collection
from typing import Any, ClassVar, Final

from perfkit.base.validation import encodable
from perfkit.errors import StoreError

MOST_CONTAINERS: Final = 5_000_000
"""Lists, dictionaries and tuples of a file; a few hundred bytes each."""
MOST_COUNTED: Final = 1 << 62
"""Numbers that double with every level of a file would take all memory themselves."""

_Value = Any
_Unpickler: Any = vars(pickle)["_Unpickler"]
_Instruction = Callable[[Any], None]


class PlainPickleError(StoreError):
    """The bytes are not a pickle of plain values."""


def load_plain(data: bytes) -> _Value:
    """Return the value of a pickle, of any protocol of binary pickles (1 to 5).

    Values that the pickle shares are shared in the result.

    Raises:
        PlainPickleError: The pickle is damaged, has something other than plain values, or more than `MOST_CONTAINERS`.
    """
    stream = io.BytesIO(data)
    try:
        return _PlainUnpickler(stream).load()
    except PlainPickleError:
        raise
    except Exception as error:  # whatever the instructions of a damaged file do to each other
        raise PlainPickleError(f"damaged or cut off near byte {stream.tell()}") from error


def count_copied(value: _Value) -> int:
    """Return how many values a copy of `value` has in which nothing is shared, at most `MOST_COUNTED`.

    Raises:
        PlainPickleError: A container contains itself.
    """
    counts: dict[int, int] = {}
    opened: set[int] = set()
    stack = [value]
    while stack:
        top = stack[-1]
        if id(top) in counts:
            stack.pop()
            continue
        inner = [part for part in _parts(top) if part.__class__ in _CONTAINERS]
        if id(top) not in opened:
            opened.add(id(top))
            stack += [part for part in inner if id(part) not in counts]
            continue
        try:
            count = 1 + len(_parts(top)) - len(inner) + sum(counts[id(part)] for part in inner)
        except KeyError as error:
            raise PlainPickleError("a list, dictionary or tuple contains itself") from error
        counts[id(top)] = min(count, MOST_COUNTED)
        stack.pop()
    return counts[id(value)]


def _parts(value: _Value) -> Collection[_Value]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, (list, tuple)) else ()


_CONTAINERS: Final = frozenset((dict, list, tuple))


def _counted(load: _Instruction) -> _Instruction:
    """Return an instruction that makes a container, with the limit on their number."""

    def load_counted(unpickler: Any) -> None:
        unpickler.containers += 1
        if unpickler.containers > MOST_CONTAINERS:
            raise PlainPickleError(f"more than {MOST_CONTAINERS:,} lists, dictionaries and tuples")
        load(unpickler)

    return load_counted


def _encodable(load: _Instruction) -> _Instruction:
    """Return an instruction that makes a text, without lone surrogates."""

    def load_encodable(unpickler: Any) -> None:
        load(unpickler)
        unpickler.stack[-1] = encodable(unpickler.stack[-1])

    return load_encodable


def _set_items(unpickler: Any) -> None:
    _update(unpickler, unpickler.pop_mark())


def _set_item(unpickler: Any) -> None:
    stack = unpickler.stack
    value, key = stack.pop(), stack.pop()
    _update(unpickler, [key, value])


def _update(unpickler: Any, items: list[_Value]) -> None:
    target, keys = unpickler.stack[-1], items[::2]
    # Texts only: integers can be chosen so that all have one hash.
    if not isinstance(target, dict) or any(key.__class__ is not str for key in keys):
        raise PlainPickleError("a dictionary's keys are not texts")
    target.update(zip(keys, items[1::2], strict=True))


def _mark(unpickler: Any) -> None:
    if len(unpickler.metastack) == MOST_CONTAINERS:
        raise PlainPickleError(f"more than {MOST_CONTAINERS:,} lists, dictionaries and tuples")
    unpickler.load_mark()


def _stop(unpickler: Any) -> None:
    if len(unpickler.stack) != 1 or unpickler.metastack:
        raise IndexError
    unpickler.load_stop()


class _Instructions(dict[int, _Instruction]):
    def __missing__(self, code: int) -> _Instruction:
        raise PlainPickleError(
            f"something other than containers, texts and numbers (instruction 0x{code:02x}): "
            "it is not read, because it could run code"
        )


_SAFE: Final = (
    *("PROTO", "FRAME", "MEMOIZE", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET"),
    *("NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"),
    *("BINBYTES", "SHORT_BINBYTES", "APPEND", "APPENDS"),
)
_MAKE_TEXTS: Final = ("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8")
_MAKE_CONTAINERS: Final = ("EMPTY_LIST", "EMPTY_DICT", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3")


def _code(name: str) -> int:
    code: bytes = vars(pickle)[name]
    return code[0]


# The types of the standard library lack the base class.
class _PlainUnpickler(_Unpickler):  # type: ignore[misc]
    dispatch: ClassVar = _Instructions(
        {_code(name): _Unpickler.dispatch[_code(name)] for name in _SAFE}
        | {_code(name): _encodable(_Unpickler.dispatch[_code(name)]) for name in _MAKE_TEXTS}
        | {_code(name): _counted(_Unpickler.dispatch[_code(name)]) for name in _MAKE_CONTAINERS}
        | {_code("SETITEM"): _set_item, _code("SETITEMS"): _set_items, _code("MARK"): _mark, _code("STOP"): _stop}
    )
    containers = 0
