"""Read the ranges of a process: what the program, torch and NCCL annotate with NVTX."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.trace.events import CollectiveArgs, CollectiveArgsColumns, EventKind
from perfkit.trace.intervals import Ints
from perfkit.trace.nsys.columns import UNFINISHED, Columns
from perfkit.trace.nsys.database import MISSING, Database
from perfkit.trace.nsys.names import parse
from perfkit.trace.nsys.nccl import DOMAIN, Calls, collective_name

RANGES: Final = "NVTX_EVENTS"
NEEDED: Final = ("start", "end", "eventType", "globalTid")
_TYPES: Final = {"NvtxPushPopRange": 59, "NvtxStartEndRange": 60, "NvtxDomainCreate": 75}
"""`ENUM_NSYS_EVENT_TYPE`, which an export may repeat."""
_GROUP_START, _GROUP_END = "ncclGroupStart", "ncclGroupEnd"
_PAYLOADS: Final = ("binaryData", "jsonText")


class Ranges(NamedTuple):
    """What is known of the ranges before texts are looked up."""

    row: Ints
    """Row of each range in the columns; shape (r,)."""
    sequence: Ints
    """autograd's number, of those whose text is in the table of ranges; -1 else; shape (r,)."""
    collective_args: CollectiveArgsColumns
    calls: Calls


class _NcclRange(NamedTuple):
    """A range of NCCL's domain."""

    start: int
    end: int
    thread: int
    name: str
    data: str | bytes | None


def read_ranges(database: Database, columns: Columns, pid: int) -> Ranges:
    """Add the ranges of a process; those of NCCL as the annotations that torch writes around its calls."""
    calls, types = Calls(database), _types(database)
    domain = _nccl_domain(database, types, pid)
    first, sequences = columns.rows, [np.zeros(0, np.int64)]
    if RANGES in database.tables:
        kinds = types["NvtxPushPopRange"], types["NvtxStartEndRange"]
        of_domain = "domainId" if database.has(RANGES, "domainId") else "NULL"
        where = f"WHERE (globalTid >> 24) & 16777215 = ? AND eventType IN (?, ?) AND {of_domain} IS NOT ?"
        for block, texts in database.integers_and_text(
            RANGES, ["start", "end", "globalTid", "textId"], "text", where, [pid, *kinds, domain]
        ):
            sequences.append(_add(columns, block, texts))
    args = _add_calls(columns, calls, _nccl_ranges(database, types, pid, domain))
    row = np.arange(first, columns.rows)
    sequence = np.concatenate(sequences)
    sequence = np.concatenate((sequence, np.full(len(row) - len(sequence), -1)))
    return Ranges(row, sequence, args, calls)


def _types(database: Database) -> dict[str, int]:
    """Return the numbers of types of events."""
    listed: dict[str, int] = {}
    if database.has("ENUM_NSYS_EVENT_TYPE", "id", "name"):
        for block, names in database.integers_and_text("ENUM_NSYS_EVENT_TYPE", ["id"], "name"):
            listed |= {str(name): number for name, number in zip(names, block[0].tolist(), strict=True)}
    return {name: listed.get(name, number) for name, number in _TYPES.items()}


def _nccl_domain(database: Database, types: dict[str, int], pid: int) -> int:
    """Return the number of NCCL's domain in the process; `MISSING` without."""
    if not database.has(RANGES, "domainId", "globalTid"):
        return MISSING
    where = "WHERE eventType = ? AND (globalTid >> 24) & 16777215 = ?"
    for block, texts in _with_texts(database, ["domainId"], where, [types["NvtxDomainCreate"], pid]):
        for number, text in zip(block[0].tolist(), texts, strict=True):
            if text == DOMAIN:
                return int(number)
    return MISSING


def _with_texts(
    database: Database, columns: list[str], where: str, values: list[int]
) -> Iterator[tuple[Ints, list[str | None]]]:
    """Yield rows of few ranges, with the text of each, in the table itself or in that of texts."""
    for block, texts in database.integers_and_text(RANGES, [*columns, "textId"], "text", where, values):
        wanted = {number for number, text in zip(block[-1].tolist(), texts, strict=True) if text is None}
        found: dict[int, str] = {}
        for (numbers,), values_of in database.integers_and_text("StringIds", ["id"], "value") if wanted else ():
            rows = zip(numbers.tolist(), values_of, strict=True)
            found |= {number: text for number, text in rows if number in wanted and isinstance(text, str)}
        own = zip(block[-1].tolist(), texts, strict=True)
        yield block[:-1], [text if isinstance(text, str) else found.get(number) for number, text in own]


