"""What may be right of the `=` of a change: each reader returns a value, or raises what it expected."""

import math
import re
from collections.abc import Mapping
from typing import ClassVar, Final, Self

from perfkit.engine.whatif.change import Change, ChangeError
from perfkit.records.facts import Fact, fact

MOST_REPLAYED: Final = 4_000_000
"""Nodes that are replayed for one question of a report: a second per million."""
MOST_FACTOR: Final = 1000.0
_MOST_BELOW_NS: Final = 10**9
_MOST_BYTES: Final = 1 << 40

_FACTOR: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})x|0")
_UNITS_NS: Final = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6}
_UNITS_BYTES: Final = {
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
}


def unexpected(value: str, expected: Fact) -> ChangeError:
    """Return the error of a value that is not what is expected."""
    return ChangeError(fact("unexpected", value=value, expected=expected))


def read_factor(value: str, name: str = "factor") -> float:
    """Return a factor such as `0.5x`, or 0, up to `MOST_FACTOR`; `name` is the fact of what is expected."""
    match = _FACTOR.fullmatch(value)
    factor = math.inf if match is None else float(match[1] or 0)
    if factor > MOST_FACTOR or (factor == 0 and name == "positive_factor"):
        raise unexpected(value, fact(name, most=MOST_FACTOR))
    return factor


def read_word(value: str, expected: str) -> None:
    """Check that a value is a word."""
    if value != expected:
        raise unexpected(value, fact("word", word=expected))


def read_whole(value: str, name: str, most: int) -> int:
    """Return a number from 1 to `most`; `name` is the fact of what is expected."""
    number = int(value) if re.fullmatch(r"[0-9]{1,10}", value) else 0
    if not 0 < number <= most:
        raise unexpected(value, fact(name, most=most))
    return number


def read_duration(value: str) -> int:
    """Return a duration such as `5us` in nanoseconds."""
    return _quantity(value, "duration", _UNITS_NS, _MOST_BELOW_NS)


def read_size(value: str) -> int:
    """Return a size such as `25MiB` in bytes."""
    return _quantity(value, "size", _UNITS_BYTES, _MOST_BYTES)


def _quantity(value: str, name: str, units: Mapping[str, int], most: int) -> int:
    match = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,9})?) ?([A-Za-zµ]{1,3})", value)
    number = float(match[1]) * units.get(match[2], 0) if match else 0.0
    if not 1 <= number <= most:
        raise unexpected(value, fact(name))
    return round(number)


class ScaleNamed(Change, frozen=True):
    """What has a name takes `factor` of its time."""

    pattern: str
    """A name, or a glob of names."""
    factor: float

    @classmethod
    def read(cls, name: str, value: str) -> Self:
        """Return the change."""
        return cls(name, read_factor(value))


class Scaling(Change, frozen=True):
    """All of a kind takes `factor` of its time."""

    factor: float

    @classmethod
    def read(cls, name: str, value: str) -> Self:  # noqa: ARG003
        """Return the change."""
        return cls(read_factor(value))


class Removal(Change, frozen=True):
    """Something is `removed`, or what else the word is."""

    word: ClassVar = "removed"

    @classmethod
    def read(cls, name: str, value: str) -> Self:  # noqa: ARG003
        """Return the change."""
        read_word(value, cls.word)
        return cls()
