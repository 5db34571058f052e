"""Read single values of a JSON text at a cursor: keys, numbers, strings, containers of any size."""

import re
from typing import Final

import numpy as np

from perfkit.trace.event_decoding import load_leniently
from perfkit.trace.json_buffer import SPACE, TextBuffer, find_structure

_LARGEST_BYTES: Final = 16 << 20
"""Limit for one string, one kept value of the header, and one run of white space."""
_FILL_BYTES: Final = 1 << 16
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
        """Return the error for a text that ends too soon."""
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
                return text.first()
            if blank > _LARGEST_BYTES:
                raise self.error(f"more than {_LARGEST_BYTES >> 20} MiB of white space")
            if not text.fill(_FILL_BYTES):
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
        return self._scalar()

    def _matching(self, pattern: re.Pattern[bytes]) -> bytes:
        """Take what matches, however many pieces it arrives in."""
        text, size = self._text, _FILL_BYTES
        while (match := text.match(pattern)) is None:
            size = max(size, 2 * len(text))
            if len(text) > _LARGEST_BYTES:
                raise self.error(f"a value is longer than {_LARGEST_BYTES >> 20} MiB")
            if not text.fill(size):
                raise self.end_error() if text.ended else self.error("a value cannot be decoded")
        text.drop(len(match))
        return match

    def _scalar(self) -> bytes:
        """Take a number, `true` and the like; at the very end of the text no delimiter follows."""
        text = self._text
        while (match := text.match(_SCALAR)) is None and text.fill(2 * len(text) + _FILL_BYTES):
            if len(text) > _LARGEST_BYTES:
                raise self.error(f"a value is longer than {_LARGEST_BYTES >> 20} MiB")
        value = text.data if match is None else match
        if not value:
            raise self.error("a value was expected")
        text.drop(len(value))
        return value

    def _container(self, *, keep: bool) -> bytes:
        """Take an array or object; one that is not kept is forgotten piece by piece."""
        text, size = self._text, _SMALL_BYTES
        while size < _FILL_BYTES:  # most values are small, and there may be very many
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
            if not text.fill(_FILL_BYTES):
                raise self.end_error()
