"""Expected results of the reader, from Python's own JSON decoder: slow, simple, independent of the reader."""

import json
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from typing import Any, NamedTuple

from perfkit.trace.categories import LEGACY_ANNOTATION, kind_of
from perfkit.trace.symbols.demangle import readable_names
from perfkit.trace.events import CollectiveArgs, EventKind, Events, RankTrace

DROPPED = (EventKind.PYTHON, EventKind.OTHER, EventKind.UNKNOWN)


class Number(str):
    """The text of a number."""

    __slots__ = ()


class Row(NamedTuple):
    """One event that the reader must keep."""

    kind: EventKind
    name: str
    start_ns: int
    end_ns: int
    thread: tuple[Any, Any]
    correlation: int


def load(data: bytes) -> Any:
    """Decode JSON leniently, with numbers as texts; raises ValueError or RecursionError."""
    text = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
    return json.loads(text, strict=False, parse_float=Number, parse_int=Number)


def expected(document: Any) -> list[Row] | None:
    """Return the events of a document, without the base time; None if it is not a trace."""
    events = document.get("traceEvents") if isinstance(document, dict) else document
    if not isinstance(events, list):
        return None
    rows = [row for event in events if isinstance(event, dict) and (row := _row(event))]
    until_ns = _recording_end_ns(events)
    return rows if until_ns is None else [_within(row, until_ns) for row in rows]


def _recording_end_ns(events: list[Any]) -> int | None:
    marks = [event for event in events if isinstance(event, dict) and event.get("name") == "Record Window End"]
    times_ns = [nanoseconds(mark.get("ts")) for mark in marks if mark.get("ph") == "i"]
    return max((time_ns for time_ns in times_ns if time_ns is not None), default=None)


def _within(row: Row, until_ns: int) -> Row:
    """Cut what the host did at the end of the recording."""
    on_device = row.kind in (EventKind.KERNEL, EventKind.COPY, EventKind.DEVICE_ANNOTATION)
    return row if on_device or not row.start_ns < until_ns < row.end_ns else row._replace(end_ns=until_ns)


def _row(event: dict[str, Any]) -> Row | None:
    category, name = event.get("cat"), shown(event.get("name"))
    if str(event.get("ph")) != "X" or isinstance(event.get("ph"), Number) or category is None:
        return None
    kind = kind_of(shown(category))
    if kind is EventKind.OPERATOR and category != "cpu_op" and LEGACY_ANNOTATION.match(name):
        kind = EventKind.ANNOTATION
    start_ns, dur_ns = nanoseconds(event.get("ts")), nanoseconds(event.get("dur"))
    if kind in DROPPED or start_ns is None:
        return None
    usable = dur_ns is not None and 0 <= dur_ns <= 2**50
    args = event.get("args")
    key = "External id" if kind in (EventKind.OPERATOR, EventKind.ANNOTATION) else "correlation"
    correlation = args.get(key) if isinstance(args, dict) else None
    device = args.get("device") if isinstance(args, dict) and kind in (EventKind.KERNEL, EventKind.COPY) else None
    pid = device if isinstance(device, Number) and device.isdecimal() else event.get("pid")
    return Row(
        kind,
        readable_names([name])[0],  # spelled as declared; its own tests compare it with binutils
        start_ns,
        start_ns + (dur_ns or 0 if usable else 0),
        (identity(pid), identity(event.get("tid"))),
        whole(correlation),
    )


def shown(value: Any) -> str:
    return str(value).encode("utf-8", "replace").decode()


def identity(value: Any) -> Any:
    """Distinguish 1 from "1", but not 1 from 01: JSON has no such number."""
    if isinstance(value, Number):
        return ("number", str(value).removeprefix("-") if str(value) == "-0" else str(value))
    return ("text", shown(value))


def whole(value: Any) -> int:
    text = str(value).strip()
    if not isinstance(value, str) or not text.isdecimal() or (not isinstance(value, Number) and len(value) >= 20):
        return -1
    return int(text[:30]) if int(text[:30]) < 2**63 and len(text) < 30 else -1


def nanoseconds(value: Any) -> int | None:
    if not isinstance(value, str) or not str(value).isascii():
        return None
    try:
        number = Decimal(str(value).strip())
    except InvalidOperation:
        return None
    if not number.is_finite() or number.adjusted() > 18:
        return None
    exact = int((number * 1000).to_integral_value(ROUND_HALF_EVEN)) if number.adjusted() > -20 else 0
    return exact if abs(exact) < 2**61 else None


def rows(trace: RankTrace) -> list[Row]:
    """Return the events that were read, without the base time and with thread indices for ids."""
    events, base_ns = trace.events, trace.header.base_ns
    columns = (events.kind, events.name, events.start_ns - base_ns, events.end_ns - base_ns, events.thread)
    listed = zip(*(column.tolist() for column in (*columns, events.correlation)), strict=True)
    return [
        Row(EventKind(kind), events.names[name], start, end, (thread, 0), correlation)
        for kind, name, start, end, thread, correlation in listed
    ]


def agree(found: list[Row], wanted: list[Row]) -> bool:
    """Compare everything but thread ids, of which only the partition counts."""
    return [row._replace(thread=(0, 0)) for row in found] == [
        row._replace(thread=(0, 0)) for row in wanted
    ] and _numbered(found) == _numbered(wanted)


def _numbered(listed: list[Row]) -> list[int]:
    numbers: dict[tuple[Any, Any], int] = {}
    return [numbers.setdefault(row.thread, len(numbers)) for row in listed]


def same(one: Events, other: Events) -> bool:
    """Compare column by column."""
    columns = ("kind", "name", "start_ns", "end_ns", "thread", "correlation")
    equal = all(getattr(one, column).tolist() == getattr(other, column).tolist() for column in columns)
    return equal and one.names == other.names and collective_rows(one) == collective_rows(other)


def collective_rows(events: Events) -> list[tuple[int, CollectiveArgs, int]]:
    """Return the collective metadata of events, row by row, with the sequence number."""
    columns = (events.collective_args.row, events.collective_args.number, events.collective_args.sequence)
    listed = zip(*(column.tolist() for column in columns), strict=True)
    return [(row, events.collective_args.args[number], sequence) for row, number, sequence in listed]
