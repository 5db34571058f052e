"""From a file to a `RankTrace`, in one pass: the text is decompressed, cut, decoded and forgotten slice by slice."""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Final

import msgspec

from perfkit.accelerators import accelerators
from perfkit.errors import NotATraceError, TraceError
from perfkit.schema.trace_header import HEADER_KEY, PerfkitHeader
from perfkit.trace.decompression import TraceText
from perfkit.trace.event_decoding import decode_number, decode_value
from perfkit.trace.event_table import EventTableBuilder
from perfkit.trace.events import Header, RankTrace
from perfkit.trace.json_buffer import TextBuffer
from perfkit.trace.json_scanner import SLICE_BYTES, JsonScanner
from perfkit.trace.lanes import LANES_KEY, MERGED_KEY, decode_lanes
from perfkit.trace.scalars import natural, text
from perfkit.trace.timestamps import LIMIT_NS

_MOST_DEVICES: Final = 64


def read_trace(
    path: Path,
    *,
    max_bytes: int | None = None,
    progress: Callable[[int], None] | None = None,
    slice_bytes: int = SLICE_BYTES,
    detailed: bool = False,
) -> RankTrace:
    """Read one trace file, plain, gzip or zstd, whatever it is called.

    What is whole in a damaged file is kept, and `RankTrace.damage` says where it broke.

    Args:
        path: the file.
        max_bytes: refuse a file with more bytes of text than this; None: 64 GiB, and neither more text nor more events
            than any trace has for the bytes of its file.
        progress: called with the number of bytes of the file read since the last call, perhaps from another thread.
        slice_bytes: how much text is decoded at once; the result does not depend on it.
        detailed: whether to keep events of all kinds, and what a timeline shows of them: `RankTrace.detail`.

    Raises:
        NotATraceError: the file is JSON, but no trace.
        TraceError: the file cannot be read, nothing in it can be used, or it holds more than is allowed.
    """
    source = TraceText(path, max_bytes=max_bytes, progress=progress)
    pieces = source.pieces()
    try:
        document = JsonScanner(TextBuffer(pieces), slice_bytes, detailed=detailed)
        columns = EventTableBuilder(detailed=detailed)
        for batch in document.batches():
            if batch is None:
                columns = EventTableBuilder(detailed=detailed)
            else:
                columns.add(batch)
                source.check_event_count(len(columns))
    finally:
        pieces.close()  # type: ignore[attr-defined]
    _check(document, columns, path)
    odd: list[str] = []
    header = _header(document.header, path, odd)
    repeated, twice = _repeated(document.repeated), "traceEvents" in document.repeated
    lanes = decode_lanes(document.header.get(LANES_KEY, b"[]"))
    return RankTrace(
        header=header,
        events=columns.events(header.base_ns, lanes),
        counts=columns.counts(lanes),
        unknown=columns.unknown(),
        repaired=dict(+columns.repaired),
        damage=(*_damage(document, len(columns)), *(repeated if twice else ())),
        header_damage=(*odd, *(() if twice else repeated)),
        memory=columns.memory(header.base_ns),
        detail=columns.detail(),
    )


def _check(document: JsonScanner, columns: EventTableBuilder, path: Path) -> None:
    """Raise where the file holds nothing that can be used."""
    if document.is_blank:
        raise TraceError(f"{path}: {document.broken_by or 'the file is empty; was its writer killed?'}")
    broken = document.broken_at is not None
    if (not broken or document.is_followed) and (lacks := _lacks(document, columns)):
        raise NotATraceError(f"{path}: is JSON but no trace: {lacks}")
    if broken and not len(columns):
        raise TraceError(
            f"{path}: is no JSON, or not whole: it breaks at byte {document.broken_at:,} of the text "
            f"({document.broken_by}), and nothing before that can be used"
        )
    if MERGED_KEY in document.header:
        raise NotATraceError(f"{path}: is a timeline that `perfkit merge` wrote: analyse the traces it was made from")


def _lacks(document: JsonScanner, columns: EventTableBuilder) -> str | None:
    """Return what a whole document lacks to be a trace; one that holds nothing at all may be an empty trace."""
    if not document.has_events:
        return "it has no list `traceEvents`"
    if columns.is_foreign and not document.gaps.first:
        return "nothing in its list is an event (an object with `ph`)"
    return None


