"""Read a trace file into a `RankTrace`, in one pass: decompress, split, decode and forget the text slice by slice."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from perfkit.accelerators import accelerators
from perfkit.base.formatting import plural
from perfkit.errors import NotATraceError, TraceError
from perfkit.records.trace_header import HEADER_KEY, HEADER_VERSION, PerfkitHeader
from perfkit.trace.decompression import TraceText
from perfkit.trace.event_decoding import decode_number, decode_value, parse_count, parse_int, parse_text
from perfkit.trace.event_table import EventTableBuilder
from perfkit.trace.events import MOST_RANKS, Header, ProcessGroup, RankTrace
from perfkit.trace.file_kind import describe_file, describe_own_json
from perfkit.trace.json_buffer import TextBuffer
from perfkit.trace.json_scanner import OPTION_KEYS, SLICE_BYTES, JsonScanner
from perfkit.trace.lanes import LANES_KEY, MERGED_KEY, decode_lanes
from perfkit.trace.module_names import MODULES_KEY, decode_modules
from perfkit.trace.nsys.paths import is_recording
from perfkit.trace.timestamps import LIMIT_NS

_MOST_DEVICES: Final = 64
_MOST_GROUPS: Final = 4096
_USED: Final = ("rank", "world_size", "backend", "pg_config")
"""Fields of `distributedInfo`."""


def read_trace(
    path: Path,
    *,
    max_bytes: int | None = None,
    progress: Callable[[int], None] | None = None,
    slice_bytes: int = SLICE_BYTES,
    detailed: bool = False,
) -> RankTrace:
    """Read one trace file: plain, gzip or zstd, independent of its name; or what `nsys export` wrote (SQLite).

    Whole events of a damaged file are kept, and `RankTrace.damage` describes the damage.

    Args:
        max_bytes: refuse a file with more bytes of decompressed text. None means 64 GiB, and also refuses more text or
            more events than a real trace has for the size of its file.
        progress: called with the number of bytes of the file read since the last call, possibly from another thread.
        slice_bytes: how much text is decoded at once; the result does not depend on it.
        detailed: whether to keep events of all kinds, and what a timeline shows (`RankTrace.detail`).

    Raises:
        NotATraceError: the file is JSON, but not a trace.
        TraceError: the file cannot be read, has nothing usable, or is larger than allowed.
    """
    if is_recording(path):
        from perfkit.trace.nsys.reader import read_nsys

        return read_nsys(path, max_bytes=max_bytes, progress=progress, detailed=detailed)
    source = TraceText(path, max_bytes=max_bytes, progress=progress)
    pieces = source.pieces()
    try:
        scanner = JsonScanner(TextBuffer(pieces), slice_bytes, detailed=detailed)
        table = EventTableBuilder(detailed=detailed)
        for batch in scanner.batches():
            if batch is None:
                table = EventTableBuilder(detailed=detailed)
            else:
                table.add(batch)
                source.check_event_count(len(table))
    finally:
        pieces.close()
    _check(scanner, table, path)
    header_damage: list[str] = []
    header = _header(scanner.header, path, header_damage)
    listed = ", ".join(sorted(scanner.repeated))
    repeated = [f"keys of the header occur more than once ({listed}): the last of each counts"] if listed else []
    events_repeated = "traceEvents" in scanner.repeated
    lanes = decode_lanes(scanner.header.get(LANES_KEY, b"[]"))
    return RankTrace(
        header=header,
        events=table.events(header.base_ns, lanes),
        counts=table.counts(lanes),
        unknown=table.unknown(),
        repaired=dict(+table.repaired),
        damage=(*_damage(scanner, len(table)), *(repeated if events_repeated else ())),
        header_damage=(*header_damage, *(() if events_repeated else repeated)),
        frames=replace(table.frames(header.base_ns), modules=decode_modules(scanner.header.get(MODULES_KEY, b"[]"))),
        memory=table.memory(header.base_ns),
        detail=table.detail(),
        recorded_until_ns=table.recorded_until_ns(header.base_ns),
    )


def _check(scanner: JsonScanner, table: EventTableBuilder, path: Path) -> None:
    """Raise an error if the file has nothing that can be used."""
    if scanner.is_blank:
        raise TraceError(f"{path}: {scanner.broken_by or 'the file is empty; was its writer killed?'}")
    broken = scanner.broken_at is not None
    if (not broken or scanner.is_followed) and (reason := _not_a_trace_reason(scanner, table)):
        kind = describe_own_json(path)
        raise NotATraceError(f"{path}: is {kind}" if kind else f"{path}: is JSON but not a trace: {reason}")
    if broken and not len(table):
        if not scanner.broken_at and (kind := describe_file(path)):
            raise TraceError(f"{path}: is {kind}, not a torch.profiler trace")
        raise TraceError(
            f"{path}: is not JSON, or incomplete: parsing fails at byte {scanner.broken_at:,} of the text "
            f"({scanner.broken_by}), and nothing before it can be used"
        )
    if MERGED_KEY in scanner.header:
        raise NotATraceError(f"{path}: is a timeline that `perfkit merge` wrote: analyse the traces it was merged from")


def _not_a_trace_reason(scanner: JsonScanner, table: EventTableBuilder) -> str | None:
    """Return why a whole document is not a trace, or None; an empty list may be an empty trace."""
    if not scanner.has_events:
        return "it has no list `traceEvents`"
    if table.is_foreign and not scanner.recovery.first_damage:
        return "its list has no event (an object with `ph`)"
    return None


def _damage(scanner: JsonScanner, kept: int) -> list[str]:
    sentences = []
    if scanner.recovery.first_damage:
        at, reason = scanner.recovery.first_damage
        places = plural(scanner.recovery.damages, "place")
        sentences.append(
            f"the file is damaged in {places}, first at byte {at:,} of its text ({reason}): "
            f"{kept:,} whole events are analysed, the damaged ones are skipped"
        )
    if scanner.broken_at is not None:
        sentences.append(
            f"the file breaks at byte {scanner.broken_at:,} of its text ({scanner.broken_by}): "
            f"the {kept:,} whole events before it are analysed, the rest is lost"
        )
    return sentences


def _header(values: dict[str, bytes], path: Path, damage: list[str]) -> Header:
    decoded = {
        key: _decoded(key, value, damage)
        for key, value in values.items()
        if key not in ("baseTimeNanoseconds", LANES_KEY, MERGED_KEY, MODULES_KEY)
    }
    info: dict[str, Any] = decoded.get("distributedInfo") or {}
    # A single process has no process group for torch to record; perfkit's own header has its rank.
    own: PerfkitHeader | None = decoded.get(HEADER_KEY)
    identity = {"rank": own.rank, "world_size": own.world_size} | info if own else info
    devices: _Devices = decoded.get("deviceProperties") or _Devices({}, {})
    return Header(
        rank=parse_count(identity.get("rank")),
        world_size=parse_count(identity.get("world_size")),
        backend=_backend(info),
        host=parse_text(decoded.get("host_name")),
        base_ns=_base_ns(values.get("baseTimeNanoseconds", b"0"), path),
        device_bytes=devices.bytes,
        device_names=devices.names,
        groups=_process_groups(info.get("pg_config")),
        perfkit=own,
        recorded=frozenset(option for option in OPTION_KEYS if decoded.get(option) == 1),
    )


def _decoded(key: str, value: bytes, damage: list[str]) -> Any:
    try:
        return _DECODERS.get(key, decode_value)(value)
    except _NewerHeaderError as error:
        damage.append(str(error))
        return None
    except ValueError:
        damage.append(f"the header's {key} cannot be read and is ignored")
        return None


def _base_ns(value: bytes, path: Path) -> int:
    if value == b"null":
        return 0
    number: Any = decode_number(value)
    usable = number is not None and number.is_finite() and abs(number.adjusted()) < 30 and number == int(number)
    if not usable or abs(number) >= LIMIT_NS:
        shown = value[:40].decode("utf-8", "replace")
        raise TraceError(f"{path}: baseTimeNanoseconds is {shown}, not a time in nanoseconds")
    return int(number)


class _NewerHeaderError(ValueError):
    """perfkit's part of the header is of a version to come; the message is a sentence for the user."""


