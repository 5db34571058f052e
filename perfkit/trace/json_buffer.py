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
from perfkit.trace.event_decoding import load_leniently
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

    def head(self, size: int) -> bytes:
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
            try:
                piece = next(self._pieces, None)
            except BrokenStreamError as error:
                self.stream_error = error
                piece = None
            self.ended = piece is None
            piece = piece or b""
            parts.append(piece)
            have += len(piece)
        self._data = b"".join(parts)
        return have > before

    def guess_boundary(self, size: int) -> tuple[int, int] | None:
        """Guess a boundary of events in the first `size` bytes: the last place where one object follows another.

        Returns:
            Where the one ends and where the other begins, or None.
        """
        data, first, last = self.data, max(0, size - _GUESS_BYTES), None
        for last in _BETWEEN_OBJECTS.finditer(data, first, size):  # noqa: B007 - the last one is used
            pass
        return (last.start() + 1, last.end()) if last else None


_LARGEST_BYTES: Final = 16 << 20
"""Limit for one string, one kept value of the header, and one run of white space."""
FILL_BYTES: Final = 1 << 16
_SMALL_BYTES: Final = 256
_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_BLANKS: Final = re.compile(rb"[ \t\r\n]*")
_SCALAR: Final = re.compile(rb"[^\s,\]}]*(?=[\s,\]}])")


class MalformedError(Exception):
    """The text cannot be parsed from byte `at` on; `at_end` if only because it ends there."""

    def __init__(self, at: int, reason: str, *, at_end: bool = False) -> None:
        super().__init__(reason)
        self.at = at
        self.at_end = at_end


class JsonCursor:
    """Reads values at the cursor of a text; every method but `peek` moves the cursor behind what it returns."""

    def __init__(self, text: TextBuffer) -> None:
        self._text = text

    # ---- errors ----------------------------------------------------------------------------------------------------

    def error(self, reason: str) -> MalformedError:
        """Return the error for the byte at the cursor; at the end of the text, that is the reason."""
        if self._text.ended and not len(self._text):
            return self.end_error()
        return MalformedError(self._text.offset, reason)

    def end_error(self) -> MalformedError:
        return MalformedError(self._text.end, "the text ends too soon; was its writer killed?", at_end=True)

    def incomplete_event_error(self, begin: int) -> MalformedError:
        """Return the error for a text whose last event begins at `begin` in the buffer, and is incomplete."""
        rest = self._text.data[begin:]
        begin += len(rest) - len(rest.lstrip(SPACE))
        if begin >= len(self._text.data):
            return self.end_error()
        reason = "the event that begins there is incomplete; was its writer killed?"
        return MalformedError(self._text.offset + begin, reason, at_end=True)

    # ---- values ----------------------------------------------------------------------------------------------------

    def peek(self) -> bytes:
        """Skip white space and return the next character; empty at the end of the text."""
        text, blank = self._text, 0
        while True:
            count = len(text.match(_BLANKS) or b"")
            text.drop(count)
            blank += count
            if len(text):
                return text.head(1)
            if blank > _LARGEST_BYTES:
                raise self.error(f"more than {_LARGEST_BYTES >> 20} MiB of white space")
            if not text.fill(FILL_BYTES):
                return b""

    def key(self) -> str:
        """Take a key and its colon."""
        if self.peek() != b'"':
            raise self.error("a key of the header was expected")
        raw = self._matching(_STRING)
        try:
            key = load_leniently(raw)
        except ValueError:
            raise self.error("a key of the header cannot be decoded") from None
        if self.peek() != b":":
            raise self.error("a colon was expected after a key of the header")
        self._text.drop(1)
        return str(key)

    def value(self, *, keep: bool) -> bytes:
        """Take any value; the text of a large container is returned only if `keep`."""
        first = self.peek()
        if first in (b"[", b"{"):
            return self._container(keep=keep)
        if first == b'"':
            return self._matching(_STRING)
        if first == b"":
            raise self.end_error()
        # A number, `true` and the like; at the very end of the text no delimiter follows.
        text = self._text
        while (match := text.match(_SCALAR)) is None and text.fill(2 * len(text) + FILL_BYTES):
            if len(text) > _LARGEST_BYTES:
                raise self.error(f"a value is longer than {_LARGEST_BYTES >> 20} MiB")
        value = text.data if match is None else match
        if not value:
            raise self.error("a value was expected")
        text.drop(len(value))
        return value

    def _matching(self, pattern: re.Pattern[bytes]) -> bytes:
        """Take what matches, however many pieces it arrives in."""
        text, size = self._text, FILL_BYTES
        while (match := text.match(pattern)) is None:
            size = max(size, 2 * len(text))
            if len(text) > _LARGEST_BYTES:
                raise self.error(f"a value is longer than {_LARGEST_BYTES >> 20} MiB")
            if not text.fill(size):
                raise self.end_error() if text.ended else self.error("a value cannot be decoded")
        text.drop(len(match))
        return match

    def _container(self, *, keep: bool) -> bytes:
        """Take an array or object; one that is not kept is forgotten piece by piece."""
        text, size = self._text, _SMALL_BYTES
        while size < FILL_BYTES:  # most values are small, and there may be very many
            structure = find_structure(text.head(size))
            if len(closes := np.flatnonzero(structure.depth == 0)):
                value = text.head(int(structure.at[closes[0]]) + 1)
                text.drop(len(value))
                return value
            size *= 4
        return self._large_container(keep=keep)

    def _large_container(self, *, keep: bool) -> bytes:
        text = self._text
        parts: list[bytes] = []
        in_string = escaped = False
        depth = have = 0
        while True:
            structure = find_structure(text.data, in_string=in_string, escaped=escaped)
            closes = np.flatnonzero(structure.depth + depth == 0)
            size = int(structure.at[closes[0]]) + 1 if len(closes) else len(text.data)
            have += size
            if keep:
                parts.append(text.data[:size])
                if have > _LARGEST_BYTES:
                    raise self.error(f"a value of the header is longer than {_LARGEST_BYTES >> 20} MiB")
            text.drop(size)
            if len(closes):
                return b"".join(parts)
            depth += int(structure.depth[-1]) if len(structure.depth) else 0
            in_string, escaped = structure.in_string, structure.escaping
            if not text.fill(FILL_BYTES):
                raise self.end_error()
