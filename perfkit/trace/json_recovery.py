"""Where damage ends: finding the next whole event in text whose brackets cannot be trusted.

The brackets of a torn event do not say where it ends. A decoder stops at the first character that cannot stand where it
stands: so a torn event costs about its own length, however much stands behind it and however many are torn.
"""

import json
import re
from typing import Any, Final, Literal, NamedTuple

from perfkit.trace.event_decoding import LENIENT_BYTES
from perfkit.trace.json_buffer import TextBuffer

_NEXT: Final = re.compile(rb',[ \t\r\n]*+(?=\{[ \t\r\n]*+")')
"""A quote is never bare within a string, so that this stands between two objects, or looks like it in torn text."""
_BLANKS: Final = re.compile(r"[ \t\r\n]*+")
_ESCAPED: Final = re.compile(r"\\.", re.DOTALL)
"""Where a string ends, depends on no other escape than that of a quote; the lenient decoder reads all of them."""
_WINDOW_BYTES: Final = 1 << 7
_LONGEST_WORD: Final = 16
"""An error so close to the end of what is at hand may be half of `-Infinity`."""
_OVERLAP_BYTES: Final = 1 << 12
_FILL_BYTES: Final = 1 << 16
_STRUCTURE: Final = json.JSONDecoder(strict=False, parse_float=len, parse_int=len)


class Value(NamedTuple):
    """What stands at a place of the text."""

    state: Literal["whole", "torn", "cut", "unsure"]
    """Whole, with a comma or a closing bracket behind it; not to be read; cut short by the end of the text; too large
    to say."""
    size: int
    """How much of the text it takes, or how much told that it is not whole."""
    may_be_event: bool = False
    """Whether it is an object with a phase, as no object within an event's arguments is."""


class DamagedRegions:
    """Places where events could not be read, while what follows them could."""

    def __init__(self) -> None:
        self.count = 0
        self.first: tuple[int, str] | None = None
        """Where the first is, and why; no other is remembered: there may be as many as events."""

    def add(self, at: int, why: str) -> None:
        """Count one more."""
        self.first = self.first or (at, why)
        self.count += 1


def probe_value(text: TextBuffer, slice_bytes: int) -> Value:
    """Look at as much of the text as it takes to tell what stands at its cursor."""
    size = min(slice_bytes, _WINDOW_BYTES)
    while True:
        if len(text) < size:
            text.fill(max(size, slice_bytes))
        window = text.head(size)
        found = _value(window, is_rest=text.ended and len(window) == len(text))
        if found:
            return found
        if size >= LENIENT_BYTES:
            return Value("unsure", LENIENT_BYTES, may_be_event=True)
        size = min(4 * size, LENIENT_BYTES)


def _value(window: bytes, *, is_rest: bool) -> Value | None:
    """Return what the window begins with; None where that depends on what stands behind the window."""
    text = window.decode("latin-1")  # a character for each byte
    if "\\" in text:
        text = _ESCAPED.sub("__", text)
    try:
        value, end = _STRUCTURE.raw_decode(text)
    except RecursionError:
        return Value("torn", len(text))
    except json.JSONDecodeError as error:
        if error.pos <= len(text) - _LONGEST_WORD and not error.msg.startswith("Unterminated string"):
            return Value("torn", error.pos + 1)
        return Value("cut", len(text)) if is_rest else None
    return _followed(value, end, text, is_rest=is_rest)


def _followed(value: Any, end: int, text: str, *, is_rest: bool) -> Value | None:
    blank = _BLANKS.match(text, end)
    behind = blank.end() if blank else end
    has_phase = isinstance(value, dict) and "ph" in value
    if behind == len(text):
        return Value("cut", behind, may_be_event=has_phase) if is_rest else None
    if text[behind] not in ",]}":
        return Value("torn", behind + 1)
    return Value("whole", end, may_be_event=has_phase)


def seek_next_event(text: TextBuffer) -> bool:
    """Go to the next place behind the cursor where an event may begin, if there is one."""
    while (size := text.find_end(_NEXT)) is None:
        text.drop(max(0, len(text) - _OVERLAP_BYTES))
        if not text.fill(len(text) + _FILL_BYTES):
            return False
    text.drop(size)
    return True
