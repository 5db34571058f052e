"""Read and write the table of devices: perfkit's own, and a user's (`--device-table FILE`), which comes first.

::

    [[device]]
    name = "NVIDIA H200"                    # as torch reports it
    tflops = { bfloat16 = 989.5 }           # dense, by data type of matrix products
    bandwidth_gb_per_s = 4800               # the rest is optional
    memory_gb = 141
    threads = 8                             # of a CPU
    source = "datasheet"

`perfkit peaks -o FILE` writes such a row from measurements.
"""

import json
import math
import tomllib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import msgspec

from perfkit.base.atomic_write import atomic_write
from perfkit.base.formatting import escape_unprintable
from perfkit.base.regular_file import read_toml
from perfkit.base.validation import plain_message
from perfkit.errors import UsageError
from perfkit.records.roofline import DevicePeaks

DeviceTable = str | Path | Sequence[DevicePeaks] | None
"""Rows, or the file that contains them."""

_OPTION: Final = "--device-table"


def load_device_table(own: DeviceTable = None) -> tuple[DevicePeaks, ...]:
    """Return the user's rows, from their file if a path is given, followed by perfkit's.

    Raises:
        UsageError: The file cannot be read or is not TOML, or a row is invalid.
    """
    if own is None:
        return _builtin()
    rows = _decoded(read_toml(own, _OPTION), f"{_OPTION} {own}") if isinstance(own, str | Path) else tuple(own)
    for number, row in enumerate(rows, 1):
        where = f"{_OPTION} {own}: device {number}" if isinstance(own, str | Path) else f"device {number}"
        figures = {f"tflops.{dtype}": value for dtype, value in row.tflops.items()}
        figures |= {name: getattr(row, name) for name in ("bandwidth_gb_per_s", "memory_gb", "threads")}
        for name, value in figures.items():
            if value is not None and not (math.isfinite(value) and value > 0):
                raise UsageError(f"{where}: {name} is not a positive number: {value!r}")
        if not row.name:
            raise UsageError(f"{where}: name is empty")
    return (*rows, *_builtin())


@cache
def _builtin() -> tuple[DevicePeaks, ...]:
    text = files("perfkit.storage").joinpath("device_table.toml").read_text("utf-8")
    return _decoded(tomllib.loads(text), "device_table.toml")


def _decoded(table: dict[str, Any], where: str) -> tuple[DevicePeaks, ...]:
    rows = table.get("device")
    if not isinstance(rows, list) or not rows:
        raise UsageError(f"{where}: no device: each begins with a line [[device]]")
    if others := sorted(table.keys() - {"device"}):
        raise UsageError(f"{where}: {others[0]} is not part of a device: put it below a line [[device]]")
    return tuple(_converted(row, f"{where}: device {number}") for number, row in enumerate(rows, 1))


def _converted(row: object, where: str) -> DevicePeaks:
    try:
        return msgspec.convert(row, DevicePeaks)
    except msgspec.ValidationError as error:
        raise UsageError(f"{where}: {plain_message(str(error))}") from error


def write_device_row(path: Path, row: DevicePeaks) -> None:
    """Create or replace `path` with a table of one device.

    Raises:
        StoreError: The file cannot be written.
    """
    with atomic_write(path) as stream:
        stream.write(device_row_text(row).encode())


def device_row_text(row: DevicePeaks) -> str:
    tflops = ", ".join(f"{dtype} = {value!r}" for dtype, value in row.tflops.items())
    figures = {name: getattr(row, name) for name in ("bandwidth_gb_per_s", "memory_gb", "threads")}
    return "".join(
        (
            "[[device]]\n",
            f"name = {_quoted(row.name)}\n",
            f"tflops = {{ {tflops} }}\n",
            *(f"{name} = {value!r}\n" for name, value in figures.items() if value is not None),
            f"source = {_quoted(row.source)}\n",
        )
    )


def _quoted(text: str) -> str:
    """Return a text as a basic string of TOML, which has the escapes of JSON."""
    return json.dumps(escape_unprintable(text))
