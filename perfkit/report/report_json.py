"""Writes a report as JSON; `perfkit schema` prints its JSON Schema."""

from typing import Any, TextIO

import msgspec

from perfkit.model import Comparison, Report
from perfkit.units import plain


def write(report: Report | Comparison, stream: TextIO, *, top: int) -> None:  # noqa: ARG001  all of it is written
    """Write the whole of `report` to `stream`, indented, with a line end after it."""
    try:
        encoded = msgspec.json.encode(report)
    except UnicodeEncodeError:
        # Paths and names may hold what was not UTF-8 (lone surrogates), which JSON cannot.
        encoded = msgspec.json.encode(_encodable(msgspec.to_builtins(report)))
    stream.write(msgspec.json.format(encoded, indent=2).decode("utf-8") + "\n")


def _encodable(value: Any) -> Any:
    """Return plain data with each string that UTF-8 cannot hold written out."""
    if isinstance(value, dict):
        return {key: _encodable(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_encodable(part) for part in value]
    if isinstance(value, str) and not value.isprintable():
        return plain(value)
    return value
