"""Read JSON back that perfkit wrote: `report.json`, and the results of `perfkit collectives` and `perfkit input`."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from perfkit.base.regular_file import read_regular
from perfkit.base.validation import decode_json, plain_message
from perfkit.errors import StoreError
from perfkit.records.benchmark import COLLECTIVES_VERSION, INPUT_VERSION, CollectiveBenchmark, InputBenchmark, PairTime
from perfkit.records.report import REPORT_VERSION, Report

_MOST_BYTES: Final = 8 << 30
_MANY_DIGITS: Final = re.compile(rb"[0-9]{19}")


RecordT = TypeVar("RecordT")


class _Versioned(msgspec.Struct):
    """The part of the file that is read first."""

    schema_version: int


class _VersionedBenchmark(_Versioned):
    measurements: list[msgspec.Raw]
    """Tells it from the other files that perfkit writes."""


def load_report(path: str | Path) -> Report:
    """Read the JSON file of a report.

    Returns:
        The report, with its tables and charts (see `perfkit.Report`).

    Raises:
        StoreError: the file cannot be read, is not a report, or was written by a perfkit with another schema version.
    """

    def check(report: Report, data: bytes) -> None:
        if not report.runs:
            raise msgspec.DecodeError("it has no runs")
        if _MANY_DIGITS.search(data):  # else none is too large
            _check_integers(decode_json(data, object))

    return _load(Path(path), Report, REPORT_VERSION, "a perfkit report", "analyze the traces again", check)


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


def load_collectives(path: str | Path) -> CollectiveBenchmark:
    """Read the JSON file of a benchmark of collectives.

    Raises:
        StoreError: The file cannot be read, is not one, contradicts itself, or has another schema version.
    """
    return _load_benchmark(path, CollectiveBenchmark, COLLECTIVES_VERSION, "collectives", _is_sound)


def load_input(path: str | Path) -> InputBenchmark:
    """Read the JSON file of a benchmark of input.

    Raises:
        StoreError: The file cannot be read, is not one, contradicts itself, or has another schema version.
    """
    return _load_benchmark(path, InputBenchmark, INPUT_VERSION, "input", _is_sound_input)


def _load_benchmark(
    path: str | Path, record: type[RecordT], version: int, command: str, is_sound: Callable[[RecordT], bool]
) -> RecordT:
    def check(found: RecordT, _data: bytes) -> None:
        if not is_sound(found):
            raise msgspec.DecodeError("a measurement is missing, has an unknown series or rank, or no positive time")

    kind = f"a file of `perfkit {command} -o FILE.json`"
    return _load(Path(path), record, version, kind, "measure again", check, _VersionedBenchmark)


def _load(
    file: Path,
    record: type[RecordT],
    version: int,
    kind: str,
    again: str,
    check: Callable[[RecordT, bytes], None],
    first: type[_Versioned] = _Versioned,
) -> RecordT:
    try:
        data = read_regular(file, most_bytes=_MOST_BYTES)
        written = decode_json(data, first).schema_version
        if written != version:
            raise StoreError(f"{file}: written with schema version {written}, this perfkit reads {version}: {again}")
        found = decode_json(data, record)
        check(found, data)
    except OSError as error:
        raise StoreError(f"{file}: cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreError(f"{file}: not {kind}: {plain_message(str(error))}") from error
    return found


def _is_sound(record: CollectiveBenchmark) -> bool:
    known = range(len(record.series))
    return (
        all(
            row.series in known and row.bytes >= 0 and row.time_ns > 0 and all(ns > 0 for ns in row.samples_ns)
            for row in record.measurements
        )
        and all(one.series in known for one in record.fits)
        and len(record.hosts) == len(record.cores) == record.world_size
        and all(_is_sound_pair(pair, record.world_size) for pair in (record.pairs.pairs if record.pairs else ()))
    )


def _is_sound_pair(pair: PairTime, world_size: int) -> bool:
    low, high = sorted(pair.ranks)
    return 0 <= low < high < world_size and min(pair.latency_ns, pair.time_ns, pair.bandwidth) > 0


def _is_sound_input(record: InputBenchmark) -> bool:
    known = range(len(record.series))
    return {row.series for row in record.measurements if row.cache == "warm"} == set(known) and all(
        row.series in known
        and row.passes
        and min(row.load_ns, row.median_ns, row.p99_ns) > 0
        and all(min(one.load_ns, one.median_ns, one.p99_ns) > 0 for one in row.passes)
        for row in record.measurements
    )