def _add(columns: Columns, block: Ints, texts: list[str | bytes | None]) -> Ints:
    """Add ranges; return autograd's numbers, as far as the texts are here."""
    start, end, thread, text_id = block
    name, sequence = columns.text(text_id), np.full(len(start), -1)
    for row, text in enumerate(texts):
        if text is not None:
            found = parse(text)
            columns.names.add(found.text, is_operator=found.is_operator)
            name[row], sequence[row] = columns.given(found.text), found.sequence
    finished = end != MISSING
    columns.repaired[UNFINISHED] += int(np.count_nonzero(~finished))
    added = columns.add(
        EventKind.ANNOTATION,
        "user_annotation",
        np.array([start[finished], end[finished]]),
        thread=columns.host_threads(thread[finished]),
        name=name[finished],
    )
    return np.asarray(sequence[finished][added])


def _nccl_ranges(database: Database, types: dict[str, int], pid: int, domain: int) -> list[_NcclRange]:
    """Return the ranges of NCCL's domain, by thread and start."""
    if domain == MISSING:
        return []
    where = "WHERE domainId = ? AND eventType = ? AND (globalTid >> 24) & 16777215 = ?"
    values = [domain, types["NvtxPushPopRange"], pid]
    payloads: list[str | bytes | None] = []
    for column in _PAYLOADS:
        data = [one for _, part in database.integers_and_text(RANGES, ["start"], column, where, values) for one in part]
        payloads = [new if old is None else old for old, new in zip(payloads or [None] * len(data), data, strict=True)]
    found = [
        (start, end, thread, text or "")
        for block, texts in _with_texts(database, ["start", "end", "globalTid"], where, values)
        for start, end, thread, text in zip(*block.tolist(), texts, strict=True)
    ]
    ranges = [_NcclRange(*one, data) for one, data in zip(found, payloads, strict=True) if one[1] != MISSING]
    return sorted(ranges, key=lambda one: (one.thread, one.start, -one.end))


def _add_calls(columns: Columns, calls: Calls, ranges: list[_NcclRange]) -> CollectiveArgsColumns:
    """Add the ranges of NCCL's domain with what their payloads say."""
    fields = [calls.payload(one.data) for one in ranges]
    for payload in fields:
        calls.note(payload)
    names = [collective_name(one.name) or one.name for one in ranges]
    described: dict[CollectiveArgs, int] = {}
    number = []
    for name, payload in zip(names, fields, strict=True):
        args = calls.describe(name, payload) if name.startswith("nccl:") else None
        number.append(-1 if args is None else described.setdefault(args, len(described)))
    first = columns.rows
    times = np.array([[one.start for one in ranges], _ends(ranges, names)], np.int64).reshape(2, -1)
    added = columns.add(
        EventKind.ANNOTATION,
        "user_annotation",
        times,
        thread=columns.host_threads(np.array([one.thread for one in ranges], np.int64)),
        name=np.array([columns.given(name) for name in names], np.int64),
    )
    numbers = np.array(number, np.int32)[added]
    has: NDArray[np.bool_] = numbers >= 0
    row = first + np.flatnonzero(has)
    return CollectiveArgsColumns(
        row=row, number=numbers[has], sequence=np.full(len(row), -1, np.int64), args=tuple(described)
    )


def _ends(ranges: list[_NcclRange], names: list[str]) -> list[int]:
    """Return the ends of ranges; the only collective of a group extends to the group's end, which launches it."""
    ends = [one.end for one in ranges]
    open_since: dict[int, int] = {}
    within: dict[int, list[int]] = {}
    for place, (one, name) in enumerate(zip(ranges, names, strict=True)):
        thread = one.thread
        if name == _GROUP_START:
            open_since[thread] = open_since.get(thread, 0) + 1
        elif name == _GROUP_END and open_since.get(thread):
            open_since[thread] -= 1
            if not open_since[thread] and len(calls := within.pop(thread, [])) == 1:
                ends[calls[0]] = max(ends[calls[0]], one.end)
        elif open_since.get(thread) and name.startswith("nccl:"):
            within.setdefault(thread, []).append(place)
    return ends
