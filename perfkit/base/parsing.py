"""Parse sizes, durations, names, and lists of numbers and ranges."""

import re
from collections.abc import Sequence
from typing import Final

from perfkit.base.step_numbers import in_series, numbered
from perfkit.errors import UsageError

_UNITS: Final[dict[str, int]] = {"": 1, "B": 1} | {
    f"{prefix}{ending}": (1000 if ending == "B" else 1024) ** power
    for power, prefix in enumerate("KMGT", 1)
    for ending in ("", "B", "iB")
}
_SIZE: Final = re.compile(r"(\d{1,15})\s*([A-Za-z]*)", re.ASCII)
_LARGEST: Final = 1 << 46


def parse_size(text: str, option: str) -> int:
    """Return bytes: `8`, `64K` and `64KiB` (1024 bytes each), `64KB` (1000 bytes each).

    Raises:
        UsageError: It is not such a size, zero, or larger than any.
    """
    match = _SIZE.fullmatch(text.strip())
    unit = _UNITS.get(match[2][:1].upper() + match[2][1:]) if match else None
    if match is None or unit is None:
        raise UsageError(f"{option} {text}: write a size as 8, 64K, 4MiB (powers of 1024) or 4MB (4,000,000 bytes)")
    size = int(match[1]) * unit
    if not 0 < size <= _LARGEST:
        raise UsageError(f"{option} {text}: must be from 1 byte to {_LARGEST >> 40} TiB")
    return size


_UNITS_NS: Final = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_DURATION: Final = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)\s*(ns|us|ms|s|m|h)")


def parse_duration(text: str, option: str) -> int:
    """Return a duration such as `60ms`, `1.5s` or `10m` in nanoseconds.

    Raises:
        UsageError: It has no unit, or is not a number.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{option}: '{text}' is not a duration; write it as 60ms, 1.5s, 10m or 1h")
    return round(float(match[1]) * _UNITS_NS[match[2]])


def check_pattern(text: str, option: str) -> None:
    """Raise UsageError unless `text` is a regular expression."""
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError) as error:  # also: a count too large, groups nested too deeply
        raise UsageError(f"{option} {text!r} is not a regular expression: {error}") from error


def parse_names(text: str, known: Sequence[str], option: str) -> list[str]:
    """Return the names in `a,b`, each once.

    Raises:
        UsageError: One is not known.
    """
    names = list(dict.fromkeys(part.strip() for part in text.split(",")))
    for name in names:
        if name not in known:
            raise UsageError(f"{option} {text}: there is no {name!r}: choose from {', '.join(known)}")
    return names


def parse_numbers(text: str, option: str, example: str, *, least: int = 1, most: int) -> list[int]:
    """Return the whole numbers in `1,2`, each once.

    Raises:
        UsageError: One is none, or out of range.
    """
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() and least <= int(part[:18]) <= most for part in parts):
        raise UsageError(f"{option} {text}: write numbers from {least} to {most:,}, such as {example}")
    return list(dict.fromkeys(map(int, parts)))


_RANGE = re.compile(r"(?:([1-9]\d{0,5}):)?(\d{1,18})(?:-(\d{1,18}))?")


def parse_step(text: str, option: str) -> int:
    """Return a step by its number: `3`, or of a later series of numbers `2:3`.

    Raises:
        UsageError: it is none.
    """
    match = _RANGE.fullmatch(text)
    if match is None or match[3]:
        raise UsageError(f"{option} {text}: give the number of a step, such as 3, or 2:3 if numbers start again")
    return in_series(int(match[2]), int(match[1] or 1))


class Ranges:
    """A set of numbers, stored as ranges: `0-999999999` costs nothing. `2:3-5` are steps of the second series.

    Raises:
        UsageError: the text is not such a list.
    """

    def __init__(self, option: str, text: str) -> None:
        self._option = option
        self._ranges = [self._parse(part.strip()) for part in text.split(",")]

    def _parse(self, part: str) -> tuple[int, int]:
        match = _RANGE.fullmatch(part)
        if match is None or int(match[3] or match[2]) < int(match[2]):
            raise UsageError(f"{self._option} {part or '(nothing)'}: give numbers and ranges such as 0,7 or 12-14")
        series, first, last = (int(number) for number in (match[1] or 1, match[2], match[3] or match[2]))
        return in_series(first, series), in_series(last, series)

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and any(first <= number <= last for first, last in self._ranges)

    def check(self, existing: set[int], what: str) -> None:
        """Raise UsageError unless every bound of a range exists; `what` names the numbered thing."""
        for number in (number for bounds in self._ranges for number in bounds):
            if number not in existing:
                has = _listed(sorted(existing)) if existing else "none with a known number"
                raise UsageError(f"{self._option} {numbered(number)}: no such {what}; existing: {has}")


def _listed(numbers: list[int]) -> str:
    if len(numbers) == numbers[-1] - numbers[0] + 1 and len(numbers) > 2:
        return f"{numbered(numbers[0])} to {numbered(numbers[-1])}"
    return ", ".join(map(numbered, numbers[:8])) + (", ..." if len(numbers) > 8 else "")
