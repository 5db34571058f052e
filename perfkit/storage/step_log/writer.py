"""Writes a rank's step log: one `write` per step, so that what is lost with a killed process is at most a step.

What was written is in the page cache, which outlives the process; it is not forced to the disk. A log that has grown
beyond its limit is rolled up into a new file, which then takes its name: a reader has the old one or the new one.
"""

import os
import secrets
import socket
import struct
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
import numpy as np
from msgspec.structs import replace

from perfkit.base.atomic_write import atomic_write
from perfkit.errors import StoreError
from perfkit.options.recording import DEFAULT_MOST_BYTES, LEAST_MOST_BYTES
from perfkit.records.monitor import CHECK, COLUMNS, HEADER_BYTES, STEP_DTYPE, StepLogHeader
from perfkit.storage.step_log.reader import LOG_NAME, Records, roll_up

_CODES: Final = {"u4": "I", "i2": "h", "u2": "H", "i4": "i", "i8": "q", "f4": "f", "f8": "d"}
_pack: Final = struct.Struct("<" + "".join(_CODES[column.dtype[1:]] for column in COLUMNS if column.name != CHECK)).pack
_RECORD: Final = STEP_DTYPE.itemsize
_CHUNK: Final = 4096
"""Records that are rolled up at a time, an even number."""


class StepLogWriter:
    """The step log of this process, from its creation on.

    Raises:
        StoreError: The log cannot be written.
    """

    def __init__(
        self, folder: Path, rank: int, world_size: int, device: str, most_bytes: int = DEFAULT_MOST_BYTES
    ) -> None:
        self.path = folder / LOG_NAME.format(rank)
        self._header = StepLogHeader(
            log_id=secrets.token_hex(8),
            rank=rank,
            world_size=world_size,
            host=socket.gethostname()[:255],
            pid=os.getpid(),
            started_ns=time.time_ns(),
            device=device,
            record_bytes=_RECORD,
            most_bytes=max(most_bytes, LEAST_MOST_BYTES),
            columns=list(COLUMNS),
        )
        self._lock = threading.RLock()  # a signal handler may close this within it
        self._descriptor: int | None = None
        self._end = HEADER_BYTES
        with atomic_write(self.path) as stream:
            stream.write(_encode(self._header))
            stream.flush()
            self._descriptor = os.dup(stream.fileno())

    @property
    def is_full(self) -> bool:
        """Whether it is time for `roll_up`."""
        return self._end > self._header.most_bytes

    def append(self, record: Sequence[float]) -> None:
        """Append the record of a step, the fields of a `StepRecord`; after `close`, do nothing.

        Raises:
            StoreError: It cannot be written; what was written before stays readable.
        """
        body = _pack(*record)
        data = zlib.crc32(body).to_bytes(4, "little") + body
        with self._lock:
            if self._descriptor is None:
                return
            try:
                written = os.pwrite(self._descriptor, data, self._end)
            except OSError as error:
                raise self._error(error) from error
            if written < _RECORD:
                raise StoreError(f"cannot write {self.path}: No space left on device")
            self._end += _RECORD

    def roll_up(self) -> None:
        """Let two records become one in the older three quarters of the log; may run beside `append`.

        Raises:
            StoreError: It cannot be written; the log stays as it was.
        """
        end = self._end
        header = replace(self._header, generation=self._header.generation + 1)
        older = (end - HEADER_BYTES) // _RECORD * 3 // 8 * 2
        try:
            with ExitStack() as locked, atomic_write(self.path) as stream:
                stream.write(_encode(header))
                for chunk in self._chunks(older):
                    stream.write(_with_checks(roll_up(chunk)))
                self._copy(HEADER_BYTES + older * _RECORD, end, stream)
                locked.enter_context(self._lock)  # until the new file has the name of the old one
                self._copy(end, self._end, stream)
                stream.flush()
                old, self._descriptor = self._descriptor, os.dup(stream.fileno())
                self._end, self._header = stream.tell(), header
                if old is not None:
                    os.close(old)
        except OSError as error:
            raise self._error(error) from error

    def close(self) -> None:
        """Close the file; nothing has to be flushed."""
        with self._lock:
            if self._descriptor is not None:
                os.close(self._descriptor)
                self._descriptor = None

    def _chunks(self, records: int) -> Iterator[Records]:
        for begin in range(0, records, _CHUNK):
            count = min(_CHUNK, records - begin)
            yield np.frombuffer(self._read(HEADER_BYTES + begin * _RECORD, count * _RECORD), STEP_DTYPE)

    def _copy(self, begin: int, end: int, stream: BinaryIO) -> None:
        for place in range(begin, end, _CHUNK * _RECORD):
            stream.write(self._read(place, min(_CHUNK * _RECORD, end - place)))

    def _read(self, begin: int, size: int) -> bytes:
        if self._descriptor is None:
            raise StoreError(f"{self.path} is closed")
        data = os.pread(self._descriptor, size, begin)
        if len(data) < size:
            raise StoreError(f"{self.path} has become shorter: another program has changed it")
        return data

    def _error(self, error: OSError) -> StoreError:
        return StoreError(f"cannot write {self.path}: {error.strerror or error}")


def _encode(header: StepLogHeader) -> bytes:
    return msgspec.json.encode(header).ljust(HEADER_BYTES - 1) + b"\n"


def _with_checks(records: Records) -> bytes:
    """Return the bytes of records, with the check of each."""
    data = bytearray(records.tobytes())
    view = memoryview(data)
    for begin in range(0, len(data), _RECORD):
        view[begin : begin + 4] = zlib.crc32(view[begin + 4 : begin + _RECORD]).to_bytes(4, "little")
    return bytes(data)
