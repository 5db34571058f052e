"""The tables of memory: each rank's peak, what it is used for at the highest, and a snapshot."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from perfkit.base.formatting import MISSING, duration, escape_unprintable, format_percent, size
from perfkit.python_functions import callers
from perfkit.records.per_rank.memory import (
    MEMORY_CATEGORIES,
    MEMORY_WORDS,
    DeviceSnapshot,
    MemoryBytes,
    MemoryCategory,
    MemoryHolder,
    MemorySnapshot,
    SnapshotHolder,
)
from perfkit.records.rank import MemoryPeak, MemoryUse, RankReport
from perfkit.records.report import Report
from perfkit.records.run import RunReport
from perfkit.tables.labels import LONG, MAX_RANKS, counted, rank_label, step_label
from perfkit.tables.specification import (
    RUN,
    Cell,
    Field,
    Listing,
    Row,
    Table,
    data,
    data_of,
    joined,
    make_table,
    name,
    number,
    words,
)

_HOST: Final = "CPU"
_FROM_START: Final = "torch counts the CPU's memory from the start of the recording"
_MOST_CALLERS: Final = 2
"""Of the Python stack of a block that a table shows: more fill lines of a narrow column."""


def tables(run: RunReport, top: int) -> Iterator[Table | None]:
    """Yield the tables of memory; None where it was not recorded."""
    yield _peaks(run)
    if found := highest_use(run):
        yield _by_category(found)
        yield _holders(found, top)
        yield _blocks(found, top)
    if run.memory_snapshot:
        yield from _snapshot(run.memory_snapshot, top)


class _Use(NamedTuple):
    """A rank's device."""

    rank: RankReport
    use: MemoryUse


def _peaks(run: RunReport) -> Table | None:
    """Return the peak allocated memory of each rank's devices; None if it was not recorded."""
    uses = [_Use(rank, use) for rank in run.ranks for use in rank.memory]
    # The highest peaks are nearest to the limit; the lowest one shows the spread.
    by_peak = sorted(range(len(uses)), key=lambda i: -uses[i].use.peak.allocated_bytes)
    chosen = by_peak if len(uses) <= MAX_RANKS else [*by_peak[: MAX_RANKS - 1], by_peak[-1]]
    left = len(uses) - len(chosen)
    columns = (
        number("rank", lambda row: rank_label(row.rank.rank)),
        words("device", lambda row: row.use.device),
        number("peak", lambda row: row.use.peak.allocated_bytes, size, note=_of_limit),
        number("reserved", lambda row: row.use.peak.reserved_bytes, size),
        number("step", lambda row: step_label(row.use.peak.step)),
        number("after", lambda row: row.use.peak.at_ns, duration),
        name("phase", lambda row: row.use.phase or MISSING),
        words("category", lambda row: LONG[row.use.category]),
    )
    remark = f"{left} more; shown: the {MAX_RANKS - 1} highest peaks and the lowest" if left else ""
    return make_table("Memory (peak allocated in a step, and when)", [uses[i] for i in sorted(chosen)], columns, remark)


def _of_limit(row: _Use) -> str:
    limit = row.use.limit_bytes
    return f"{format_percent(row.use.peak.allocated_bytes / limit)} of {size(limit)}" if limit else ""


class HighestUse(NamedTuple):
    """A device, and what its memory is used for at its peak."""

    rank: RankReport
    use: MemoryUse
    at_peak: MemoryBytes

    @property
    def name(self) -> str:
        """Rank and device."""
        return f"rank {rank_label(self.rank.rank)}, {self.use.device}"


def highest_use(run: RunReport) -> HighestUse | None:
    """Return the device with the highest peak, an accelerator if there are any; None if no categories are known."""
    uses = [HighestUse(rank, use, use.at_peak) for rank in run.ranks for use in rank.memory if use.at_peak is not None]
    on_devices = [found for found in uses if found.use.device != _HOST]
    return max(on_devices or uses, key=lambda found: found.use.peak.allocated_bytes, default=None)


