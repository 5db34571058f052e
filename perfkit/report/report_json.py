"""Writes a report as JSON; `perfkit schema` prints its JSON Schema.

Text is made a record at a time: as one piece, a report of thousands of ranks would take several times its own memory.
"""

from collections.abc import Iterator
from typing import Any, Final, TextIO

import msgspec
from msgspec import Struct
from msgspec.structs import fields

from perfkit.model import Comparison, History, PeerTable, RankReport, Report, RunReport
from perfkit.units import plain

_INDENT: Final = "  "
_OPENED: Final = (Report, RunReport, RankReport)
"""Records that are written a field at a time, and their lists a record at a time."""


def write(report: Report | Comparison | History | PeerTable, stream: TextIO, *, top: int) -> None:  # noqa: ARG001  all of it is written
    """Write the whole of `report` to `stream`, indented, with a line end after it."""
    stream.writelines(_pieces(report, "\n"))
    stream.write("\n")


def _pieces(value: Any, line: str) -> Iterator[str]:
    """Yield a value as indented JSON; `line` is the line end and indentation where it stands."""
    below = line + _INDENT
    if isinstance(value, _OPENED):
        for number, field in enumerate(fields(value)):
            yield f"{',' if number else '{'}{below}{_text(field.encode_name, below)}: "
            yield from _pieces(getattr(value, field.name), below)
        yield f"{line}}}"
    elif isinstance(value, list) and value and isinstance(value[0], Struct):
        for number, item in enumerate(value):
            yield f"{',' if number else '['}{below}"
            yield from _pieces(item, below)
        yield f"{line}]"
    else:
        yield _text(value, line)


def _text(value: Any, line: str) -> str:
    try:
        encoded = msgspec.json.encode(value)
    except UnicodeEncodeError:
        # Paths and names may hold what was not UTF-8 (lone surrogates), which JSON cannot.
        encoded = msgspec.json.encode(_encodable(msgspec.to_builtins(value)))
    # In JSON a line end is never part of a string.
    return msgspec.json.format(encoded, indent=len(_INDENT)).decode("utf-8").replace("\n", line)


def _encodable(value: Any) -> Any:
    """Return plain data with each string that UTF-8 cannot hold written out."""
    if isinstance(value, dict):
        return {key: _encodable(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_encodable(part) for part in value]
    if isinstance(value, str) and not value.isprintable():
        return plain(value)
    return value
