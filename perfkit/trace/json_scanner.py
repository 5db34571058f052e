"""Walking through the text of a Chrome trace: an object with `traceEvents` anywhere in it, or a bare array of events.

What is damaged is damaged at a byte: all that is whole before it, and all events behind it, are kept.
"""

import re
from collections.abc import Generator, Iterator
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from perfkit.trace.event_decoding import (
    contains_no_object,
    decode_leniently,
    decode_strictly,
    decode_value,
    decode_with_metadata,
    load_leniently,
)
from perfkit.trace.intervals import Ints
from perfkit.trace.json_buffer import SPACE, TextBuffer, find_structure
from perfkit.trace.json_recovery import DamagedRegions, Value, probe_value, seek_next_event
from perfkit.trace.lanes import LANES_KEY, MERGED_KEY

SLICE_BYTES: Final = 1 << 19
_BOM: Final = b"\xef\xbb\xbf"
_LARGEST_BYTES: Final = 16 << 20
"""Of one string or kept value of the header, and of one stretch of blank space."""
_LARGEST_EVENT_BYTES: Final = 4 << 20
"""Where an event of nothing but brackets ends, takes a hundred times its size to find out."""
_FILL_BYTES: Final = 1 << 16
_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_BLANKS: Final = re.compile(rb"[ \t\r\n]*")
_SMALL_BYTES: Final = 256
_MOST_LISTS: Final = 16
"""Of events in one file, of which the last counts."""
_WASTE_BYTES: Final = 16 << 20
_MOST_WASTE: Final = 8
"""How much is looked at in vain for events behind damage: so much, and so many times the text. A torn event costs its
own length; only where each goes on to the end of the text, as no accident tears it, the square of it would be due."""
_BATCH: Final = 1 << 12
_UNREADABLE: Final = "an event cannot be read"
_UNOPENED: Final = "a bracket closes what it did not open"
_SCALAR: Final = re.compile(rb"[^\s,\]}]*(?=[\s,\]}])")

HEADER_KEYS: Final = frozenset(
    {"distributedInfo", "baseTimeNanoseconds", "deviceProperties", "host_name", "perfkit", LANES_KEY, MERGED_KEY}
)


class _MalformedError(Exception):
    """The text cannot be read from here on."""

    def __init__(self, at: int, what: str, *, at_end: bool = False) -> None:
        super().__init__(what)
        self.at = at
        self.at_end = at_end


class _Cuts(NamedTuple):
    """Where events end in the text at hand, how much of it they take, and what comes behind them."""

    ends: Ints
    size: int
    state: Literal["goes on", "closes", "ends"]


