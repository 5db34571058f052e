"""From raw events to a `RankTrace`: categories become kinds, texts become nanoseconds, names become numbers."""

import re
from collections import Counter
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import numpy as np

from perfkit.errors import TraceError
from perfkit.trace.events import CollectiveArgs, Events, Header, Kind, PerfkitHeader, RankTrace
from perfkit.trace.formats import RawArgs, RawEvent, RawTrace, read_raw
from perfkit.trace.kineto import COMMUNICATION_OPERATORS, kind_of
from perfkit.trace.times import LIMIT_NS, to_nanoseconds

_KEPT: Final = frozenset({Kind.KERNEL, Kind.COPY, Kind.LAUNCH, Kind.OPERATOR, Kind.ANNOTATION})
_COMMUNICATES: Final = re.compile(COMMUNICATION_OPERATORS)
_LONGEST_NS: Final = 2**50
"""Durations beyond it (13 days) are damage; so many of the longest add up within int64 as matter."""

T = TypeVar("T", bound=Hashable)


def read_trace(path: Path) -> RankTrace:
    """Read one trace file.

    Raises:
        TraceError: the file cannot be read, is damaged, or holds no trace.
    """
    try:
        return _convert(read_raw(path), path)
    except (ValueError, RecursionError) as error:  # digits without end, nesting without end: no program writes that
        raise TraceError(f"{path}: cannot be read as a trace: {' '.join(str(error).split())}") from error


def _convert(raw: RawTrace, path: Path) -> RankTrace:
    kinds = [_kind(event) for event in raw.traceEvents]
    kept = [(event, kind) for event, kind in zip(raw.traceEvents, kinds, strict=True) if kind in _KEPT]
    repaired: Counter[str] = Counter()
    header = _header(raw, path)
    events = _events([event for event, _ in kept], [kind for _, kind in kept], header.base_ns, repaired)
    unknown = Counter(
        str(event.cat) for event, kind in zip(raw.traceEvents, kinds, strict=True) if kind is Kind.UNKNOWN
    )
    return RankTrace(
        header=header, events=events, counts=dict(Counter(kinds)), unknown=dict(unknown), repaired=dict(+repaired)
    )


def _kind(event: RawEvent) -> Kind:
    if event.ph != "X":
        return Kind.OTHER
    return kind_of(event.cat, event.name) if isinstance(event.cat, str) else Kind.UNKNOWN


def _events(events: list[RawEvent], kinds: list[Kind], base_ns: int, repaired: Counter[str]) -> Events:
    start_ns, placed = to_nanoseconds([bytes(event.ts) for event in events])
    dur_ns, lasting = to_nanoseconds([bytes(event.dur) for event in events])
    negative = lasting & (dur_ns < 0)
    endless = lasting & (dur_ns > _LONGEST_NS)
    repaired["events without a usable start, left out"] += int(np.count_nonzero(~placed))
    repaired["events without a usable duration, taken as empty"] += int(np.count_nonzero(placed & ~lasting))
    repaired["events of negative duration, taken as empty"] += int(np.count_nonzero(placed & negative))
    repaired["events longer than 13 days, taken as empty"] += int(np.count_nonzero(placed & endless))
    start_ns += base_ns
    end_ns = start_ns + np.where(negative | endless, 0, dur_ns)
    rows = np.flatnonzero(placed)
    chosen = [events[row] for row in rows.tolist()]
    name, names = _intern(_name(event) for event in chosen)
    thread, _ = _intern((_id(event.pid), _id(event.tid)) for event in chosen)
    return Events(
        kind=np.array(kinds, np.uint8)[rows],
        name=name,
        start_ns=start_ns[rows],
        end_ns=end_ns[rows],
        thread=thread,
        correlation=_correlations(chosen, repaired),
        names=tuple(names),
        collectives=_collectives(chosen),
    )


def _intern(values: Iterable[T]) -> tuple[np.ndarray[Any, np.dtype[np.int32]], list[T]]:
    numbers: dict[T, int] = {}
    column = np.array([numbers.setdefault(value, len(numbers)) for value in values], np.int32)
    return column, list(numbers)


def _name(event: RawEvent) -> str:
    return event.name if isinstance(event.name, str) else str(event.name)


def _id(value: Any) -> Hashable:
    return value if isinstance(value, str | int) else str(value)


def _correlations(events: list[RawEvent], repaired: Counter[str]) -> np.ndarray[Any, np.dtype[np.int64]]:
    column = np.array([_integer(event.args.correlation, -1) if event.args else -1 for event in events], np.int64)
    mangled = sum(1 for event, value in zip(events, column, strict=True) if value == -1 and _has_correlation(event))
    repaired["events with a correlation that is no number, taken as having none"] += mangled
    return column


def _has_correlation(event: RawEvent) -> bool:
    return event.args is not None and event.args.correlation not in (None, -1)


def _integer(value: Any, default: int) -> int:
    """Return an id as int64; `default` where it is missing or is none."""
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 20:
        value = int(value)
    return value if isinstance(value, int) and 0 <= value < 2**63 else default


def _collectives(events: list[RawEvent]) -> dict[int, CollectiveArgs]:
    return {
        row: _collective(event.args, _name(event))
        for row, event in enumerate(events)
        if event.args is not None and (event.args.collective is not None or _COMMUNICATES.match(_name(event)))
    }


def _collective(args: RawArgs, name: str) -> CollectiveArgs:
    return CollectiveArgs(
        operator=_text(args.collective),
        in_elements=_count(args.in_elements),
        out_elements=_count(args.out_elements),
        dtype=_text(args.dtype),
        group=_text(args.group),
        group_size=_count(args.group_size),
        input_dims=_decoded(args.input_dims),
        input_type=_decoded(args.input_type),
        is_dispatch=name.startswith(("c10d::", "_c10d_functional::")),
    )


def _decoded(raw: msgspec.Raw) -> Any:
    """Decode a small value; None where there is none, or it is damaged."""
    try:
        return msgspec.json.decode(raw) if bytes(raw) else None
    except ValueError:
        return None


def _text(value: Any) -> str | None:
    return None if value is None or value == "" else str(value)


def _count(value: Any) -> int | None:
    count = _integer(value, -1)
    return None if count < 0 else count


def _header(raw: RawTrace, path: Path) -> Header:
    info = raw.distributedInfo if isinstance(raw.distributedInfo, dict) else {}
    base_ns = raw.baseTimeNanoseconds or 0
    if not isinstance(base_ns, int) or abs(base_ns) >= LIMIT_NS:
        raise TraceError(f"{path}: baseTimeNanoseconds is {base_ns!r}, which is no time in nanoseconds")
    # A single process has no process group that torch could write down; perfkit's session does.
    own = _perfkit_header(raw.perfkit)
    said = {"rank": own.rank, "world_size": own.world_size} | info if own else info
    return Header(
        rank=_count(said.get("rank")),
        world_size=_count(said.get("world_size")),
        backend=_text(info.get("backend")),
        host=_text(raw.host_name),
        base_ns=base_ns,
        perfkit=own,
    )


def _perfkit_header(value: Any) -> PerfkitHeader | None:
    try:
        return None if value is None else msgspec.convert(value, PerfkitHeader)
    except msgspec.ValidationError:  # another program's key of the same name
        return None
