"""Collect what a trace records of kernels and copies: grid, block, occupancy, bytes."""

import math
from typing import Any, Final

import msgspec
import numpy as np

from perfkit.trace.arguments.operators import SEPARATOR, Texts, numbers
from perfkit.trace.event_decoding import RawArgs, parse_int
from perfkit.trace.events import DeviceArgsColumns, KernelLaunch
from perfkit.trace.growable_array import GrowableArray
from perfkit.trace.intervals import Ints

_AXES: Final = 3
_MOST_PERCENT: Final = 1000


class DeviceArgsBuilder:
    """Collects the arguments of a trace's kernels and copies."""

    def __init__(self) -> None:
        self._kernel_row, self._launch = GrowableArray(np.int64), GrowableArray(np.int32)
        self._copy_row, self._bytes = GrowableArray(np.int64), GrowableArray(np.int64)
        self._launches = Texts()

    def add_kernels(self, rows: Ints, args: list[RawArgs]) -> None:
        """Add the arguments of kernels, whose rows must ascend."""
        texts = map(SEPARATOR.join, [(one.grid, one.block, one.occupancy) for one in args])
        self._kernel_row.extend(rows)
        self._launch.extend(self._launches.column(texts, len(args)))

    def add_copies(self, rows: Ints, args: list[RawArgs]) -> None:
        """Add the arguments of copies, whose rows must ascend."""
        self._copy_row.extend(rows)
        self._bytes.extend(numbers([one.bytes_ for one in args]))

    def build(self) -> DeviceArgsColumns:
        """Return the columns; nothing can be added afterwards."""
        return DeviceArgsColumns(
            kernel_row=self._kernel_row.build(),
            launch=self._launch.build(),
            copy_row=self._copy_row.build(),
            bytes=self._bytes.build(),
            launches=tuple(map(_launch, self._launches)),
        )


def _launch(text: bytes) -> KernelLaunch:
    grid, block, occupancy = (_decoded(part) for part in text.split(SEPARATOR, 2))
    return KernelLaunch(grid=_extent(grid), block=_extent(block), occupancy_percent=_percent(occupancy))


def _decoded(text: bytes) -> Any:
    """Decode a value; None if it is missing or damaged."""
    try:
        return msgspec.json.decode(text) if text else None
    except (ValueError, RecursionError):
        return None


def _extent(sizes: Any) -> tuple[int, int, int] | None:
    if not isinstance(sizes, list) or len(sizes) != _AXES:
        return None
    x, y, z = (parse_int(size, -1) for size in sizes)
    return (x, y, z) if min(x, y, z) >= 0 else None


def _percent(value: Any) -> float | None:
    is_number = type(value) in (int, float) and math.isfinite(value) and 0 <= value <= _MOST_PERCENT
    return float(value) if is_number else None