def _damage(document: JsonScanner, kept: int) -> list[str]:
    found = []
    if document.gaps.first:
        at, why = document.gaps.first
        places = "1 place" if document.gaps.count == 1 else f"{document.gaps.count:,} places"
        found.append(
            f"the file is damaged in {places}, first at byte {at:,} of its text ({why}): "
            f"{kept:,} events are whole and analysed, what stood there is left out"
        )
    if document.broken_at is not None:
        found.append(
            f"the file breaks at byte {document.broken_at:,} of its text ({document.broken_by}): "
            f"the {kept:,} events that are whole before it are analysed, what came after is lost"
        )
    return found


def _repeated(keys: Collection[str]) -> list[str]:
    listed = ", ".join(sorted(keys))
    return [f"keys of the header occur more than once ({listed}): the last of each counts"] if keys else []


def _header(values: dict[str, bytes], path: Path, damage: list[str]) -> Header:
    decoded = {
        key: _decoded(key, value, damage)
        for key, value in values.items()
        if key not in ("baseTimeNanoseconds", LANES_KEY, MERGED_KEY)
    }
    info: dict[str, Any] = decoded.get("distributedInfo") or {}
    # A single process has no process group that torch could write down; perfkit's session does.
    own: PerfkitHeader | None = decoded.get(HEADER_KEY)
    said = {"rank": own.rank, "world_size": own.world_size} | info if own else info
    return Header(
        rank=natural(said.get("rank")),
        world_size=natural(said.get("world_size")),
        backend=text(info.get("backend")),
        host=text(decoded.get("host_name")),
        base_ns=_base_ns(values.get("baseTimeNanoseconds", b"0"), path),
        device_bytes=decoded.get("deviceProperties") or {},
        perfkit=own,
    )


def _decoded(key: str, value: bytes, damage: list[str]) -> Any:
    try:
        return _DECODERS.get(key, decode_value)(value)
    except ValueError:
        damage.append(f"the header's {key} cannot be read and is left out")
        return None


def _base_ns(value: bytes, path: Path) -> int:
    if value == b"null":
        return 0
    number: Any = decode_number(value)
    usable = number is not None and number.is_finite() and abs(number.adjusted()) < 30 and number == int(number)
    if not usable or abs(number) >= LIMIT_NS:
        shown = value[:40].decode("utf-8", "replace")
        raise TraceError(f"{path}: baseTimeNanoseconds is {shown}, which is no time in nanoseconds")
    return int(number)


def _perfkit_header(value: bytes) -> PerfkitHeader | None:
    try:
        return msgspec.json.decode(value, type=PerfkitHeader | None)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    decoded = decode_value(value)
    try:
        return msgspec.convert(decoded, PerfkitHeader | None)
    except msgspec.ValidationError:
        if isinstance(decoded, dict) and {"rank", "world_size"} <= decoded.keys():
            raise
        return None  # another program's key of the same name


def _distributed_info(value: bytes) -> dict[str, Any]:
    """Return what is used of it; the ranks of every process group may be megabytes."""
    try:
        texts = msgspec.json.decode(value, type=dict[str, msgspec.Raw])
        return {key: decode_value(bytes(texts[key])) for key in ("rank", "world_size", "backend") if key in texts}
    except msgspec.ValidationError:
        return {}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        info = decode_value(value)
        return info if isinstance(info, dict) else {}


def _device_bytes(value: bytes) -> dict[int, int]:
    """Return the memory of each device."""
    devices = decode_value(value)
    found = [device for device in devices if isinstance(device, dict)] if isinstance(devices, list) else []
    keys = dict.fromkeys(row.memory_property for row in accelerators())
    known = (
        (natural(device.get("id")), next((size for key in keys if (size := natural(device.get(key)))), None))
        for device in found[:_MOST_DEVICES]
    )
    return {number: size for number, size in known if number is not None and size}


_DECODERS: Final[dict[str, Callable[[bytes], Any]]] = {
    HEADER_KEY: _perfkit_header,
    "distributedInfo": _distributed_info,
    "deviceProperties": _device_bytes,
}
