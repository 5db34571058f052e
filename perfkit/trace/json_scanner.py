"""Scan the text of a Chrome trace: an object with `traceEvents` anywhere in it, or a bare array of events.

Damage costs only what is damaged: everything that is whole before it, and every event after it, is kept.
"""

from collections.abc import Generator, Iterator
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from perfkit.trace.event_decoding import (
    contains_no_object,
    decode_leniently,
    decode_strictly,
    decode_value,
    decode_with_metadata,
)
from perfkit.trace.intervals import Ints
from perfkit.trace.json_buffer import SPACE, JsonCursor, MalformedError, TextBuffer, find_structure
from perfkit.trace.json_recovery import UNOPENED, UNREADABLE, EventRecovery
from perfkit.trace.lanes import LANES_KEY, MERGED_KEY
from perfkit.trace.module_names import MODULES_KEY

SLICE_BYTES: Final = 1 << 18
"""Twice as much takes equal time, and 3 MB more memory."""
_BOM: Final = b"\xef\xbb\xbf"
_LARGEST_EVENT_BYTES: Final = 4 << 20
"""Finding where an event of nothing but brackets ends takes a hundred times its size in memory."""
_MOST_LISTS: Final = 16
"""Lists of events in one file, of which the last counts."""

OPTION_KEYS: Final = ("with_stack", "record_shapes", "profile_memory")
"""Keys that torch.profiler sets to 1 if it recorded this."""
HEADER_KEYS: Final = frozenset(
    {
        *("distributedInfo", "baseTimeNanoseconds", "deviceProperties", "host_name", "perfkit"),
        *(LANES_KEY, MERGED_KEY, MODULES_KEY),
    }
).union(OPTION_KEYS)


class _EventBoundaries(NamedTuple):
    """Where events end in the buffered text, how much of it they take, and what follows them."""

    ends: Ints
    size: int
    state: Literal["continues", "closes", "ends"]
    """More events follow; the array is closed; the text ends."""


