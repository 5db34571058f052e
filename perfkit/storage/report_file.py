"""Read a report back: `report.json`, as `perfkit analyze -o report.json` writes it."""

import re
from pathlib import Path
from typing import Final

import msgspec

from perfkit.errors import StoreError
from perfkit.schema.report import REPORT_VERSION, Report
from perfkit.util.json_decoding import decode_json
from perfkit.util.regular_file import read_regular
from perfkit.util.validator_messages import plain_message

_MOST_BYTES: Final = 8 << 30
_MANY_DIGITS: Final = re.compile(rb"[0-9]{19}")


class _Versioned(msgspec.Struct):
    """The part of the file that is read first."""

    schema_version: int


def load_report(path: str | Path) -> Report:
    """Read the JSON file of a report.

    Args:
        path: what `perfkit analyze -o FILE.json` or `--json` wrote.

    Returns:
        The report, with its tables and charts (see `perfkit.Report`).

    Raises:
        StoreError: the file cannot be read, is not a report, or was written by a perfkit with another schema version.
    """
    file = Path(path)
    try:
        data = read_regular(file, most_bytes=_MOST_BYTES)
        version = decode_json(data, _Versioned).schema_version
        if version != REPORT_VERSION:
            raise StoreError(
                f"{file}: written with schema version {version}, this perfkit reads {REPORT_VERSION}: "
                "analyze the traces again"
            )
        report = decode_json(data, Report)
        if _MANY_DIGITS.search(data):  # else none is too large
            _check_integers(decode_json(data, object))
    except OSError as error:
        raise StoreError(f"{file}: cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreError(f"{file}: not a perfkit report: {plain_message(str(error))}") from error
    return report


def _check_integers(value: object) -> None:
    """Refuse an integer that does not fit into 64 bits with a sign: tables cannot hold it, nor can it be divided.

    Raises:
        msgspec.DecodeError: There is one.
    """
    pending = [value]
    while pending:  # no recursion: values may be nested more deeply than Python calls
        value = pending.pop()
        if isinstance(value, dict):
            pending += value.values()
        elif isinstance(value, list):
            pending += value
        elif isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise msgspec.DecodeError("a number does not fit into a signed 64-bit integer")
