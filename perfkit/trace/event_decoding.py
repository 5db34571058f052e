"""Decode the records of a Chrome trace: strictly first, leniently if that fails.

Some traces are not valid JSON: invalid UTF-8, raw control characters and bare backslashes (of Windows paths) inside
strings, NaN. The fast path is msgspec's typed decoder, which decodes only the fields that are used and skips whatever
is not a complete event. An event that it refuses goes through Python's own lenient decoder, with invalid bytes
replaced, into the same record. Each event is decoded independently: how the file is split does not matter.
"""

import functools
import json
import operator
import re
from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from typing import Any, Final, Generic, Literal, TypeVar

import msgspec
import numpy as np
from msgspec import Raw, Struct

from perfkit.base.validation import encodable
from perfkit.trace.intervals import Ints

MISSING: Final = Raw(b"")
"""What a field is that the event does not have: the very object."""
LENIENT_BYTES: Final = 1 << 20
"""Limit for the lenient decoder: Python keeps everything it decodes, at up to thirty times its size."""

_ESCAPE: Final = re.compile(r'\\(["\\/bfnrt]|u[0-9a-fA-F]{4})?')

_MOST_DIGITS: Final = 4000
"""Python refuses to convert integers of more than 4300 digits."""

SUFFIXES: Final = (".json", ".json.gz", ".json.zst")


class RawArgs(Struct, gc=False, frozen=True):
    """The fields of `args` that the analysis uses, not validated; those that are looked at in all events first.

    An event's first fields share a line of the processor's cache. The others are in the order of traces, in which they
    are decoded faster.
    """

    external_id: Any = msgspec.field(name="External id", default=-1)
    correlation: Any = -1
    sequence_number: Any = msgspec.field(name="Sequence number", default=-1)
    input_dims: Raw = msgspec.field(name="Input Dims", default=MISSING)
    collective: Any = msgspec.field(name="Collective name", default=None)
    device: Any = None
    grid: Raw = MISSING
    block: Raw = MISSING
    occupancy: Raw = msgspec.field(name="est. achieved occupancy %", default=MISSING)
    in_elements: Any = msgspec.field(name="In msg nelems", default=None)
    out_elements: Any = msgspec.field(name="Out msg nelems", default=None)
    group_size: Any = msgspec.field(name="Group size", default=None)
    dtype: Any = None
    sequence: Any = msgspec.field(name="Seq", default=None)
    group: Any = msgspec.field(name="Process Group Name", default=None)
    description: Any = msgspec.field(name="Process Group Description", default=None)
    members: Any = msgspec.field(name="Process Group Ranks", default=None)
    source: Any = msgspec.field(name="Src Rank", default=None)
    destination: Any = msgspec.field(name="Dst Rank", default=None)
    concrete_inputs: Raw = msgspec.field(name="Concrete Inputs", default=MISSING)
    input_type: Raw = msgspec.field(name="Input type", default=MISSING)
    forward_thread: Any = msgspec.field(name="Fwd thread id", default=-1)


_Listed = Literal[
    "cpu_op",
    "user_annotation",
    "cuda_runtime",
    "cuda_driver",
    "kernel",
    "gpu_memcpy",
    "gpu_memset",
    "python_function",
    "gpu_user_annotation",
    "overhead",
    "cuda_sync",
    "Trace",
]
"""Categories that kineto writes: a text of this list is not made anew for each event."""
CategoryT = TypeVar("CategoryT")


class RawEvent(Struct, Generic[CategoryT], gc=False, tag_field="ph", tag="X"):
    """The fields of a complete event that the analysis uses; times as text, to avoid floats."""

    cat: CategoryT | None = None
    name: str = "None"
    pid: int | str = "None"
    tid: int | str = "None"
    ts: Raw = MISSING
    dur: Raw = MISSING
    args: RawArgs = RawArgs()


_OTHER_PHASES: Final = "BEiIstfMCbneNODPSTpFRvVc(),a"
_OTHERS: Final = tuple(
    msgspec.defstruct(f"Other{number}", [], gc=False, tag_field="ph", tag=phase)
    for number, phase in enumerate(_OTHER_PHASES)
)
"""Events of other phases, such as flows and counters. None of their fields is kept."""


class RawInstant(Struct, gc=False, tag_field="ph", tag="i"):
    """An instant, such as `[memory]`."""

    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: Raw = MISSING
    args: Raw = MISSING
    """Not decoded: most instants do not need them."""


class _NameArgs(Struct, gc=False, frozen=True):
    name: Any = None


class RawMetadata(Struct, gc=False, tag_field="ph", tag="M"):
    """Metadata, such as `thread_name`."""

    name: Any = None
    pid: Any = None
    tid: Any = None
    args: _NameArgs = _NameArgs()


class NotAnEvent(Struct, gc=False):
    """An object that is not an event: it has no `ph`."""


def _decoder(category: Any, *further: type[Struct]) -> msgspec.json.Decoder[list[Any]]:
    """Return a decoder of lists of complete events of a type of category, of instants, and of further kinds of events.

    All others become empty records.
    """
    kept: tuple[type[Struct], ...] = RawInstant, *further
    tags = {kind.__struct_config__.tag for kind in kept}
    others = (other for other in _OTHERS if other.__struct_config__.tag not in tags)
    kinds = functools.reduce(operator.or_, (RawEvent[category], *kept, *others))
    return msgspec.json.Decoder(list[kinds])  # type: ignore[valid-type]


_DECODERS: Final = _decoder(_Listed), _decoder(str)
"""Of events of the listed categories only, and of any."""
_DECODER_WITH_METADATA: Final = _decoder(str, RawMetadata)

_OTHER: Final = _OTHERS[0]()


