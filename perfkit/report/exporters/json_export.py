"""Writes a report as JSON; `perfkit schema` prints its JSON Schema.

Records are encoded one at a time: encoded at once, a report of thousands of ranks would need several times its memory.
"""

import re
from collections.abc import Iterator
from typing import Any, Final, TextIO

import msgspec
from msgspec import Struct
from msgspec.structs import fields

from perfkit.base.formatting import escape_all
from perfkit.records.benchmark import CollectiveBenchmark
from perfkit.records.rank import RankReport
from perfkit.records.report import Report
from perfkit.records.run import RunReport

_INDENT: Final = "  "
_OPENED: Final = (Report, RunReport, RankReport, CollectiveBenchmark)
"""Records written field by field, and their lists record by record."""


def write(report: Any, stream: TextIO, *, top: int) -> None:  # noqa: ARG001  writes everything
    """Write the whole of `report` to `stream`, indented, with a final newline."""
    stream.writelines(_pieces(report, "\n"))
    stream.write("\n")


def _pieces(value: Any, line: str) -> Iterator[str]:
    """Yield a value as indented JSON; `line` is its newline and indentation."""
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


_INVISIBLE: Final = re.compile(
    "[\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
"""Characters that JSON allows but terminals may interpret or hide: written as escapes of the same text."""


def _escaped(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be").hex()
    return "".join(f"\\u{units[place : place + 4]}" for place in range(0, len(units), 4))


def _text(value: Any, line: str) -> str:
    try:
        encoded = msgspec.json.encode(value)
    except UnicodeEncodeError:
        # Paths and names may contain lone surrogates (bytes that were not UTF-8), which JSON cannot represent.
        encoded = msgspec.json.encode(escape_all(msgspec.to_builtins(value)))
    # JSON strings contain no newlines.
    text = msgspec.json.format(encoded, indent=len(_INDENT)).decode("utf-8").replace("\n", line)
    return text if text.isascii() and "\x7f" not in text else _INVISIBLE.sub(_escaped, text)
