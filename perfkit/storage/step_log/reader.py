"""Reads a rank's step log, as it grows or afterwards.

The file may come from anybody: nothing is believed of its header that is not checked, and memory is bounded by what the
caller asks for. A record that is incomplete, or whose check is wrong, is left out.
"""

import os
import re
import zlib
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from perfkit.base.regular_file import open_regular
from perfkit.base.validation import decode_json, plain_message
from perfkit.errors import StoreError
from perfkit.records.monitor import (
    CHECK,
    COLUMNS,
    HEADER_BYTES,
    LOSS_GIVEN,
    STAMP_BYTES,
    STEP_DTYPE,
    STEP_LOG_FORMAT,
    STEP_LOG_VERSION,
    UNKNOWN,
    StepColumn,
    StepLogHeader,
)

Records = NDArray[np.void]
"""Of the dtype `STEP_DTYPE`."""
Values = NDArray[Any]
Mask = NDArray[np.bool_]


def roll_up(records: Records) -> Records:
    """Return half as many records, each of two that follow each other; a last one without a partner stays as it is.

    `check` is not valid in what is returned.
    """
    pairs = len(records) // 2
    first, second = records[: 2 * pairs : 2], records[1 : 2 * pairs : 2]
    merged = np.zeros(pairs, STEP_DTYPE)
    second_longer = second["longest_ns"] > first["longest_ns"]
    for column in COLUMNS:
        if column.name != CHECK:
            merged[column.name] = _merge(column, first, second, second_longer)
    return np.concatenate([merged, records[2 * pairs :]])


def _merge(column: StepColumn, first: Records, second: Records, second_longer: Mask) -> Values:
    a, b = first[column.name], second[column.name]
    unknown_a, unknown_b = _unknown(column, first), _unknown(column, second)
    match column.rolled_up:
        case "first":
            return np.asarray(a)
        case "newest":
            return np.where(unknown_b, a, b)
        case "longest":
            return np.where(second_longer, b, a)
        case "sum":
            return np.asarray(a + b)
        case "same":
            return np.where(a == b, a, UNKNOWN)
        case "any":
            both = a | b
        case "max":
            both = np.maximum(a, b)
        case "mean":
            both = _mean(a, b, first["steps"], second["steps"])
    return np.where(unknown_a, b, np.where(unknown_b, a, both))


def _mean(a: Values, b: Values, steps_a: Values, steps_b: Values) -> Values:
    """Return the mean per step; of integers rounded, and without overflow."""
    share = steps_b / (steps_a.astype(np.float64) + steps_b)
    if a.dtype.kind == "i":
        return a + np.rint((b - a) * share).astype(np.int64)
    return ((1 - share) * a + share * b).astype(a.dtype)


def _unknown(column: StepColumn, records: Records) -> Mask:
    values = records[column.name]
    if column.name == "loss":  # of a loss that was given, NaN is its value
        return np.asarray((records["flags"] & LOSS_GIVEN) == 0)
    if column.unknown == "NaN":
        return np.asarray(np.isnan(values))
    return np.asarray(values == UNKNOWN) if column.unknown == "-1" else np.zeros(len(records), np.bool_)


LOG_NAME: Final = "rank{}.steps"
_LOG: Final = re.compile(r"rank(0|[1-9]\d{0,8})\.steps")
MOST_RECORDS: Final = 65_536
"""Default of how many records are read at a time: about 13 MB."""
_MOST_STEPS: Final = 1 << 53
"""Step numbers are below: beyond, a float is not exact."""
_FORMATS: Final = {column.name: column.dtype for column in COLUMNS}


class NewRecords(NamedTuple):
    """What `StepLogReader.read_new` has found."""

    records: Records
    """In the order of their steps; of the dtype `STEP_DTYPE`."""
    restarted: bool
    """Whether these are from the beginning of the log, and replace all that was read before: it is the first time, or
    the log was rolled up."""
    damaged: int
    """Records that were left out."""


def is_step_log(name: str) -> bool:
    return _LOG.fullmatch(name) is not None


def find_step_logs(folder: Path) -> dict[int, Path]:
    """Return the step logs in a run's folder by rank, in their order.

    Raises:
        StoreError: The folder cannot be read.
    """
    try:
        names = [match for name in os.listdir(folder) if (match := _LOG.fullmatch(name))]
    except OSError as error:
        raise StoreError(f"cannot read {folder}: {error.strerror}") from error
    return {int(match[1]): folder / match[0] for match in sorted(names, key=lambda match: int(match[1]))}


