"""The tables of what memory is used for, at the highest peak of a run."""

from typing import NamedTuple

from perfkit.report.content.document import Cell, Column, Table
from perfkit.report.content.memory_snapshot import stack_text
from perfkit.report.content.run_tables import rank_label
from perfkit.schema.per_rank.memory import MEMORY_CATEGORIES, MEMORY_WORDS, MemoryBytes, MemoryCategory, MemoryHolder
from perfkit.schema.rank import MemoryUse, RankReport
from perfkit.schema.run import RunReport
from perfkit.util.formatting import MISSING, escape_unprintable, format_percent, size

_HOST = "CPU"
_FROM_START = "torch counts the CPU's memory from the start of the recording"


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


def by_category(run: RunReport) -> Table | None:
    """Return what the memory is used for at the highest peak; None if unknown."""
    found = highest_use(run)
    if found is None:
        return None
    total, largest = found.use.peak.allocated_bytes, found.use.largest or found.at_peak
    rows = [
        (
            Cell(MEMORY_WORDS[name]),
            Cell(size(getattr(found.at_peak, name))),
            Cell(format_percent(getattr(found.at_peak, name) / total if total else None)),
            Cell(size(most)),
        )
        for name, most in sorted(_by_bytes(largest), key=lambda pair: -getattr(found.at_peak, pair[0]))
    ]
    besides = [
        (Cell(MEMORY_WORDS[name], "not counted", "faint"), Cell(size(held)), Cell(MISSING), Cell(size(held)))
        for name, held in _by_bytes(found.use.not_counted or MemoryBytes())
    ]
    return Table(
        f"Memory at the peak by category ({found.name})",
        (Column("category", "words"), Column("bytes"), Column("% of peak"), Column("most in the step")),
        rows + besides,
        _remark(found.use),
    )


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


def largest(run: RunReport, top: int) -> Table | None:
    """Return who allocated the memory at the highest peak, largest first; None if unknown."""
    found = highest_use(run)
    if found is None or not found.use.holders:
        return None
    holders, total = found.use.holders, found.use.peak.allocated_bytes
    has_modules = any(holder.module for holder in holders)
    left = holders[top:]
    return Table(
        f"Allocations at the peak by origin ({found.name})",
        (
            Column("allocated by", "name"),
            Column("in", "name"),
            *([Column("module", "name")] if has_modules else []),
            Column("category", "words"),
            Column("count"),
            Column("bytes"),
            Column("% of peak"),
        ),
        [_holder_row(holder, total, has_modules) for holder in holders[:top]],
        f"{len(left)} more, {size(sum(holder.bytes for holder in left))}" if left else "",
    )


def largest_blocks(run: RunReport, top: int) -> Table | None:
    """Return the largest allocations at the highest peak, one by one; None if unknown."""
    found = highest_use(run)
    if found is None or not found.use.blocks:
        return None
    blocks = found.use.blocks[:top]
    has_modules, has_stacks = any(block.module for block in blocks), any(block.stack for block in blocks)
    held = found.at_peak.before
    remarks = [f"{size(held)} from before the recording are in no row"] if held > 0 else []
    remarks += [] if has_stacks else ["who allocated them: record with --with-stack (with_stack)"]
    return Table(
        f"Largest allocations at the peak ({found.name})",
        (
            Column("count"),
            Column("bytes each"),
            Column("category", "words"),
            Column("allocated by", "name"),
            *([Column("module", "name")] if has_modules else []),
            *([Column("at, innermost first", "words")] if has_stacks else []),
        ),
        [
            (
                Cell(f"{block.count:,}"),
                Cell(size(block.bytes)),
                Cell(MEMORY_WORDS[block.category]),
                _name(block.operator),
                *([_name(block.module)] if has_modules else []),
                *([Cell(stack_text(block.stack))] if has_stacks else []),
            )
            for block in blocks
        ],
        "; ".join(remarks),
    )


def _holder_row(holder: MemoryHolder, total: int, has_modules: bool) -> tuple[Cell, ...]:
    return (
        _name(holder.operator),
        _name(holder.context),
        *([_name(holder.module)] if has_modules else []),
        Cell(MEMORY_WORDS[holder.category]),
        Cell(f"{holder.count:,}"),
        Cell(size(holder.bytes)),
        Cell(format_percent(holder.bytes / total if total else None)),
    )


def _name(text: str | None) -> Cell:
    return Cell(MISSING if text is None else escape_unprintable(text))
