"""Buffer a JSON text that arrives in pieces, and find where its values end, without ever holding all of it.

There are two ways to find where a value ends. The fast one guesses that it is the last `}, {`; decoding the slice then
confirms the guess, because text that decodes as whole values ends where a value ends. If the slice does not decode,
`find_structure` examines every quote, escape and bracket, vectorised, and is right for any text.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.trace.decompression import BrokenStreamError
from perfkit.trace.intervals import Ints

_QUOTE, _BACKSLASH, _COMMA = b'"'[0], b"\\"[0], b","[0]
_DEPTH_CHANGE: Final = np.zeros(256, np.int8)
"""Change of the nesting depth by each character, outside of strings."""
_DEPTH_CHANGE[[*b"[{"]] = 1
_DEPTH_CHANGE[[*b"]}"]] = -1
_IS_STRUCTURAL: Final = _DEPTH_CHANGE != 0
_IS_STRUCTURAL[_COMMA] = True

_BETWEEN_OBJECTS: Final = re.compile(rb"\}[ \t\r\n]*,[ \t\r\n]*(?=\{)")
_GUESS_BYTES: Final = 1 << 13
"""How far from the end of a slice the guess is searched for."""
SPACE: Final = b" \t\r\n"


class Structure(NamedTuple):
    """Brackets and commas outside of strings; columns of shape (m,)."""

    at: Ints
    char: NDArray[np.uint8]
    depth: Ints
    """Depth after the character, relative to the beginning of the text."""
    in_string: bool
    """Whether the text ends within a string."""
    escaping: bool
    """Whether the last character escapes the next."""


def find_structure(text: bytes, *, in_string: bool = False, escaped: bool = False) -> Structure:
    """Return the structure of a text that begins in the given state."""
    if escaped:  # as if the backslash before the text were part of it
        structure = find_structure(b"\\" + text, in_string=in_string)
        return structure._replace(at=structure.at - 1)
    chars = np.frombuffer(text, np.uint8)
    quotes = np.flatnonzero(chars == _QUOTE)
    escapes = _escaped(chars) if b"\\" in text else quotes[:0]
    quotes = quotes[~np.isin(quotes, escapes)] if len(escapes) else quotes
    at = np.flatnonzero(_IS_STRUCTURAL[chars])
    at = at[(np.searchsorted(quotes, at) + in_string) % 2 == 0]
    return Structure(
        at=at,
        char=chars[at],
        depth=np.cumsum(_DEPTH_CHANGE[chars[at]], dtype=np.int64),
        in_string=bool((len(quotes) + in_string) % 2),
        escaping=bool(len(escapes) and escapes[-1] == len(text)),
    )


def _escaped(chars: NDArray[np.uint8]) -> Ints:
    """Return the positions after an odd number of backslashes (the last may be the text's length)."""
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
        self._forgotten_bytes = 0
        """Length of the text before `_data`."""
        self.ended = False
        self.stream_error: Exception | None = None
        """The error that ended the pieces, if one did."""

    @property
    def data(self) -> bytes:
        """The buffered text from the cursor on."""
        if self._at:
            self._data, self._forgotten_bytes, self._at = self._data[self._at :], self.offset, 0
        return self._data

    @property
    def offset(self) -> int:
        """The position of the cursor in the whole text."""
        return self._forgotten_bytes + self._at

    @property
    def end(self) -> int:
        """The length of the text that has arrived."""
        return self._forgotten_bytes + len(self._data)

    def __len__(self) -> int:
        return len(self._data) - self._at

    def first(self) -> bytes:
        """Return the byte at the cursor; empty if none is buffered."""
        return self._data[self._at : self._at + 1]

    def head(self, size: int) -> bytes:
        """Return the first bytes of the buffered text."""
        return self._data[self._at : self._at + size]

    def match(self, pattern: re.Pattern[bytes]) -> bytes | None:
        """Return the match at the cursor, or None."""
        match = pattern.match(self._data, self._at)
        return match.group() if match else None

    def find_end(self, pattern: re.Pattern[bytes]) -> int | None:
        """Return the distance from the cursor to the end of the next match, or None if nothing buffered matches."""
        match = pattern.search(self._data, self._at)
        return match.end() - self._at if match else None

    def drop(self, count: int) -> None:
        """Move the cursor forward; the text before it is forgotten."""
        self._at += count

    def exhaust(self) -> None:
        """Read to the end and forget everything."""
        while not self.ended:
            self.drop(len(self))
            self.fill(1)

    def fill(self, size: int) -> bool:
        """Buffer at least `size` bytes, or all that are left; return whether any arrived."""
        have = before = len(self)
        if have >= size or self.ended:
            return False
        parts = [self.data]
        while have < size and not self.ended:
            piece = self._next_piece()
            parts.append(piece)
            have += len(piece)
        self._data = b"".join(parts)
        return have > before

    def _next_piece(self) -> bytes:
        try:
            piece = next(self._pieces, None)
        except BrokenStreamError as error:
            self.stream_error = error
            piece = None
        self.ended = piece is None
        return piece or b""

    def guess_boundary(self, size: int) -> tuple[int, int] | None:
        """Guess a boundary of events in the first `size` bytes: the last place where one object follows another.

        Returns:
            Where the one ends and where the other begins, or None.
        """
        data, first, last = self.data, max(0, size - _GUESS_BYTES), None
        for last in _BETWEEN_OBJECTS.finditer(data, first, size):  # noqa: B007 - the last one is used
            pass
        return (last.start() + 1, last.end()) if last else None
