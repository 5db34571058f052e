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


class Marks(NamedTuple):
    """Brackets and commas outside of strings; columns of shape (m,)."""

    at: Ints
    char: NDArray[np.uint8]
    depth: Ints
    """After the mark, relative to the beginning of the text."""
    in_string: bool
    """Whether the text ends within a string, and whether its last character escapes the next."""
    escaping: bool


def marks(text: bytes, *, in_string: bool = False, escaped: bool = False) -> Marks:
    """Return the structure of a text that begins in the given state."""
    if escaped:  # as if the backslash before it were here
        found = marks(b"\\" + text, in_string=in_string)
        return found._replace(at=found.at - 1)
    chars = np.frombuffer(text, np.uint8)
    quotes = np.flatnonzero(chars == _QUOTE)
    escapes = _escaped(chars) if b"\\" in text else quotes[:0]
    quotes = quotes[~np.isin(quotes, escapes)] if len(escapes) else quotes
    at = np.flatnonzero(_IS_MARK[chars])
    at = at[(np.searchsorted(quotes, at) + in_string) % 2 == 0]
    return Marks(
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


class Text:
    """A text that arrives in pieces; `data` is the part at hand, which begins at byte `offset` of the whole."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self.data = b""
        self.offset = 0
        self.ended = False
        self.broken: Exception | None = None
        """What the source raised, where it ended by that."""

    def fill(self, size: int) -> bool:
        """Get at least `size` bytes to hand, if there are so many; say whether anything came."""
        parts, have = [self.data], len(self.data)
        while have < size and not self.ended:
            piece = self._next()
            parts.append(piece)
            have += len(piece)
        if len(parts) > 1:
            self.data = b"".join(parts)
        return len(self.data) > len(parts[0])

    def _next(self) -> bytes:
        from perfkit.trace.streams import BrokenStreamError

        try:
            piece = next(self._pieces, None)
        except BrokenStreamError as error:
            self.broken = error
            piece = None
        self.ended = piece is None
        return piece or b""

    def exhaust(self) -> None:
        """Read to the end and forget."""
        while not self.ended:
            self.drop(len(self.data))
            self.fill(1)

    @property
    def end(self) -> int:
        """How long the whole is, as far as it is known."""
        return self.offset + len(self.data)

    def drop(self, count: int) -> None:
        """Forget the first bytes."""
        self.data = self.data[count:]
        self.offset += count

    def guess(self, size: int) -> tuple[int, int] | None:
        """Return where the last object in the first `size` bytes ends that another follows, and where that begins."""
        first = max(0, size - _GUESS_BYTES)
        last = None
        for last in _BETWEEN.finditer(self.data, first, size):  # noqa: B007 - the last one is wanted
            pass
        return (last.start() + 1, last.end()) if last else None