class _Held(NamedTuple):
    """What a category of memory takes at the peak."""

    category: MemoryCategory
    at_peak_bytes: int
    most_bytes: int
    is_counted: bool = True


def _by_category(found: HighestUse) -> Table | None:
    """Return what the memory is used for at the highest peak."""
    total, largest = found.use.peak.allocated_bytes, found.use.largest or found.at_peak
    held = [_Held(category, getattr(found.at_peak, category), most) for category, most in _by_bytes(largest)]
    rows = sorted(held, key=lambda row: -row.at_peak_bytes)
    before = _by_bytes(found.use.not_counted or MemoryBytes())
    rows += [_Held(category, amount, amount, is_counted=False) for category, amount in before]
    columns = (
        Field("category", _category, "words"),
        number("bytes", lambda row: row.at_peak_bytes, size),
        number(
            "% of peak", lambda row: row.at_peak_bytes / total if total and row.is_counted else None, format_percent
        ),
        number("most in the step", lambda row: row.most_bytes, size),
    )
    return make_table(f"Memory at the peak by category ({found.name})", rows, columns, _remark(found.use))


def _category(row: _Held) -> Cell:
    word = MEMORY_WORDS[row.category]
    return Cell(word) if row.is_counted else Cell(word, "not counted", "faint")


def _by_bytes(sizes: MemoryBytes) -> list[tuple[MemoryCategory, int]]:
    """Return the categories that are not empty, largest first."""
    known = [(name, int(getattr(sizes, name))) for name in MEMORY_CATEGORIES]
    return sorted((pair for pair in known if pair[1]), key=lambda pair: -pair[1])


def _remark(use: MemoryUse) -> str:
    """Return what the table does not show, and what is inferred."""
    sentences = []
    if use.not_counted is not None:
        sentences.append(f"not counted: allocated before; {_FROM_START}")
    elif use.device == _HOST:
        sentences.append(f"{_FROM_START}: what was allocated before is missing")
    if not use.tensors_noted:
        sentences.append(
            "gradients and optimizer state are those that backward and the optimizer allocated and kept; parameters "
            "are not known: traces that perfkit records with profile_memory contain which memory they are in"
        )
    return ". ".join(sentences)


def _holders(found: HighestUse, top: int) -> Table | None:
    """Return who allocated the memory at the highest peak, largest first; None if unknown."""
    holders, total = found.use.holders, found.use.peak.allocated_bytes
    columns = (
        name("allocated by", lambda row: row.operator),
        name("in", lambda row: row.context),
        *([_MODULE] if any(holder.module for holder in holders) else []),
        words("category", lambda row: MEMORY_WORDS[row.category]),
        number("count", lambda row: row.count, counted),
        number("bytes", lambda row: row.bytes, size),
        number("% of peak", lambda row: row.bytes / total if total else None, format_percent),
    )
    title = f"Allocations at the peak by origin ({found.name})"
    return make_table(title, holders, columns, _left(holders[top:]), top=top)


def _left(rows: Sequence[MemoryHolder | SnapshotHolder]) -> str:
    return f"{len(rows)} more, {size(sum(row.bytes for row in rows))}" if rows else ""


def _blocks(found: HighestUse, top: int) -> Table | None:
    """Return the largest allocations at the highest peak, one by one; None if unknown."""
    blocks, held = found.use.blocks[:top], found.at_peak.before
    has_stacks = any(block.stack for block in blocks)
    columns = (
        number("count", lambda block: block.count, counted),
        number("bytes each", lambda block: block.bytes, size),
        words("category", lambda block: MEMORY_WORDS[block.category]),
        name("allocated by", lambda block: block.operator),
        *([_MODULE] if any(block.module for block in blocks) else []),
        *([words("at, innermost first", lambda block: _stack(block.stack))] if has_stacks else []),
    )
    remark = joined(
        f"{size(held)} from before the recording are in no row" if held > 0 else "",
        "" if has_stacks else "who allocated them: record with --with-stack (with_stack)",
    )
    return make_table(f"Largest allocations at the peak ({found.name})", blocks, columns, remark)