class StepLogReader:
    """Reads what has been appended to a log since it was last asked."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.header: StepLogHeader | None = None
        """That of the last file read; None before the first time."""
        self._stamp = b""
        self._dtype = STEP_DTYPE
        self._offset = HEADER_BYTES

    def read_new(self, most_records: int = MOST_RECORDS, *, newest: int | None = None) -> NewRecords:
        """Return records that have not been returned yet; without any, and without damaged ones, there are no more.

        All of them are of one generation of the log: a roll-up meanwhile shows the next time, as `restarted`.

        Raises:
            StoreError: The log cannot be read, or is not a step log.
        """
        try:
            with open_regular(self.path) as stream:
                restarted = self._find_place(stream)
                if newest is not None:
                    whole = max(0, os.fstat(stream.fileno()).st_size - HEADER_BYTES) // self._dtype.itemsize
                    self._offset = max(self._offset, HEADER_BYTES + (whole - newest) * self._dtype.itemsize)
                stream.seek(self._offset)
                data = stream.read(most_records * self._dtype.itemsize)
        except OSError as error:
            raise StoreError(f"cannot read {self.path}: {error.strerror}") from error
        size = len(data) - len(data) % self._dtype.itemsize  # the rest is being written, or never was
        self._offset += size
        records = self._decode(data[:size])
        return NewRecords(records, restarted, size // self._dtype.itemsize - len(records))

    def _find_place(self, stream: BinaryIO) -> bool:
        """Return whether the file is not the one that was read before, whose header is then read."""
        stamp = stream.read(STAMP_BYTES)
        if stamp == self._stamp and os.fstat(stream.fileno()).st_size >= self._offset:
            return False
        path = self.path
        data = stamp + stream.read(HEADER_BYTES - len(stamp))
        try:
            _check_version(path, data)
            header = decode_json(data, StepLogHeader)
            dtype = np.dtype([(column.name, column.dtype) for column in header.columns])
        except (msgspec.DecodeError, ValueError) as error:
            raise StoreError(f"{path} is not a step log: {plain_message(str(error))}") from error
        names = [column.name for column in header.columns]
        known = {column.name: column.dtype for column in header.columns if column.name in _FORMATS}
        needed = {column.name for column in COLUMNS if column.unknown == "never"}
        if dtype.itemsize != header.record_bytes or names[:1] != [CHECK] or not needed <= known.keys():
            raise StoreError(f"{path} is not a step log: its columns are not those of one")
        if any(_FORMATS[name] != dtype for name, dtype in known.items()):
            raise StoreError(f"{path} is not a step log: a column has another format")
        self.header, self._dtype = header, dtype
        self._stamp, self._offset = stamp, HEADER_BYTES
        return True

    def _decode(self, data: bytes) -> Records:
        raw = np.frombuffer(data, self._dtype)
        view, size = memoryview(data), self._dtype.itemsize
        checks = (zlib.crc32(view[begin + 4 : begin + size]) for begin in range(0, len(data), size))
        records = _as_known(raw[np.fromiter(checks, np.uint32, len(raw)) == raw[CHECK]])
        return records[_plausible(records)]


def _as_known(raw: Records) -> Records:
    """Return records with the columns that this perfkit knows."""
    if raw.dtype == STEP_DTYPE:
        return raw
    records = np.zeros(len(raw), STEP_DTYPE)
    for column in COLUMNS:
        if column.name in (raw.dtype.names or ()):
            records[column.name] = raw[column.name]
        elif column.unknown != "never":
            records[column.name] = np.nan if column.unknown == "NaN" else UNKNOWN
    return records


def _plausible(records: Records) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Return which records can be of steps: a check is no proof of that."""
    first, steps, longest = records["step"], records["steps"].astype(np.int64), records["longest_step"]
    found = (steps > 0) & (records["begin_ns"] >= 0) & (first >= 0) & (first < _MOST_STEPS - steps)
    found &= (longest >= first) & (longest - steps < first)
    for column in COLUMNS:
        if column.unit in ("ns", "bytes"):
            found &= records[column.name] >= UNKNOWN
    return found


class _Versioned(msgspec.Struct):
    format: str
    schema_version: int


def _check_version(path: Path, data: bytes) -> None:
    """Refuse another kind of file, and another version of the format."""
    found = decode_json(data, _Versioned)
    if found.format != STEP_LOG_FORMAT:
        raise StoreError(f"{path} is not a step log")
    if found.schema_version != STEP_LOG_VERSION:
        newer = found.schema_version > STEP_LOG_VERSION
        remedy = "update perfkit" if newer else "an older perfkit wrote it"
        raise StoreError(f"{path} has version {found.schema_version}, this perfkit reads {STEP_LOG_VERSION}: {remedy}")
