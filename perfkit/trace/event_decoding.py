"""The records of a Chrome trace and their decoding: strict first, lenient for what that refuses.

Programs write traces that are not JSON: invalid UTF-8, raw control characters and bare backslashes (of Windows' paths)
inside strings, NaN. The fast path is msgspec's typed decoder, which looks only at the fields that are used and passes
over all that is no complete event; an event that it refuses goes through Python's own lenient decoder, with invalid
bytes replaced, into the same record.
Each event is decoded for itself: how it is cut out of its file changes nothing.
"""

import functools
import json
import operator
import re
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

_NOTHING: Final = Raw(b"")
LENIENT_BYTES: Final = 1 << 20
"""Python's decoder keeps all of what it reads, at up to thirty times its size."""

_ESCAPE: Final = re.compile(r'\\(["\\/bfnrt]|u[0-9a-fA-F]{4})?')

_MOST_DIGITS: Final = 4000
"""Python refuses to convert more than 4300."""

SUFFIXES: Final = (".json", ".json.gz", ".json.zst")


class RawArgs(Struct, gc=False, frozen=True):
    """The fields of `args` that the analysis uses, as they stand."""

    correlation: Any = -1
    collective: Any = msgspec.field(name="Collective name", default=None)
    in_elements: Any = msgspec.field(name="In msg nelems", default=None)
    out_elements: Any = msgspec.field(name="Out msg nelems", default=None)
    dtype: Any = None
    group: Any = msgspec.field(name="Process Group Name", default=None)
    group_size: Any = msgspec.field(name="Group size", default=None)
    sequence: Any = msgspec.field(name="Seq", default=None)
    members: Any = msgspec.field(name="Process Group Ranks", default=None)
    input_dims: Raw = msgspec.field(name="Input Dims", default=_NOTHING)
    input_type: Raw = msgspec.field(name="Input type", default=_NOTHING)


class RawEvent(Struct, gc=False, tag_field="ph", tag="X"):
    """The fields of a complete event that the analysis uses; times as text, so that no float comes between."""

    cat: str | None = None
    name: str = "None"
    pid: int | str = "None"
    tid: int | str = "None"
    ts: Raw = _NOTHING
    dur: Raw = _NOTHING
    args: RawArgs = RawArgs()


_OTHER_PHASES: Final = "BEiIstfMCbneNODPSTpFRvVc(),a"
_OTHERS: Final = tuple(
    msgspec.defstruct(f"Other{number}", [], gc=False, tag_field="ph", tag=phase)
    for number, phase in enumerate(_OTHER_PHASES)
)
"""Events that are neither complete nor read for what else they say: flows, counters. Nothing of them is kept."""


class RawInstant(Struct, gc=False, tag_field="ph", tag="i"):
    """An instant, such as `[memory]`."""

    name: Any = None
    ts: Raw = _NOTHING
    args: Raw = _NOTHING
    """As they stand: of most instants they are not needed, whatever they are."""


class _NameArgs(Struct, gc=False, frozen=True):
    name: Any = None


class RawMetadata(Struct, gc=False, tag_field="ph", tag="M"):
    """Metadata, such as `thread_name`."""

    name: Any = None
    pid: Any = None
    tid: Any = None
    args: _NameArgs = _NameArgs()


class NotAnEvent(Struct, gc=False):
    """An object that is no event: it has no `ph`."""


def _decoder(*kinds: type[Struct]) -> msgspec.json.Decoder[list[Any]]:
    """Return a decoder of lists of events of these kinds, and of all others as such."""
    tags = {kind.__struct_config__.tag for kind in kinds}
    others = (other for other in _OTHERS if other.__struct_config__.tag not in tags)
    return msgspec.json.Decoder(list[functools.reduce(operator.or_, (*kinds, *others))])  # type: ignore[misc]


_DECODER: Final = _decoder(RawEvent, RawInstant)
_DETAILED: Final = _decoder(RawEvent, RawInstant, RawMetadata)

_OTHER: Final = _OTHERS[0]()


def decode_strictly(text: bytes) -> list[Any] | None:
    """Decode events separated by commas; None where they are no JSON, or not of the types they should be.

    Those of type `RawEvent` are complete events, those of type `RawInstant` instants.
    """
    return _decode(text, _DECODER)


def decode_with_metadata(text: bytes) -> list[Any] | None:
    """Decode likewise, with names as `RawMetadata`."""
    return _decode(text, _DETAILED)


def _decode(text: bytes, decoder: msgspec.json.Decoder[list[Any]]) -> list[Any] | None:
    try:
        return decoder.decode(b"[" + text + b"]")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError):
        return None