_MODULE: Final = name("module", lambda row: row.module)


def _stack(stack: Sequence[str]) -> str:
    """Return the innermost places of a stack in the program, each with the file and the line."""
    return " < ".join(callers(stack, _MOST_CALLERS)) or MISSING


# ---- a snapshot ----------------------------------------------------------------------------------------------------

_FIGURES: Final = {
    "allocated at the peak": "peak_bytes",
    "reserved at the peak": "reserved_at_peak_bytes",
    "allocated at the end": "allocated_bytes",
    "reserved at the end": "reserved_bytes",
    "rounded up": "rounding_bytes",
    "fragmented": "fragmented_bytes",
    "largest free block": "largest_free_bytes",
    "unused segments": "unused_bytes",
}


def _snapshot(snapshot: MemorySnapshot, top: int) -> Iterator[Table | None]:
    """Yield the tables of a snapshot: each device, and who holds its memory."""
    columns = (words("", str), *map(_device, snapshot.devices))
    remark = ". ".join(_snapshot_remarks(snapshot))
    yield make_table(f"Memory snapshot {escape_unprintable(snapshot.file)}", list(_FIGURES), columns, remark)
    for device in snapshot.devices:
        at, whose = ("at the end" if device.peak_bytes is None else "at the peak"), _whose(snapshot, device)
        title = f"Memory {at} by who allocated it (snapshot, {whose})"
        yield make_table(title, device.holders, _of_holders(device), _left(device.holders[top:]), top=top)
        yield make_table(f"Largest tensors {at} (snapshot, {whose})", device.largest, _LARGEST, top=top)


def _device(device: DeviceSnapshot) -> Field:
    return number(f"device {device.device}", lambda label: getattr(device, _FIGURES[label]), size)


def _snapshot_remarks(snapshot: MemorySnapshot) -> list[str]:
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


def _of_holders(device: DeviceSnapshot) -> tuple[Field, ...]:
    total = sum(row.bytes for row in device.holders)
    return (
        name("function", lambda row: row.function or "(no Python function recorded)"),
        name("in", lambda row: row.callee or MISSING),
        number("count", lambda row: row.count, counted),
        number("bytes", lambda row: row.bytes, size),
        number("%", lambda row: row.bytes / total if total else None, format_percent),
        number("largest", lambda row: row.largest_bytes, size),
    )


_LARGEST: Final = (
    number("count", lambda row: row.count, counted),
    number("bytes each", lambda row: row.bytes, size),
    words("allocated at, innermost first", lambda row: _stack(row.stack)),
)


def _whose(snapshot: MemorySnapshot, device: DeviceSnapshot) -> str:
    rank = "" if snapshot.rank is None else f"rank {snapshot.rank}, "
    return f"{rank}device {device.device}"


# ---- files ---------------------------------------------------------------------------------------------------------


def _rows(list_name: str) -> Callable[[Report], Iterator[Row]]:
    """Return a function that yields what is in a list of each device, which `Row.rank` has too."""
    return lambda report: (
        Row(run, _Use(rank, use), one)
        for run in report.runs
        for rank in run.ranks
        for use in rank.memory
        for one in getattr(use, list_name)
    )


_DEVICE: Final = (
    RUN,
    data("rank", int | None, lambda row: row.rank.rank.rank),
    data("device", str, lambda row: row.rank.use.device),
)
LISTINGS: Final = {
    "memory": Listing(
        _rows("steps"),
        (*_DEVICE, *data_of(MemoryPeak), data("limit_bytes", int | None, lambda row: row.rank.use.limit_bytes)),
    ),
    "memory_holders": Listing(_rows("holders"), (*_DEVICE, *data_of(MemoryHolder, bytes=int | None))),
}