class JsonScanner:
    """One trace's text. After `batches` has been exhausted the other attributes are final."""

    def __init__(self, text: TextBuffer, slice_bytes: int = SLICE_BYTES, *, detailed: bool = False) -> None:
        self._text = text
        self._strictly = decode_with_metadata if detailed else decode_strictly
        self._slice_bytes = slice_bytes
        self.header: dict[str, bytes] = {}
        """The texts of the wanted values of the header."""
        self.has_events = False
        """Whether there is a list of events."""
        self.repeated: set[str] = set()
        """Keys of the header that occur more than once: the last counts, as in any JSON reader."""
        self.gaps = DamagedRegions()
        """Where events could not be read, and why; what follows them could."""
        self.broken_at: int | None = None
        """The byte of the text from which on nothing could be read."""
        self.broken_by: str = ""
        self.is_blank = False
        self.is_followed = False
        """Whether another document stands behind the first, as in JSON lines."""
        self._wasted_bytes = 0

    def batches(self) -> Iterator[list[Any] | None]:
        """Yield the events in file order, batch by batch; None where those before do not count."""
        try:
            yield from self._document()
        except _MalformedError as error:
            self._text.exhaust()  # whether its compression is damaged too, is known at its end only
            reasons = [] if self._text.broken and error.at_end else [str(error)]
            self.broken_at = error.at
            self.broken_by = "; ".join([*reasons, *([str(self._text.broken)] if self._text.broken else [])])
        else:
            if self._text.broken:
                self.broken_at, self.broken_by = self._text.end, str(self._text.broken)

    def _document(self) -> Iterator[list[Any] | None]:
        text = self._text
        text.fill(max(self._slice_bytes, len(_BOM)))
        if text.data.startswith(_BOM):
            text.drop(len(_BOM))
        first = self._peek()
        self.is_blank = not first
        if self.is_blank:
            return
        if first == b"[":
            text.drop(1)
            self.has_events = True
            yield from self._events()
        elif first == b"{":
            text.drop(1)
            yield from self._members()
        else:
            self._other()
        if behind := self._peek():
            self.is_followed = behind in (b"{", b"[")
            raise self._break("there is more behind the end")

    def _other(self) -> None:
        """Pass over a document that is one value, but no trace."""
        try:
            decode_value(self._value(keep=True))
        except ValueError:
            raise _MalformedError(0, "it is no JSON") from None

    def _members(self) -> Iterator[list[Any] | None]:
        text = self._text
        if self._peek() == b"}":
            return text.drop(1)
        lists = 0
        while True:
            key = self._key()
            if key in self.header or (key == "traceEvents" and self.has_events):
                self.repeated.add(key)
            if key == "traceEvents":
                yield None
                lists += 1
                if lists > _MOST_LISTS:
                    raise self._break(f"there are more than {_MOST_LISTS} `traceEvents`")
                self.has_events = self._peek() == b"["
            if key == "traceEvents" and self.has_events:
                text.drop(1)
                yield from self._events()
            else:
                value = self._value(keep=key in HEADER_KEYS)
                if key in HEADER_KEYS:
                    self.header[key] = value
            after = self._peek()
            if after not in (b",", b"}"):
                raise self._break("no comma between the header's keys")
            text.drop(1)
            if after == b"}":
                return None

    # ---- values ----------------------------------------------------------------------------------------------------

    def _break(self, what: str) -> _MalformedError:
        """Return the error for the byte at hand; the end of the text goes before any other reason."""
        if self._text.ended and not len(self._text):
            return self._ends()
        return _MalformedError(self._text.offset, what)

    def _ends(self) -> _MalformedError:
        return _MalformedError(self._text.end, "the text ends too soon; was its writer killed?", at_end=True)

    def _ends_within(self, begin: int) -> _MalformedError:
        """Return the error for a text whose last event, or what is behind it, begins at `begin` and is not whole."""
        rest = self._text.data[begin:]
        begin += len(rest) - len(rest.lstrip(SPACE))
        if begin >= len(self._text.data):
            return self._ends()
        what = "the event that begins there is not whole; was its writer killed?"
        return _MalformedError(self._text.offset + begin, what, at_end=True)

    def _peek(self) -> bytes:
        """Go to the next character that is not blank and return it; nothing at the end."""
        text, blank = self._text, 0
        while True:
            count = len(text.match(_BLANKS) or b"")
            text.drop(count)
            blank += count
            if len(text):
                return text.first()
            if blank > _LARGEST_BYTES:
                raise self._break(f"there is nothing but blanks over more than {_LARGEST_BYTES >> 20} MiB")
            if not text.fill(_FILL_BYTES):
                return b""

    def _key(self) -> str:
        if self._peek() != b'"':
            raise self._break("a key of the header was expected")
        raw = self._matching(_STRING)
        try:
            key = load_leniently(raw)
        except ValueError:
            raise self._break("a key of the header cannot be read") from None
        if self._peek() != b":":
            raise self._break("no colon behind a key of the header")
        self._text.drop(1)
        return str(key)

    def _matching(self, pattern: re.Pattern[bytes]) -> bytes:
        """Take what matches, however many pieces it comes in."""
        text, size = self._text, _FILL_BYTES
        while (match := text.match(pattern)) is None:
            size = max(size, 2 * len(text))
            if len(text) > _LARGEST_BYTES:
                raise self._break(f"a value is longer than {_LARGEST_BYTES >> 20} MiB")
            if not text.fill(size):
                raise self._ends() if text.ended else self._break("a value cannot be read")
        text.drop(len(match))
        return match

    def _value(self, *, keep: bool) -> bytes:
        first = self._peek()
        if first in (b"[", b"{"):
            return self._container(keep=keep)
        if first == b'"':
            return self._matching(_STRING)
        if first == b"":
            raise self._ends()
        return self._scalar()

    def _scalar(self) -> bytes:
        """Take a number, `true` and the like; at the very end of the text nothing stands behind it."""
        text = self._text
        while (found := text.match(_SCALAR)) is None and text.fill(2 * len(text) + _FILL_BYTES):
            if len(text) > _LARGEST_BYTES:
                raise self._break(f"a value is longer than {_LARGEST_BYTES >> 20} MiB")
        value = text.data if found is None else found
        if not value:
            raise self._break("a value was expected")
        text.drop(len(value))
        return value

    def _container(self, *, keep: bool) -> bytes:
        """Take an array or object; one that is not wanted is forgotten piece by piece."""
        text, size = self._text, _SMALL_BYTES
        while size < _FILL_BYTES:  # most values are small, and there may be very many
            found = find_structure(text.head(size))
            if len(closes := np.flatnonzero(found.depth == 0)):
                value = text.head(int(found.at[closes[0]]) + 1)
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
            found = find_structure(text.data, in_string=in_string, escaped=escaped)
            closes = np.flatnonzero(found.depth + depth == 0)
            size = int(found.at[closes[0]]) + 1 if len(closes) else len(text.data)
            have += size
            if keep:
                parts.append(text.data[:size])
                if have > _LARGEST_BYTES:
                    raise self._break(f"a value of the header is longer than {_LARGEST_BYTES >> 20} MiB")
            text.drop(size)
            if len(closes):
                return b"".join(parts)
            depth += int(found.depth[-1]) if len(found.depth) else 0
            in_string, escaped = found.in_string, found.escaping
            if not text.fill(_FILL_BYTES):
                raise self._ends()

    # ---- events ----------------------------------------------------------------------------------------------------

    def _events(self) -> Iterator[list[Any] | None]:
        """Yield the events of the array that begins here, and go behind its end."""
        text = self._text
        if self._peek() == b"]":
            return text.drop(1)
        ended = False
        while not ended:
            self._peek()
            text.fill(self._slice_bytes)
            guess = text.guess(self._slice_bytes)
            events = self._strictly(text.data[: guess[0]]) if guess else None
            if guess and events is not None:
                yield events
                text.drop(guess[1])
                continue
            try:
                ended = yield from self._exactly()
            except _MalformedError as error:
                ended = yield from self._recover(error)
        return None

    def _recover(self, error: _MalformedError) -> Generator[list[Any], None, bool]:
        """Yield the events behind damage until a whole slice had none; return whether the array has ended."""
        events: list[Any] = []
        self._text.drop(error.at - self._text.offset)
        while True:
            try:
                self._resume(error)
            except _MalformedError:
                yield events
                raise
            try:
                ended = self._one_by_one(events)
            except _MalformedError as later:
                error = later
            else:
                yield events
                return ended
            if len(events) >= _BATCH:
                yield events
                events = []

    def _resume(self, error: _MalformedError) -> None:
        """Go from the damage at hand to the next event that can be read; raise the error where there is none."""
        text = self._text
        found = probe_value(text, self._slice_bytes)
        if found.state == "torn" and text.first() != b"}":  # where its brackets seem to lead, says nothing
            error = _MalformedError(error.at, _UNREADABLE)
        self._charge_scan_budget(found, error)
        text.drop(min(1, len(text)))
        while seek_next_event(text):
            found = probe_value(text, self._slice_bytes)
            if found.may_be_event:
                return self.gaps.add(error.at, str(error))
            self._charge_scan_budget(found, error)
        raise error

    def _charge_scan_budget(self, found: Value, error: _MalformedError) -> None:
        """Account for what was looked at in vain."""
        self._wasted_bytes += found.size
        if self._wasted_bytes > _WASTE_BYTES + _MOST_WASTE * self._text.offset:
            raise error

    def _one_by_one(self, events: list[Any]) -> bool:
        """Append the events of the next slice, or those before what only `_exactly` can tell.

        Return whether the array has ended.

        Raises:
            _BreakError: one of them cannot be read.
        """
        text = self._text
        upto = text.offset + self._slice_bytes
        while text.offset < upto:
            first = self._peek()
            if first == b"}":
                raise self._break(_UNOPENED)
            if first in (b"]", b","):  # nothing between two commas is no event
                text.drop(1)
                if first == b"]":
                    return True
                continue
            found = probe_value(text, self._slice_bytes)
            if found.state in ("cut", "unsure"):
                return False
            one = self._one(text.head(found.size)) if found.state == "whole" else None
            if one is None:
                raise self._break(_UNREADABLE)
            events.extend(one)
            text.drop(found.size)
        return False

    def _exactly(self) -> Generator[list[Any], None, bool]:
        """Yield the events of the slice at hand, cut by its brackets; return whether the array has ended."""
        text = self._text
        cuts = self._cuts()
        yield from self._decoded(cuts.ends)
        if cuts.state == "ends":
            raise self._ends_within(int(cuts.ends[-1]) + 1 if len(cuts.ends) else 0)
        text.drop(cuts.size)
        if cuts.state == "closes" and text.data[:1] != b"]":
            raise self._break(_UNOPENED)
        if cuts.state == "closes":
            text.drop(1)
        return cuts.state == "closes"

    def _cuts(self) -> _Cuts:
        """Look at more and more of the text until an event ends in it."""
        text, size = self._text, self._slice_bytes
        while True:
            text.fill(size)
            found = find_structure(text.data[:size])
            closes = np.flatnonzero(found.depth < 0)
            upto = int(closes[0]) if len(closes) else len(found.at)
            commas = found.at[:upto][(found.char[:upto] == b","[0]) & (found.depth[:upto] == 0)]
            if len(closes):
                end = int(found.at[upto])
                return _Cuts(np.append(commas, end), end, "closes")
            if text.ended and size >= len(text.data):
                # What stands behind the last comma may be whole all the same.
                whole = not found.in_string and not (len(found.depth) and found.depth[-1])
                return _Cuts(np.append(commas, len(text.data)) if whole else commas, len(text.data), "ends")
            if len(commas):
                return _Cuts(commas, int(commas[-1]) + 1, "goes on")
            if size >= _LARGEST_EVENT_BYTES:
                raise self._break(f"the event that begins there does not end within {_LARGEST_EVENT_BYTES >> 20} MiB")
            size = min(2 * size, _LARGEST_EVENT_BYTES)

    def _decoded(self, ends: Ints) -> Iterator[list[Any]]:
        """Yield the events that end at the given places.

        Raises:
            _BreakError: one of them cannot be decoded; those before it have been given out.
        """
        data = self._text.data
        starts = np.concatenate((np.zeros(1, np.int64), ends + 1))[: len(ends)]
        if len(ends) and not data[starts[-1] : ends[-1]].strip(SPACE):
            starts, ends = starts[:-1], ends[:-1]  # a comma behind the last event
        events: list[Any] = []
        bad = self._decode(data, starts.tolist(), ends.tolist(), events)
        yield events
        if bad is not None:
            at = bad + len(data[bad:]) - len(data[bad:].lstrip(SPACE))
            raise _MalformedError(self._text.offset + at, _UNREADABLE)

    def _decode(self, data: bytes, starts: list[int], ends: list[int], events: list[Any]) -> int | None:
        """Append the events; halve what the strict decoder refuses until the one is found. Return where one fails."""
        if not starts:
            return None
        text = data[starts[0] : ends[-1]]
        found = self._one(text) if len(starts) == 1 else self._strictly(text)
        if found is None and len(starts) == 1:
            return starts[0]
        if found is not None or contains_no_object(text):
            events.extend(found or [])
            return None
        half = len(starts) // 2
        bad = self._decode(data, starts[:half], ends[:half], events)
        return self._decode(data, starts[half:], ends[half:], events) if bad is None else bad

    def _one(self, text: bytes) -> list[Any] | None:
        found = self._strictly(text)
        return decode_leniently(text) if found is None else found
