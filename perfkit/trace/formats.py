"""From a file to the raw parts of a Chrome trace: decompression and decoding, strict first, lenient where that fails.

PyTorch writes traces that are not JSON: invalid UTF-8 and raw control characters inside strings, NaN. The fast path is
msgspec's typed decoder, which looks only at the fields that are used; what it refuses goes through Python's own lenient
decoder, with invalid bytes replaced, into the same records.
"""

import gzip
import json
import zlib
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from perfkit.errors import NotATraceError, TraceError

_GZIP_MAGIC: Final = b"\x1f\x8b"
_BOM: Final = b"\xef\xbb\xbf"
_NOTHING: Final = Raw(b"")

SUFFIXES: Final = (".json", ".json.gz")


class RawArgs(Struct, gc=False):
    """The fields of `args` that the analysis uses, as they stand."""

    correlation: Any = None
    collective: Any = msgspec.field(name="Collective name", default=None)
    in_elements: Any = msgspec.field(name="In msg nelems", default=None)
    out_elements: Any = msgspec.field(name="Out msg nelems", default=None)
    dtype: Any = None
    group: Any = msgspec.field(name="Process Group Name", default=None)
    group_size: Any = msgspec.field(name="Group size", default=None)
    input_dims: Raw = msgspec.field(name="Input Dims", default=_NOTHING)
    input_type: Raw = msgspec.field(name="Input type", default=_NOTHING)


class RawEvent(Struct, gc=False):
    """The fields of an event that the analysis uses; times as text, so that no float comes between."""

    ph: Any = None
    cat: Any = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: Raw = _NOTHING
    dur: Raw = _NOTHING
    args: RawArgs | None = None


class RawTrace(Struct):
    """A trace's header fields and events, as they stand."""

    traceEvents: list[RawEvent]  # noqa: N815 - the format's own name
    distributedInfo: Any = None  # noqa: N815
    baseTimeNanoseconds: Any = None  # noqa: N815
    host_name: Any = None
    perfkit: Any = None


def read_raw(path: Path) -> RawTrace:
    """Read a Chrome trace, plain or gzip (whatever it is called), an object or a bare array of events.

    Raises:
        NotATraceError: the file is JSON, but no trace.
        TraceError: the file cannot be read or is damaged.
    """
    return _decode(_read_bytes(path), path)


def _read_bytes(path: Path) -> bytes:
    try:
        data = path.read_bytes()
        if data.startswith(_GZIP_MAGIC):
            data = gzip.decompress(data)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TraceError(f"{path}: damaged gzip data ({error}); was its writer killed?") from error
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}") from error
    data = data.removeprefix(_BOM)
    if not data.strip():
        raise TraceError(f"{path}: the file is empty; was its writer killed?")
    return data


def _decode(data: bytes, path: Path) -> RawTrace:
    try:
        return _decode_strictly(data)
    except UnicodeDecodeError:
        data = data.decode("utf-8", "replace").encode()
    except msgspec.DecodeError:
        return _decode_leniently(data, path)
    return _decode(data, path)


def _decode_strictly(data: bytes) -> RawTrace:
    if data.lstrip()[:1] == b"[":
        return RawTrace(traceEvents=msgspec.json.decode(data, type=list[RawEvent]))
    return msgspec.json.decode(data, type=RawTrace)


def _decode_leniently(data: bytes, path: Path) -> RawTrace:
    try:
        # Numbers stay text here too: what is not needed is never converted.
        loaded = json.loads(data.decode("utf-8", "replace"), strict=False, parse_float=_Number, parse_int=_Number)
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{path}: is no JSON, or not whole: {error}") from error
    if isinstance(loaded, list):
        loaded = {"traceEvents": loaded}
    events = loaded.get("traceEvents") if isinstance(loaded, dict) else None
    if not isinstance(events, list):
        raise NotATraceError(f"{path}: is JSON but no trace: it has no list `traceEvents`")
    return RawTrace(
        traceEvents=[_raw_event(event) for event in events if isinstance(event, dict)],
        distributedInfo=_plain(loaded.get("distributedInfo")),
        baseTimeNanoseconds=_plain(loaded.get("baseTimeNanoseconds")),
        host_name=loaded.get("host_name"),
        perfkit=_plain(loaded.get("perfkit")),
    )


class _Number(str):
    """The text of a JSON number."""

    __slots__ = ()


def _plain(value: Any) -> Any:
    """Turn the texts of numbers within a small header value into numbers."""
    if isinstance(value, _Number):
        return json.loads(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


def _raw_event(event: dict[str, Any]) -> RawEvent:
    args = event.get("args")
    return RawEvent(
        ph=event.get("ph"),
        cat=event.get("cat"),
        name=event.get("name"),
        pid=event.get("pid"),
        tid=event.get("tid"),
        ts=_raw_text(event.get("ts")),
        dur=_raw_text(event.get("dur")),
        args=_raw_args(args) if isinstance(args, dict) else None,
    )


def _raw_text(value: Any) -> Raw:
    return Raw(value.encode("ascii", "replace")) if isinstance(value, str) else _NOTHING


def _raw_args(args: dict[str, Any]) -> RawArgs:
    return RawArgs(
        correlation=_plain(args.get("correlation")),
        collective=args.get("Collective name"),
        in_elements=_plain(args.get("In msg nelems")),
        out_elements=_plain(args.get("Out msg nelems")),
        dtype=args.get("dtype"),
        group=_plain(args.get("Process Group Name")),
        group_size=_plain(args.get("Group size")),
        input_dims=_re_encoded(args.get("Input Dims")),
        input_type=_re_encoded(args.get("Input type")),
    )


def _re_encoded(value: Any) -> Raw:
    return _NOTHING if value is None else Raw(msgspec.json.encode(_plain(value)))
