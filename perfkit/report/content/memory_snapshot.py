"""The tables of a snapshot of memory."""

from collections.abc import Sequence
from typing import Final

from perfkit.python_functions import callers
from perfkit.report.content.document import Cell, Column, Table
from perfkit.schema.per_rank.memory import DeviceSnapshot, MemorySnapshot, SnapshotHolder
from perfkit.schema.run import RunReport
from perfkit.util.formatting import MISSING, escape_unprintable, format_percent, size

_MOST_CALLERS: Final = 2
"""Of the Python stack of a block that a table shows: more fill lines of a narrow column."""


def snapshot_tables(run: RunReport, top: int) -> list[Table]:
    """Return the tables of a run's snapshot: each device, and who holds its memory."""
    snapshot = run.memory_snapshot
    if snapshot is None:
        return []
    tables = [_devices(snapshot)]
    for device in snapshot.devices:
        tables += [_holders(snapshot, device, top), _largest(snapshot, device, top)]
    return [table for table in tables if table.rows]


def _devices(snapshot: MemorySnapshot) -> Table:
    rows: list[tuple[str, list[int | None]]] = [
        ("allocated at the peak", [device.peak_bytes for device in snapshot.devices]),
        ("reserved at the peak", [device.reserved_at_peak_bytes for device in snapshot.devices]),
        ("allocated at the end", [device.allocated_bytes for device in snapshot.devices]),
        ("reserved at the end", [device.reserved_bytes for device in snapshot.devices]),
        ("rounded up", [device.rounding_bytes for device in snapshot.devices]),
        ("fragmented", [device.fragmented_bytes for device in snapshot.devices]),
        ("largest free block", [device.largest_free_bytes for device in snapshot.devices]),
        ("unused segments", [device.unused_bytes for device in snapshot.devices]),
    ]
    return Table(
        f"Memory snapshot {escape_unprintable(snapshot.file)}",
        (Column("", "words"), *(Column(f"device {device.device}") for device in snapshot.devices)),
        [(Cell(name), *(Cell(MISSING if one is None else size(one)) for one in figures)) for name, figures in rows],
        ". ".join(_remarks(snapshot)),
    )


def _remarks(snapshot: MemorySnapshot) -> list[str]:
    found = ["peak: in the recorded history, sizes as asked for; fragmented: free within segments that are in use"]
    for device in snapshot.devices:
        if not device.records:
            found.append(f"device {device.device}: no history was recorded, so its peak is not known")
        elif device.peak_bytes is None:
            found.append(f"device {device.device}: the history does not fit the blocks, so the peak is not known")
        for failure in device.out_of_memory:
            free = (
                "" if failure.device_free_bytes is None else f", {size(failure.device_free_bytes)} free on the device"
            )
            found.append(
                f"device {device.device} out of memory: {size(failure.requested_bytes)} asked for by "
                f"{escape_unprintable(failure.function or 'an unknown function')} with "
                f"{size(failure.allocated_bytes)} allocated, {size(failure.reserved_bytes)} reserved{free}"
            )
    return found


def _holders(snapshot: MemorySnapshot, device: DeviceSnapshot, top: int) -> Table:
    left = device.holders[top:]
    total = sum(row.bytes for row in device.holders)
    return Table(
        f"Memory {_moment(device)} by who allocated it (snapshot, {_whose(snapshot, device)})",
        (
            Column("function", "name"),
            Column("in", "name"),
            Column("count"),
            Column("bytes"),
            Column("%"),
            Column("largest"),
        ),
        [_holder_row(row, total) for row in device.holders[:top]],
        f"{len(left)} more, {size(sum(row.bytes for row in left))}" if left else "",
    )


def _holder_row(row: SnapshotHolder, total: int) -> tuple[Cell, ...]:
    return (
        Cell(escape_unprintable(row.function) if row.function else "(no Python function recorded)"),
        Cell(escape_unprintable(row.callee) if row.callee else MISSING),
        Cell(f"{row.count:,}"),
        Cell(size(row.bytes)),
        Cell(format_percent(row.bytes / total if total else None)),
        Cell(size(row.largest_bytes)),
    )


def _largest(snapshot: MemorySnapshot, device: DeviceSnapshot, top: int) -> Table:
    return Table(
        f"Largest tensors {_moment(device)} (snapshot, {_whose(snapshot, device)})",
        (Column("count"), Column("bytes each"), Column("allocated at, innermost first", "words")),
        [(Cell(f"{row.count:,}"), Cell(size(row.bytes)), Cell(stack_text(row.stack))) for row in device.largest[:top]],
    )


def stack_text(stack: Sequence[str]) -> str:
    """Return the innermost places of a stack in the program, each with the file and the line."""
    return escape_unprintable(" < ".join(callers(stack, _MOST_CALLERS))) or MISSING


def _moment(device: DeviceSnapshot) -> str:
    return "at the end" if device.peak_bytes is None else "at the peak"


def _whose(snapshot: MemorySnapshot, device: DeviceSnapshot) -> str:
    rank = "" if snapshot.rank is None else f"rank {snapshot.rank}, "
    return f"{rank}device {device.device}"
