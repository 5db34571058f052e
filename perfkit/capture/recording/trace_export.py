"""Write one rank's trace of one cycle: plain JSON from torch, checked, given lanes, compressed, renamed when whole.

torch's own `.json.gz` export takes 12 to 17 times as long as its `.json`, and neither says so when the disk is full.
"""

import re
import struct
import zlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from torch.profiler import profile

from perfkit.capture.recording.lane_rewriter import Edit, apply_edits, find_edits
from perfkit.errors import StoreError
from perfkit.util.atomic_write import atomic_write

_LEVEL: Final = 3
_SLICE_BYTES: Final = 1 << 20
_GZIP: Final = 16 + zlib.MAX_WBITS
_EVENTS: Final = b'"traceEvents"'
_FOOTER: Final = re.compile(rb'\]\s*,\s*"traceName":.*\}\s*\Z', re.DOTALL)
"""What torch writes after the last event: any other `}` at the end may be that of an event, in a file cut short."""
_FOOTER_BYTES: Final = 1 << 14  # the trace's path is in it
_ROWS: Final = 100


def write_trace(profiler: profile, target: Path) -> None:
    """Write the trace of a stopped profiler to `target` (`.json.gz`).

    Raises:
        StoreError: The trace is not whole, as on a full disk.
    """
    plain = target.with_name(f".{target.name.removesuffix('.gz')}")
    try:
        profiler.export_chrome_trace(str(plain))
        if not plain.is_file():
            raise StoreError(f"torch wrote no trace into {target.parent}: {_HINT}")
        edits = _edits(plain)
        with atomic_write(target) as packed:
            compress(plain, packed, edits)
    finally:
        plain.unlink(missing_ok=True)
        plain.with_name(f"{plain.name}.tmp").unlink(missing_ok=True)  # torch's own, on a full disk


def _edits(plain: Path) -> list[Edit]:
    """Return what gives crossing slices lanes of their own; nothing where that fails: the trace is worth more."""
    try:
        return find_edits(plain)
    except (MemoryError, ValueError, ArithmeticError):
        return []


_HINT: Final = "is the folder writable and the disk not full?"


def compress(source: Path, target: Path, edits: Sequence[Edit] = ()) -> None:
    """Compress a trace with gzip, in slices, and check both what is read and what was written.

    Args:
        source: what torch wrote.
        target: the file to write.
        edits: what to change on the way, in order.

    Raises:
        StoreError: `source` is no whole JSON object with `traceEvents`, or `target` is cut short.
        OSError: As reading and writing raise it.
    """
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    check = _TraceCheck()
    with source.open("rb") as reader, target.open("wb") as writer:
        for data in apply_edits(iter(partial(reader.read, _SLICE_BYTES), b""), edits):
            check.see(data)
            writer.write(packer.compress(data))
        writer.write(packer.flush())
    if not check.whole:
        raise StoreError(f"torch wrote {check.bytes} bytes to {source} that are no trace: {_HINT}")
    with target.open("rb") as reader:
        reader.seek(-8, 2)
        trailer = struct.unpack("<II", reader.read())
    if trailer != (check.crc, check.bytes & 0xFFFFFFFF):
        raise StoreError(f"{target} was not written completely: {_HINT}")


class _TraceCheck:
    """Looks at a trace slice by slice: one JSON object that holds `traceEvents`."""

    def __init__(self) -> None:
        self.bytes = 0
        self.crc = 0
        self._first = b""
        self._last = b""
        self._has_events = False

    def see(self, data: bytes) -> None:
        self.bytes += len(data)
        self.crc = zlib.crc32(data, self.crc)
        self._first = self._first or data.lstrip()[:1]
        self._has_events = self._has_events or _EVENTS in self._last + data
        self._last = (self._last + data)[-_FOOTER_BYTES:]

    @property
    def whole(self) -> bool:
        return self._first == b"{" and self._has_events and _FOOTER.search(self._last) is not None


def write_key_averages(profiler: profile, target: Path, by_shape: bool) -> None:
    """Write torch's own table of operators as text, the most expensive first.

    Raises:
        StoreError: It cannot be written.
    """
    averages = profiler.key_averages(group_by_input_shape=by_shape)
    order = "self_cpu_time_total"
    if any(getattr(row, "self_device_time_total", 0) for row in averages):
        order = "self_device_time_total"
    table = averages.table(sort_by=order, row_limit=_ROWS)
    with atomic_write(target) as temporary:
        temporary.write_text(table, encoding="utf-8")
