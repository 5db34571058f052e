"""Writes one rank's trace of one cycle: plain JSON from torch, checked, split into lanes, compressed, then renamed.

torch's own `.json.gz` export takes 12 to 17 times as long as its `.json`, and neither reports a full disk.
"""

import logging
import re
import struct
import zlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

from torch.profiler import profile

from perfkit.base.atomic_write import atomic_write, private_folder
from perfkit.errors import StoreError
from perfkit.record.messages import one_line
from perfkit.record.recording.lane_rewriter import Edit, apply_edits, find_edits
from perfkit.record.recording.light_trace import write_light
from perfkit.trace.module_names import MODULES_KEY, ModuleNames, encode_modules

_LOG: Final = logging.getLogger(__name__)

_GZIP_LEVEL: Final = 3
_SLICE_BYTES: Final = 1 << 20
_GZIP: Final = 16 + zlib.MAX_WBITS
_EVENTS: Final = b'"traceEvents"'
_FOOTER: Final = re.compile(rb'\]\s*,\s*"traceName":.*\}\s*\Z', re.DOTALL)
"""What torch writes after the last event: in a truncated file, any other `}` at the end may be that of an event."""
_FOOTER_BYTES: Final = 1 << 14  # it contains the trace's path
_ROWS: Final = 100
MOST_TABLE_BYTES: Final = 32_000_000
"""Size of a trace's text above which it gets no table of operators: torch makes it from one Python object per event,
which takes 0.3 s and 12 MB of memory for each MB of text, while all ranks wait."""


def write_trace(profiler: profile, target: Path, modules: ModuleNames | None = None, *, light: bool = False) -> int:
    """Write the trace of a stopped profiler to `target` (`.json.gz`), a `light` one without operators.

    Returns:
        The size of its text before compression, in bytes.

    Raises:
        StoreError: The trace is incomplete, as on a full disk.
    """
    try:
        with private_folder(target) as folder:
            plain = folder / target.name.removesuffix(".gz")
            profiler.export_chrome_trace(str(plain))
            if not plain.is_file():
                raise StoreError(f"torch wrote no trace into {target.parent}: {_HINT}")
            if light:
                whole, plain = plain, plain.with_suffix(".light")
                write_light(whole, plain)
                whole.unlink()
            edits = [*_header_edits(plain, modules), *_lane_edits(plain)]
            with atomic_write(target) as packed:
                compress(plain, packed, edits)
            return plain.stat().st_size
    except OSError as error:
        raise StoreError(f"cannot write into {target.parent}: {error.strerror or error}") from error


def _header_edits(plain: Path, modules: ModuleNames | None) -> list[Edit]:
    """Return the edit that adds the names of modules to the header; torch takes no metadata once it has stopped."""
    if not modules:
        return []
    with plain.open("rb") as stream:
        opens = stream.read(_FOOTER_BYTES).find(b"{")
    header = b'\n  "%s": %s,' % (MODULES_KEY.encode(), encode_modules(modules))
    return [Edit(opens + 1, 0, header)] if opens >= 0 else []


def _lane_edits(plain: Path) -> list[Edit]:
    """Return the edits that move crossing slices to lanes; none if that fails: the trace matters more."""
    try:
        return find_edits(plain)
    except (MemoryError, ValueError, ArithmeticError) as error:
        _LOG.info("crossing slices of %s stay on their threads: %s", plain, one_line(error))
        return []


_HINT: Final = "is the folder writable and the disk not full?"


def compress(source: Path, target: BinaryIO, edits: Sequence[Edit] = ()) -> None:
    """Compress a trace with gzip, in slices, and check both what is read and what was written.

    Args:
        edits: Changes to apply to the text, in order of position.

    Raises:
        StoreError: `source` is not a complete JSON object with `traceEvents`, or `target` is truncated.
        OSError: A file cannot be read or written.
    """
    packer = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP)
    check = _TraceCheck()
    with source.open("rb") as reader:
        for data in apply_edits(iter(partial(reader.read, _SLICE_BYTES), b""), edits):
            check.see(data)
            target.write(packer.compress(data))
        target.write(packer.flush())
    if not check.whole:
        raise StoreError(f"torch wrote {check.bytes} bytes to {source} that are not a complete trace: {_HINT}")
    target.flush()
    target.seek(-8, 2)
    if struct.unpack("<II", target.read()) != (check.crc, check.bytes & 0xFFFFFFFF):
        raise StoreError(f"the trace of {source} was not written completely: {_HINT}")


class _TraceCheck:
    """Checks, slice by slice, that a trace is one complete JSON object with `traceEvents`."""

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

    It is left out where torch cannot make it: with stacks, torch keeps pointers to the names of functions, and those of
    code that was made and dropped while the program ran (a first import of a compiler does so) are memory of others.
    """
    try:
        averages = profiler.key_averages(group_by_input_shape=by_shape)
    except UnicodeDecodeError as error:
        _LOG.info("%s is not written: torch cannot read the names of functions that are gone (%s)", target, error)
        return
    order = "self_cpu_time_total"
    if any(getattr(row, "self_device_time_total", 0) for row in averages):
        order = "self_device_time_total"
    table = averages.table(sort_by=order, row_limit=_ROWS)
    with atomic_write(target) as stream:
        stream.write(table.encode())
