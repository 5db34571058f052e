"""Recover events after damage: find the next whole event in text whose brackets cannot be trusted.

The brackets of a torn event do not show where it ends. A decoder stops at the first character that is invalid in its
place, so a torn event costs about its own length to skip, however much text follows and however many events are torn.
"""

import json
import re
from collections.abc import Callable, Generator
from typing import Any, Final, Literal, NamedTuple

from perfkit.trace.event_decoding import LENIENT_BYTES
from perfkit.trace.json_buffer import FILL_BYTES, JsonCursor, MalformedError, TextBuffer

UNREADABLE: Final = "an event cannot be decoded"
UNOPENED: Final = "a bracket closes that was not opened"

_EVENT_START: Final = re.compile(rb',[ \t\r\n]*+(?=\{[ \t\r\n]*+")')
"""A quote is never bare within a string, so this stands between two objects, or looks like it in torn text."""
_BLANKS: Final = re.compile(r"[ \t\r\n]*+")
_ESCAPED: Final = re.compile(r"\\.", re.DOTALL)
"""Only the escape of a quote affects where a string ends; the lenient decoder reads all escapes."""
_WINDOW_BYTES: Final = 1 << 7
_LONGEST_WORD: Final = 16
"""An error this close to the end of the window may be half of `-Infinity`."""
_OVERLAP_BYTES: Final = 1 << 12
_BATCH: Final = 1 << 12
_STRUCTURE: Final = json.JSONDecoder(strict=False, parse_float=len, parse_int=len)
_SCAN_BUDGET_BYTES: Final = 16 << 20
_SCAN_BUDGET_FACTOR: Final = 8
"""Budget for text that is scanned for events without finding any: a constant, plus a multiple of the text read so far.

A torn event costs its own length. Only if every event continues to the end of the text, which no accident does, the
cost would be quadratic.
"""


class ProbedValue(NamedTuple):
    """The value at a place of the text."""

    state: Literal["whole", "torn", "cut", "undecided"]
    """Whole, with a comma or a closing bracket after it; not decodable; cut off by the end of the text; too large to
    decide."""
    size: int
    """Length of the value, or of the text that showed that it is not whole."""
    may_be_event: bool = False
    """Whether it is an object with a phase, which no object within an event's arguments is."""


class EventRecovery:
    """Decodes events one by one after damage.

    Args:
        slice_bytes: how much text is decoded before the caller's faster way is tried again.
        decode_one: decodes the text of one value: a list of at most one event, or None if it cannot be decoded.
    """

    def __init__(self, text: TextBuffer, slice_bytes: int, decode_one: Callable[[bytes], list[Any] | None]) -> None:
        self._text = text
        self._cursor = JsonCursor(text)
        self._slice_bytes = slice_bytes
        self._decode_one = decode_one
        self._scanned_bytes = 0
        self.damages = 0
        """Places where events could not be decoded, while events after them could."""
        self.first_damage: tuple[int, str] | None = None
        """Position of the first and the reason; no other is kept, there may be as many as events."""

    def recover(self, error: MalformedError) -> Generator[list[Any], None, bool]:
        """Yield the events after damage until a whole slice has none.

        Returns:
            Whether the array of events has ended.

        Raises:
            MalformedError: no event follows the damage.
        """
        events: list[Any] = []
        self._text.drop(error.at - self._text.offset)
        while True:
            try:
                self._skip_damage(error)
            except MalformedError:
                yield events
                raise
            try:
                ended = self._decode_slice(events)
            except MalformedError as later:
                error = later
            else:
                yield events
                return ended
            if len(events) >= _BATCH:
                yield events
                events = []

    def _skip_damage(self, error: MalformedError) -> None:
        """Move the cursor from the damage to the next event that can be decoded; raise the error if there is none."""
        text = self._text
        value = probe_value(text, self._slice_bytes)
        if value.state == "torn" and text.head(1) != b"}":  # where its brackets seem to end means nothing
            error = MalformedError(error.at, UNREADABLE)
        self._charge_scan_budget(value, error)
        text.drop(min(1, len(text)))
        while seek_next_event(text):
            value = probe_value(text, self._slice_bytes)
            if value.may_be_event:
                self.first_damage = self.first_damage or (error.at, str(error))
                self.damages += 1
                return
            self._charge_scan_budget(value, error)
        raise error

    def _charge_scan_budget(self, value: ProbedValue, error: MalformedError) -> None:
        """Account for text that was scanned in vain; raise the error if the budget is spent."""
        self._scanned_bytes += value.size
        if self._scanned_bytes > _SCAN_BUDGET_BYTES + _SCAN_BUDGET_FACTOR * self._text.offset:
            raise error

    def _decode_slice(self, events: list[Any]) -> bool:
        """Append the events of the next slice, or those before a value that is too large to probe.

        Returns:
            Whether the array of events has ended.

        Raises:
            MalformedError: one of them cannot be decoded.
        """
        text = self._text
        upto = text.offset + self._slice_bytes
        while text.offset < upto:
            first = self._cursor.peek()
            if first == b"}":
                raise self._cursor.error(UNOPENED)
            if first in (b"]", b","):  # an empty place between two commas is not an event
                text.drop(1)
                if first == b"]":
                    return True
                continue
            value = probe_value(text, self._slice_bytes)
            if value.state in ("cut", "undecided"):
                return False
            event = self._decode_one(text.head(value.size)) if value.state == "whole" else None
            if event is None:
                raise self._cursor.error(UNREADABLE)
            events.extend(event)
            text.drop(value.size)
        return False


def probe_value(text: TextBuffer, slice_bytes: int) -> ProbedValue:
    """Examine as much of the text as needed to classify the value at its cursor."""
    size = min(slice_bytes, _WINDOW_BYTES)
    while True:
        if len(text) < size:
            text.fill(max(size, slice_bytes))
        window = text.head(size)
        value = _probe_window(window, is_rest=text.ended and len(window) == len(text))
        if value:
            return value
        if size >= LENIENT_BYTES:
            return ProbedValue("undecided", LENIENT_BYTES, may_be_event=True)
        size = min(4 * size, LENIENT_BYTES)


def _probe_window(window: bytes, *, is_rest: bool) -> ProbedValue | None:
    """Return what the window begins with; None if that depends on the text after the window."""
    text = window.decode("latin-1")  # one character per byte
    if "\\" in text:
        text = _ESCAPED.sub("__", text)
    try:
        value, end = _STRUCTURE.raw_decode(text)
    except RecursionError:
        return ProbedValue("torn", len(text))
    except json.JSONDecodeError as error:
        if error.pos <= len(text) - _LONGEST_WORD and not error.msg.startswith("Unterminated string"):
            return ProbedValue("torn", error.pos + 1)
        return ProbedValue("cut", len(text)) if is_rest else None
    # The value is whole if a delimiter follows it.
    blank = _BLANKS.match(text, end)
    after = blank.end() if blank else end
    has_phase = isinstance(value, dict) and "ph" in value
    if after == len(text):
        return ProbedValue("cut", after, may_be_event=has_phase) if is_rest else None
    if text[after] not in ",]}":
        return ProbedValue("torn", after + 1)
    return ProbedValue("whole", end, may_be_event=has_phase)


def seek_next_event(text: TextBuffer) -> bool:
    """Move the cursor to the next place where an event may begin; return whether there is one."""
    while (size := text.find_end(_EVENT_START)) is None:
        text.drop(max(0, len(text) - _OVERLAP_BYTES))
        if not text.fill(len(text) + FILL_BYTES):
            return False
    text.drop(size)
    return True
