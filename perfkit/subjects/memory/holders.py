"""What is allocated at a peak, summed by category and by who allocated it."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from perfkit.engine.steps.passes import Passes
from perfkit.records.per_rank.memory import MEMORY_CATEGORIES, MemoryHolder
from perfkit.records.per_rank.sharding import PASS_PHASES
from perfkit.subjects.memory.ledger import Ledger
from perfkit.subjects.memory.origins import find_origins
from perfkit.trace.events import RankTrace
from perfkit.trace.intervals import Ints

MOST_HOLDERS: Final = 100
"""Most rows that are listed."""
OTHERS: Final = "(others)"
_LONGEST_NAME: Final = 300


def tabulate_holders(
    trace: RankTrace, ledger: Ledger, passes: Passes, annotations: Ints, records: int
) -> list[MemoryHolder]:
    """Return what is allocated after `records` records, largest first."""
    places = ledger.live(records)
    blocks = ledger.blocks.where(places)
    origins = find_origins(trace.events, trace.frames, annotations, blocks)
    phase = [PASS_PHASES[passes.phase[k]] if k >= 0 else None for k in passes.of(blocks.begin_ns).tolist()]
    keys = zip(ledger.category[places].tolist(), *(map(_short, texts) for texts in origins), phase, strict=True)
    sizes: dict[tuple[int, str | None, str | None, str | None, str | None], list[int]] = defaultdict(list)
    for key, size in zip(keys, blocks.bytes.tolist(), strict=True):
        sizes[key].append(size)
    return _cut(
        MemoryHolder(
            category=MEMORY_CATEGORIES[category],
            operator=operator,
            context=context,
            module=module,
            phase=in_phase,
            count=len(own),
            bytes=sum(own),
            largest_bytes=max(own),
        )
        for (category, operator, context, module, in_phase), own in sizes.items()
    )


def _short(text: str | None) -> str | None:
    return text and text[:_LONGEST_NAME]


def _cut(rows: Iterable[MemoryHolder]) -> list[MemoryHolder]:
    """Return the largest rows, and one per category for all others, so that sums over rows stay exact."""
    ordered = sorted(rows, key=lambda row: (-row.bytes, row.category, row.operator or "", row.context or ""))
    others: dict[str, MemoryHolder] = {}
    for row in ordered[MOST_HOLDERS:]:
        known = others.get(row.category)
        others[row.category] = replace(
            row,
            operator=OTHERS,
            context=None,
            module=None,
            phase=None,
            count=row.count + (known.count if known else 0),
            bytes=row.bytes + (known.bytes if known else 0),
            largest_bytes=max(row.largest_bytes, known.largest_bytes if known else 0),
        )
    return ordered[:MOST_HOLDERS] + sorted(others.values(), key=lambda row: -row.bytes)