def decode_strictly(text: bytes | memoryview) -> list[Any] | None:
    """Decode events separated by commas into `RawEvent` and `RawInstant`; None if not JSON of the right types."""
    return _decode(text, *_DECODERS)


def decode_with_metadata(text: bytes | memoryview) -> list[Any] | None:
    """Decode likewise, and metadata events into `RawMetadata`."""
    return _decode(text, _DECODER_WITH_METADATA)


def _decode(text: bytes | memoryview, *decoders: msgspec.json.Decoder[list[Any]]) -> list[Any] | None:
    listed = b"".join((b"[", text, b"]"))
    for decoder in decoders:
        try:
            return decoder.decode(listed)
        except msgspec.ValidationError:
            continue
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError):
            return None
    return None


def contains_no_object(text: bytes) -> bool:
    """Return whether values are JSON without any object: no event is among them, and none need be decoded alone."""
    if b"{" in text:
        return False
    try:
        msgspec.json.decode(b"[" + text + b"]", type=Raw)  # builds no objects
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def decode_leniently(text: bytes) -> list[Any] | None:
    """Decode one event; None if it cannot be decoded, an empty list if it is not an event."""
    if len(text) > LENIENT_BYTES:
        return None
    try:
        loaded = load_leniently(text)
        return [_event(loaded)] if isinstance(loaded, dict) else []
    except (ValueError, RecursionError):
        return None


def _event(loaded: dict[str, Any]) -> Struct:
    phase = _converted(loaded.get("ph"))
    if phase == "X":
        args = loaded.get("args")
        category = loaded.get("cat")
        return RawEvent(
            cat=None if category is None else encodable(str(category)),
            name=encodable(str(loaded.get("name"))),
            pid=_id(loaded.get("pid")),
            tid=_id(loaded.get("tid")),
            ts=_raw_text(loaded.get("ts")),
            dur=_raw_text(loaded.get("dur")),
            args=_raw_args(args) if isinstance(args, dict) else RawArgs(),
        )
    if phase is None:
        return NotAnEvent()
    return _raw_instant(loaded) if phase == "i" else _OTHER


def load_leniently(text: bytes) -> Any:
    """Decode any JSON, with numbers as text: most are not needed and never converted.

    Raises:
        ValueError: it is not JSON.
        RecursionError: it is nested too deeply.
    """
    decoded = text.decode("utf-8", "replace")
    # Backslashes that do not begin an escape sequence are doubled.
    return _LENIENT.decode(
        _ESCAPE.sub(lambda match: match[0] if match[1] else r"\\", decoded) if "\\" in decoded else decoded
    )


class _Number(str):
    """The text of a JSON number."""

    __slots__ = ()


_LENIENT: Final = json.JSONDecoder(strict=False, parse_float=_Number, parse_int=_Number)


def _converted(value: Any) -> Any:
    """Convert the numbers within a small value, and make its strings encodable."""
    if isinstance(value, _Number):
        return json.loads(value) if len(value) < _MOST_DIGITS else str(value)
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, dict):
        return {key: _converted(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_converted(item) for item in value]
    return value


def _raw_instant(event: dict[str, Any]) -> RawInstant:
    return RawInstant(
        name=_converted(event.get("name")),
        pid=_id(event.get("pid")),
        tid=_id(event.get("tid")),
        ts=_raw_text(event.get("ts")),
        args=_re_encoded(event.get("args")),
    )


def _id(value: Any) -> int | str:
    if isinstance(value, _Number) and len(value) < _MOST_DIGITS and re.fullmatch(r"-?\d+", value):
        return int(value)
    return encodable(str(value))


def _raw_text(value: Any) -> Raw:
    """Return the text of a number, or of a string in its quotes."""
    if isinstance(value, _Number):
        return Raw(value.encode())
    return Raw(json.dumps(value).encode()) if isinstance(value, str) else MISSING


_ARGS: Final = msgspec.structs.fields(RawArgs)


def _raw_args(args: dict[str, Any]) -> RawArgs:
    return RawArgs(
        **{
            field.name: _re_encoded(args.get(field.encode_name))
            if field.type is Raw
            else _converted(args.get(field.encode_name, field.default))
            for field in _ARGS
        }
    )


def _re_encoded(value: Any) -> Raw:
    return MISSING if value is None else Raw(json.dumps(_converted(value)).encode())


def decode_value(text: bytes) -> Any:
    """Decode one value of the header, leniently if necessary.

    Raises:
        ValueError: it cannot be decoded.
    """
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError):
        pass
    if len(text) > LENIENT_BYTES:
        raise ValueError("too large to be decoded leniently")
    try:
        return _converted(load_leniently(text))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def decode_number(text: bytes) -> Decimal | None:
    """Decode a number exactly, with or without quotes; None if it is not a number."""
    value = text.strip().strip(b'"')
    try:
        return Decimal(value.decode("ascii")) if len(value) < 64 else None
    except (InvalidOperation, UnicodeDecodeError):
        return None


# ---- single values of records --------------------------------------------------------------------------------------


def parse_int(value: Any, default: int) -> int:
    """Return a number or a decimal string as int64; `default` if it is missing or invalid."""
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 20:
        value = int(value)
    return value if type(value) is int and 0 <= value < 2**63 else default


def all_integers(values: Sequence[Any]) -> Ints | None:
    """Return values as a column if all of them are integers that fit into it; else None."""
    if set(map(type, values)) == {int}:
        with suppress(OverflowError):
            return np.fromiter(values, np.int64, len(values))
    return None


def parse_count(value: Any) -> int | None:
    """Return a count; None if it is missing or invalid."""
    count = parse_int(value, -1)
    return None if count < 0 else count


def parse_text(value: Any) -> str | None:
    """Return a string; None if it is missing or empty."""
    return None if value is None or value == "" else str(value)
