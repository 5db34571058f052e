"""Where a parser is in a mangled name, with bounds on what reading it may cost: the name may be from anybody."""

import re
from typing import Final

from perfkit.errors import PerfkitError

_DEEPEST: Final = 50
"""Nested parts; each takes up to ten frames of Python."""
_MOST_WORK: Final = 1_000_000
"""Most characters spelled for a name, intermediate parts included: a text may double with each use of what was spelled
before. A kernel's name of 2,000 characters, spelled in 10,000, takes about 200,000."""
_PART: Final = 100
"""What a part costs besides its characters."""
_NUMBER: Final = re.compile(r"\d{1,6}")
_SEQUENCE: Final = re.compile(r"[0-9A-Z]{0,4}_")


class NotReadableError(PerfkitError):
    """A name is not mangled by the ABI, uses a part of it that is not read, or exceeds a bound."""


class Cursor:
    """A position in a name."""

    def __init__(self, name: str) -> None:
        self._name, self._position = name, 0
        self._depth = 0
        self.work = 0
        """Characters spelled so far, those of intermediate parts too."""

    @property
    def rest(self) -> str:
        """What was not read yet."""
        return self._name[self._position :]

    def _peek(self, length: int = 1) -> str:
        return self._name[self._position : self._position + length]

    def _take(self, length: int) -> str:
        taken = self._peek(length)
        if len(taken) < length:
            raise self._error()
        self._position += length
        return taken

    def _next(self, expected: str) -> bool:
        if not self._name.startswith(expected, self._position):
            return False
        self._position += len(expected)
        return True

    def _need(self, expected: str) -> None:
        if not self._next(expected):
            raise self._error()

    def _number(self) -> int:
        match = _NUMBER.match(self._name, self._position)
        if match is None:
            raise self._error()
        self._position = match.end()
        return int(match[0])

    def _place(self) -> int:
        """Read a place in a list: `_`, `0_`, `1_`, …, `10_`."""
        found = 0 if self._peek() == "_" else self._number() + 1
        self._need("_")
        return found

    def _sequence(self) -> int:
        """Read a place among the substitutions: `_`, `0_`, …, `Z_`, `10_`, in base 36."""
        match = _SEQUENCE.match(self._name, self._position)
        if match is None:
            raise self._error()
        self._position = match.end()
        digits = match[0][:-1]
        return int(digits, 36) + 1 if digits else 0

    def _counted(self, text: str) -> str:
        self.work += len(text) + _PART
        if self.work > _MOST_WORK:
            raise self._error()
        return text

    def _enter(self) -> None:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._error()

    def _leave(self) -> None:
        self._depth -= 1

    def _error(self) -> NotReadableError:
        return NotReadableError(f"not readable from character {self._position} on")
