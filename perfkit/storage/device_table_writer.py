"""Write a row of the device table as TOML, in the form that `device_table_file` reads."""

import json
from pathlib import Path

from perfkit.schema.roofline.device_table import DevicePeaks
from perfkit.util.atomic_write import atomic_write
from perfkit.util.formatting import escape_unprintable


def write_device_row(path: Path, row: DevicePeaks) -> None:
    """Create or replace `path` with a table of one device.

    Raises:
        StoreError: The file cannot be written.
    """
    with atomic_write(path) as stream:
        stream.write(device_row_text(row).encode())


def device_row_text(row: DevicePeaks) -> str:
    """Return a row as TOML."""
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