def _perfkit_header(value: bytes) -> PerfkitHeader | None:
    try:
        return _of_known_version(msgspec.json.decode(value, type=PerfkitHeader | None))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    decoded = decode_value(value)
    try:
        return _of_known_version(msgspec.convert(decoded, PerfkitHeader | None))
    except msgspec.ValidationError:
        if isinstance(decoded, dict) and {"rank", "world_size"} <= decoded.keys():
            _refuse_newer(decoded.get("schema_version"))
            raise
        return None  # the key of another program


def _of_known_version(header: PerfkitHeader | None) -> PerfkitHeader | None:
    if header is not None:
        _refuse_newer(header.schema_version)
    return header


def _refuse_newer(version: object) -> None:
    if isinstance(version, int) and version > HEADER_VERSION:
        raise _NewerHeaderError(
            f"a newer perfkit wrote the header's {HEADER_KEY} (version {version}; this one reads {HEADER_VERSION}): "
            "it is ignored; update perfkit to use it"
        )


def _distributed_info(value: bytes) -> dict[str, Any]:
    """Return only the fields that are used."""
    try:
        texts = msgspec.json.decode(value, type=dict[str, msgspec.Raw])
        return {key: decode_value(bytes(texts[key])) for key in _USED if key in texts}
    except msgspec.ValidationError:
        return {}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        info = decode_value(value)
        return info if isinstance(info, dict) else {}


