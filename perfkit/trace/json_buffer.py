"""Cutting a JSON text that arrives in pieces at the boundaries of its values, without ever holding all of it.

Two ways find where a value ends. The fast one takes the last `}, {` as a guess, which the decoder of the slice then
confirms: text that decodes as whole values ends where a value ends. Where it does not decode, `marks` looks at every
quote, escape and bracket, vectorised, and is right about any text.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.trace.intervals import Ints

_QUOTE, _BACKSLASH, _COMMA = b'"'[0], b"\\"[0], b","[0]
_STEP: Final = np.zeros(256, np.int8)
"""How a character outside of strings changes the depth."""
_STEP[[*b"[{"]] = 1
_STEP[[*b"]}"]] = -1
_IS_MARK: Final = _STEP != 0
_IS_MARK[_COMMA] = True

_BETWEEN: Final = re.compile(rb"\}[ \t\r\n]*,[ \t\r\n]*(?=\{)")
_GUESS_BYTES: Final = 1 << 13
"""How far from the end of a slice the guess is looked for."""
SPACE: Final = b" \t\r\n"


class Structure(NamedTuple):
    """Brackets and commas outside of strings; columns of shape (m,)."""

    at: Ints
    char: NDArray[np.uint8]
    depth: Ints
    """After the mark, relative to the beginning of the text."""
    in_string: bool
    """Whether the text ends within a string, and whether its last character escapes the next."""
    escaping: bool


def find_structure(text: bytes, *, in_string: bool = False, escaped: bool = False) -> Structure:
    """Return the structure of a text that begins in the given state."""
    if escaped:  # as if the backslash before it were here
        found = find_structure(b"\\" + text, in_string=in_string)
        return found._replace(at=found.at - 1)
    chars = np.frombuffer(text, np.uint8)
    quotes = np.flatnonzero(chars == _QUOTE)
    escapes = _escaped(chars) if b"\\" in text else quotes[:0]
    quotes = quotes[~np.isin(quotes, escapes)] if len(escapes) else quotes
    at = np.flatnonzero(_IS_MARK[chars])
    at = at[(np.searchsorted(quotes, at) + in_string) % 2 == 0]
    return Structure(
        at=at,
        char=chars[at],
        depth=np.cumsum(_STEP[chars[at]], dtype=np.int64),
        in_string=bool((len(quotes) + in_string) % 2),
        escaping=bool(len(escapes) and escapes[-1] == len(text)),
    )


def _escaped(chars: NDArray[np.uint8]) -> Ints:
    """Return the positions behind an odd number of backslashes (the last may be the text's length)."""
    at = np.flatnonzero(chars == _BACKSLASH)
    begins = np.concatenate(([True], np.diff(at) != 1))
    run = at - np.maximum.accumulate(np.where(begins, at, 0)) + 1
    return np.asarray(at[run % 2 == 1] + 1, np.int64)


class TextBuffer:
    """A text that arrives in pieces, read from a cursor that only moves forward."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._data = b""
        self._at = 0
        self._before = 0
        """Bytes of the whole before those in `_data`."""
        self.ended = False
        self.broken: Exception | None = None
        """What the source raised, where it ended by that."""

    @property
    def data(self) -> bytes:
        """What is at hand from the cursor on."""
        if self._at:
            self._data, self._before, self._at = self._data[self._at :], self.offset, 0
        return self._data

    @property
    def offset(self) -> int:
        """The cursor's place in the whole."""
        return self._before + self._at

    @property
    def end(self) -> int:
        """How long the whole is, as far as it is known."""
        return self._before + len(self._data)

    def __len__(self) -> int:
        return len(self._data) - self._at

    def first(self) -> bytes:
        """Return the byte at the cursor, nothing where none is at hand."""
        return self._data[self._at : self._at + 1]

    def head(self, size: int) -> bytes:
        """Return the first bytes at hand."""
        return self._data[self._at : self._at + size]

    def match(self, pattern: re.Pattern[bytes]) -> bytes | None:
        """Return what matches at the cursor, None where nothing does."""
        found = pattern.match(self._data, self._at)
        return found.group() if found else None

    def find_end(self, pattern: re.Pattern[bytes]) -> int | None:
        """Return how far behind the cursor the next match ends, None where nothing at hand matches."""
        found = pattern.search(self._data, self._at)
        return found.end() - self._at if found else None

    def drop(self, count: int) -> None:
        """Move the cursor; what is before it is forgotten."""
        self._at += count

    def exhaust(self) -> None:
        """Read to the end and forget."""
        while not self.ended:
            self.drop(len(self))
            self.fill(1)

    def fill(self, size: int) -> bool:
        """Get at least `size` bytes to hand, if there are so many; say whether anything came."""
        have = before = len(self)
        if have >= size or self.ended:
            return False
        parts = [self.data]
        while have < size and not self.ended:
            piece = self._next()
            parts.append(piece)
            have += len(piece)
        self._data = b"".join(parts)
        return have > before

    def _next(self) -> bytes:
        from perfkit.trace.decompression import BrokenStreamError

        try:
            piece = next(self._pieces, None)
        except BrokenStreamError as error:
            self.broken = error
            piece = None
        self.ended = piece is None
        return piece or b""

    def guess(self, size: int) -> tuple[int, int] | None:
        """Return where the last object in the first `size` bytes ends that another follows, and where that begins."""
        data, first, last = self.data, max(0, size - _GUESS_BYTES), None
        for last in _BETWEEN.finditer(data, first, size):  # noqa: B007 - the last one is wanted
            pass
        return (last.start() + 1, last.end()) if last else None