def contains_no_object(text: bytes) -> bool:
    """Tell lists of numbers and the like, of which each alone would have to be decoded to see that it is no event."""
    if b"{" in text:
        return False
    try:
        msgspec.json.decode(b"[" + text + b"]", type=Raw)  # which builds nothing
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def decode_leniently(text: bytes) -> list[Any] | None:
    """Decode one event; None where nothing can be made of it, an empty list where it is no event."""
    if len(text) > LENIENT_BYTES:
        return None
    try:
        loaded = load_leniently(text)
        return [_event(loaded)] if isinstance(loaded, dict) else []
    except (ValueError, RecursionError):
        return None


def _event(loaded: dict[str, Any]) -> Struct:
    phase = _plain(loaded.get("ph"))
    if phase == "X":
        return _raw_event(loaded)
    if phase is None:
        return NotAnEvent()
    return _raw_instant(loaded) if phase == "i" else _OTHER


def load_leniently(text: bytes) -> Any:
    """Decode any JSON, numbers as their texts: what is not needed is never converted.

    Raises:
        ValueError: it is no JSON.
        RecursionError: it is nested too deeply.
    """
    decoded = text.decode("utf-8", "replace")
    return _LENIENT.decode(_with_whole_escapes(decoded) if "\\" in decoded else decoded)


def _with_whole_escapes(text: str) -> str:
    """Double the backslashes that begin no escape of JSON."""
    return _ESCAPE.sub(lambda found: found[0] if found[1] else r"\\", text)


class _Number(str):
    """The text of a JSON number."""

    __slots__ = ()


_LENIENT: Final = json.JSONDecoder(strict=False, parse_float=_Number, parse_int=_Number)


def _plain(value: Any) -> Any:
    """Turn the texts of numbers within a small value into numbers, and strings into such as can be printed."""
    if isinstance(value, _Number):
        return json.loads(value) if len(value) < _MOST_DIGITS else str(value)
    if isinstance(value, str):
        return _printable(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


def _printable(text: str) -> str:
    """Replace halves of surrogate pairs."""
    return text.encode("utf-8", "replace").decode()


def _raw_event(event: dict[str, Any]) -> RawEvent:
    args = event.get("args")
    category = event.get("cat")
    return RawEvent(
        cat=None if category is None else _printable(str(category)),
        name=_printable(str(event.get("name"))),
        pid=_id(event.get("pid")),
        tid=_id(event.get("tid")),
        ts=_raw_text(event.get("ts")),
        dur=_raw_text(event.get("dur")),
        args=_raw_args(args) if isinstance(args, dict) else RawArgs(),
    )


def _raw_instant(event: dict[str, Any]) -> RawInstant:
    return RawInstant(
        name=_plain(event.get("name")), ts=_raw_text(event.get("ts")), args=_re_encoded(event.get("args"))
    )


def _id(value: Any) -> int | str:
    if isinstance(value, _Number) and len(value) < _MOST_DIGITS and re.fullmatch(r"-?\d+", value):
        return int(value)
    return _printable(str(value))


def _raw_text(value: Any) -> Raw:
    """Return the text of a number, or of a string in its quotes."""
    if isinstance(value, _Number):
        return Raw(value.encode())
    return Raw(json.dumps(value).encode()) if isinstance(value, str) else _NOTHING


def _raw_args(args: dict[str, Any]) -> RawArgs:
    return RawArgs(
        correlation=_plain(args.get("correlation", -1)),
        collective=_plain(args.get("Collective name")),
        in_elements=_plain(args.get("In msg nelems")),
        out_elements=_plain(args.get("Out msg nelems")),
        dtype=_plain(args.get("dtype")),
        group=_plain(args.get("Process Group Name")),
        group_size=_plain(args.get("Group size")),
        sequence=_plain(args.get("Seq")),
        members=_plain(args.get("Process Group Ranks")),
        input_dims=_re_encoded(args.get("Input Dims")),
        input_type=_re_encoded(args.get("Input type")),
    )


def _re_encoded(value: Any) -> Raw:
    return _NOTHING if value is None else Raw(json.dumps(_plain(value)).encode())


def decode_value(text: bytes) -> Any:
    """Decode one value of the header, however it is written.

    Raises:
        ValueError: nothing can be made of it.
    """
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError):
        pass
    if len(text) > LENIENT_BYTES:
        raise ValueError("too large to be decoded leniently")
    try:
        return _plain(load_leniently(text))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def decode_number(text: bytes) -> Decimal | None:
    """Decode a number, which may stand in quotes, exactly; None where it is none."""
    value = text.strip().strip(b'"')
    try:
        return Decimal(value.decode("ascii")) if len(value) < 64 else None
    except (InvalidOperation, UnicodeDecodeError):
        return None
