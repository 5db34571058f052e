"""Writes a report as JSON; `perfkit schema` prints its JSON Schema.

Text is made a record at a time: as one piece, a report of thousands of ranks would take several times its own memory.
"""

import re
from collections.abc import Iterator
from typing import Any, Final, TextIO

import msgspec
from msgspec import Struct
from msgspec.structs import fields

from perfkit.schema.comparison import Comparison
from perfkit.schema.external_tool import ExternalTable
from perfkit.schema.history import History
from perfkit.schema.rank import RankReport
from perfkit.schema.report import Report
from perfkit.schema.run import RunReport
from perfkit.util.formatting import escape_unprintable

_INDENT: Final = "  "
_OPENED: Final = (Report, RunReport, RankReport)
"""Records that are written a field at a time, and their lists a record at a time."""


def write(report: Report | Comparison | History | ExternalTable, stream: TextIO, *, top: int) -> None:  # noqa: ARG001  all of it is written
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


_UNSEEN: Final = re.compile(
    "[\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
"""What JSON may hold as it is, but a terminal may obey or not show: written as an escape, it is the same text."""


def _escaped(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be").hex()
    return "".join(f"\\u{units[place : place + 4]}" for place in range(0, len(units), 4))


def _text(value: Any, line: str) -> str:
    try:
        encoded = msgspec.json.encode(value)
    except UnicodeEncodeError:
        # Paths and names may hold what was not UTF-8 (lone surrogates), which JSON cannot.
        encoded = msgspec.json.encode(_encodable(msgspec.to_builtins(value)))
    # In JSON a line end is never part of a string.
    text = msgspec.json.format(encoded, indent=len(_INDENT)).decode("utf-8").replace("\n", line)
    return text if text.isascii() and "\x7f" not in text else _UNSEEN.sub(_escaped, text)


def _encodable(value: Any) -> Any:
    """Return plain data with each string that UTF-8 cannot hold written out."""
    if isinstance(value, dict):
        return {key: _encodable(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_encodable(part) for part in value]
    if isinstance(value, str) and not value.isprintable():
        return escape_unprintable(value)
    return value