def _backend(info: dict[str, Any]) -> str | None:
    """Return the backend of the default process group, or its backends by type of device.

    A group that was created without naming a backend (by a device mesh, for example) is "undefined" in the trace, which
    has the backends in its list of groups.
    """
    name, config = parse_text(info.get("backend")), info.get("pg_config")
    if name != "undefined" or not isinstance(config, list):
        return name
    rows = [group for group in config[:_MOST_GROUPS] if isinstance(group, dict)]
    default = next((group for group in rows if group.get("pg_desc") == "default_pg"), {})
    return parse_text(default.get("backend_config")) or name


def _process_groups(config: Any) -> list[ProcessGroup]:
    """Return the process groups of the rank; those with more ranks than any job has are without ranks."""
    rows = [group for group in config[:_MOST_GROUPS] if isinstance(group, dict)] if isinstance(config, list) else []
    return [
        ProcessGroup(name=name, description=parse_text(row.get("pg_desc")), ranks=_ranks(row.get("ranks")))
        for row in rows
        if (name := parse_text(row.get("pg_name"))) is not None
    ]


def _ranks(listed: Any) -> tuple[int, ...] | None:
    if not isinstance(listed, list) or not 0 < len(listed) <= MOST_RANKS:
        return None
    ranks = tuple(parse_int(rank, -1) for rank in listed)
    return ranks if all(0 <= rank < MOST_RANKS for rank in ranks) else None


class _Devices(NamedTuple):
    """Memory and name of each device, by its number."""

    bytes: dict[int, int]
    names: dict[int, str]


def _devices(value: bytes) -> _Devices:
    devices = decode_value(value)
    rows = [device for device in devices if isinstance(device, dict)] if isinstance(devices, list) else []
    keys = dict.fromkeys(row.memory_property for row in accelerators())
    sizes = (
        (parse_count(row.get("id")), next((size for key in keys if (size := parse_count(row.get(key)))), None))
        for row in rows[:_MOST_DEVICES]
    )
    names = ((parse_count(row.get("id")), row.get("name")) for row in rows[:_MOST_DEVICES])
    return _Devices(
        {number: size for number, size in sizes if number is not None and size},
        {number: name for number, name in names if number is not None and isinstance(name, str)},
    )


_DECODERS: Final[dict[str, Callable[[bytes], Any]]] = {
    HEADER_KEY: _perfkit_header,
    "distributedInfo": _distributed_info,
    "deviceProperties": _devices,
}