class JsonScanner:
    """One trace's text. After `batches` has been exhausted the other attributes are final."""

    def __init__(self, text: TextBuffer, slice_bytes: int = SLICE_BYTES, *, detailed: bool = False) -> None:
        self._text = text
        self._cursor = JsonCursor(text)
        self._decode_strictly = decode_with_metadata if detailed else decode_strictly
        self._slice_bytes = slice_bytes
        self.recovery = EventRecovery(text, slice_bytes, self._decode_one)
        self.header: dict[str, bytes] = {}
        """The texts of the header's values under `HEADER_KEYS`."""
        self.has_events = False
        """Whether there is a list of events."""
        self.repeated: set[str] = set()
        """Keys of the header that occur more than once: the last counts, as in any JSON reader."""
        self.broken_at: int | None = None
        """The byte of the text from which on nothing could be parsed."""
        self.broken_by: str = ""
        self.is_blank = False
        self.is_followed = False
        """Whether another document follows the first, as in JSON lines."""

    def batches(self) -> Iterator[list[Any] | None]:
        """Yield the events in file order, batch by batch; None if those before do not count."""
        try:
            yield from self._document()
        except MalformedError as error:
            self._text.exhaust()  # only its end shows whether the compressed data is damaged too
            stream_error = self._text.stream_error
            reasons = [] if stream_error and error.at_end else [str(error)]
            self.broken_at = error.at
            self.broken_by = "; ".join([*reasons, *([str(stream_error)] if stream_error else [])])
        else:
            if self._text.stream_error:
                self.broken_at, self.broken_by = self._text.end, str(self._text.stream_error)

    def _document(self) -> Iterator[list[Any] | None]:
        text = self._text
        text.fill(max(self._slice_bytes, len(_BOM)))
        if text.data.startswith(_BOM):
            text.drop(len(_BOM))
        first = self._cursor.peek()
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
            self._skip_scalar()
        if after := self._cursor.peek():
            self.is_followed = after in (b"{", b"[")
            raise self._cursor.error("text follows the end of the document")

    def _skip_scalar(self) -> None:
        """Skip a document that is a single value and not a trace."""
        try:
            decode_value(self._cursor.value(keep=True))
        except ValueError:
            raise MalformedError(0, "it is not JSON") from None

    def _members(self) -> Iterator[list[Any] | None]:
        text, cursor = self._text, self._cursor
        if cursor.peek() == b"}":
            return text.drop(1)
        lists = 0
        while True:
            key = cursor.key()
            if key in self.header or (key == "traceEvents" and self.has_events):
                self.repeated.add(key)
            if key == "traceEvents":
                yield None
                lists += 1
                if lists > _MOST_LISTS:
                    raise cursor.error(f"there are more than {_MOST_LISTS} `traceEvents`")
                self.has_events = cursor.peek() == b"["
            if key == "traceEvents" and self.has_events:
                text.drop(1)
                yield from self._events()
            else:
                value = cursor.value(keep=key in HEADER_KEYS)
                if key in HEADER_KEYS:
                    self.header[key] = value
            after = cursor.peek()
            if after not in (b",", b"}"):
                raise cursor.error("a comma was expected between the header's keys")
            text.drop(1)
            if after == b"}":
                return None

    # ---- events ----------------------------------------------------------------------------------------------------

    def _events(self) -> Iterator[list[Any] | None]:
        """Yield the events of the array that begins here, and move the cursor behind its end."""
        text = self._text
        if self._cursor.peek() == b"]":
            return text.drop(1)
        ended = False
        while not ended:
            self._cursor.peek()
            text.fill(self._slice_bytes)
            guess = text.guess_boundary(self._slice_bytes)
            events = self._decode_strictly(memoryview(text.data)[: guess[0]]) if guess else None
            if guess and events is not None:
                yield events
                text.drop(guess[1])
                continue
            try:
                ended = yield from self._split_exactly()
            except MalformedError as error:
                ended = yield from self.recovery.recover(error)
        return None

    def _split_exactly(self) -> Generator[list[Any], None, bool]:
        """Yield the events of the next slice, split at its brackets; return whether the array has ended."""
        text = self._text
        boundaries = self._event_boundaries()
        yield from self._decode_between(boundaries.ends)
        if boundaries.state == "ends":
            raise self._cursor.incomplete_event_error(int(boundaries.ends[-1]) + 1 if len(boundaries.ends) else 0)
        text.drop(boundaries.size)
        if boundaries.state == "closes" and text.data[:1] != b"]":
            raise self._cursor.error(UNOPENED)
        if boundaries.state == "closes":
            text.drop(1)
        return boundaries.state == "closes"

    def _event_boundaries(self) -> _EventBoundaries:
        """Examine more and more of the text until an event ends in it."""
        text, size = self._text, self._slice_bytes
        while True:
            text.fill(size)
            structure = find_structure(text.data[:size])
            closes = np.flatnonzero(structure.depth < 0)
            upto = int(closes[0]) if len(closes) else len(structure.at)
            commas = structure.at[:upto][(structure.char[:upto] == b","[0]) & (structure.depth[:upto] == 0)]
            if len(closes):
                end = int(structure.at[upto])
                return _EventBoundaries(np.append(commas, end), end, "closes")
            if text.ended and size >= len(text.data):
                # The event after the last comma may be whole all the same.
                whole = not structure.in_string and not (len(structure.depth) and structure.depth[-1])
                ends = np.append(commas, len(text.data)) if whole else commas
                return _EventBoundaries(ends, len(text.data), "ends")
            if len(commas):
                return _EventBoundaries(commas, int(commas[-1]) + 1, "continues")
            if size >= _LARGEST_EVENT_BYTES:
                limit = f"{_LARGEST_EVENT_BYTES >> 20} MiB"
                raise self._cursor.error(f"the event that begins there does not end within {limit}")
            size = min(2 * size, _LARGEST_EVENT_BYTES)

    def _decode_between(self, ends: Ints) -> Iterator[list[Any]]:
        """Yield the events that end at the given places.

        Raises:
            MalformedError: one of them cannot be decoded; those before it have been yielded.
        """
        data = self._text.data
        starts = np.concatenate((np.zeros(1, np.int64), ends + 1))[: len(ends)]
        if len(ends) and not data[starts[-1] : ends[-1]].strip(SPACE):
            starts, ends = starts[:-1], ends[:-1]  # a comma after the last event
        events: list[Any] = []
        failed_at = self._decode(data, starts.tolist(), ends.tolist(), events)
        yield events
        if failed_at is not None:
            at = failed_at + len(data[failed_at:]) - len(data[failed_at:].lstrip(SPACE))
            raise MalformedError(self._text.offset + at, UNREADABLE)

    def _decode(self, data: bytes, starts: list[int], ends: list[int], events: list[Any]) -> int | None:
        """Append the events, bisecting what the strict decoder refuses; return where one fails, or None."""
        if not starts:
            return None
        text = data[starts[0] : ends[-1]]
        decoded = self._decode_one(text) if len(starts) == 1 else self._decode_strictly(text)
        if decoded is None and len(starts) == 1:
            return starts[0]
        if decoded is not None or contains_no_object(text):
            events.extend(decoded or [])
            return None
        half = len(starts) // 2
        failed_at = self._decode(data, starts[:half], ends[:half], events)
        return self._decode(data, starts[half:], ends[half:], events) if failed_at is None else failed_at

    def _decode_one(self, text: bytes) -> list[Any] | None:
        decoded = self._decode_strictly(text)
        return decode_leniently(text) if decoded is None else decoded
