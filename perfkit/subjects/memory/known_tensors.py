"""Blocks that hold parameters, gradients and optimizer state, as the run itself noted them."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from perfkit.records.per_rank.memory import MEMORY_CATEGORIES, MemoryCategory
from perfkit.records.trace_header import RecordedTensors
from perfkit.subjects.memory.blocks import NEVER_NS, Blocks
from perfkit.trace.events import HOST
from perfkit.trace.intervals import Ints

UNDECIDED: Final = -1
_NOTED: Final[tuple[MemoryCategory, ...]] = ("parameters", "gradients", "optimizer_state")


class KnownTensors(NamedTuple):
    """What the run noted of one device."""

    category: Ints
    """Category of each block, as an index into `MEMORY_CATEGORIES`; `UNDECIDED` if it was not noted; shape (b,)."""
    older: dict[int, int]
    """Bytes by category of what was allocated before the first record and not released since."""
    noted_ns: list[int]
    """When the run noted something, in order."""
    state_noted_ns: int
    """When it first noted optimizer state; `NEVER_NS` if it did not."""


def of_device(tensors: Sequence[RecordedTensors] | None, kind: int, number: int) -> list[RecordedTensors]:
    """Return the records about one device, in order of time."""
    device = -1 if kind == HOST else max(number, 0)
    return sorted((record for record in tensors or () if record.device == device), key=lambda record: record.ns)


def find_known(blocks: Blocks, records: Sequence[RecordedTensors]) -> KnownTensors:
    """Look up each noted address among the blocks that were allocated when it was noted."""
    category = np.full(len(blocks.address), UNDECIDED, np.int64)
    at_address = _by_address(blocks, records)
    older: dict[int, tuple[int, int]] = {}
    for ns, address, size, code in _noted(records):
        begins, places = at_address.get(address, ([], []))
        last = bisect_right(begins, ns) - 1
        if last >= 0 and blocks.end_ns[places[last]] > ns:
            category[places[last]] = code
        elif not begins or begins[0] > ns:
            older.setdefault(address, (code, size))
    total: dict[int, int] = defaultdict(int)
    for code, size in older.values():
        total[code] += size
    state_ns = next((record.ns for record in records if record.optimizer_state), NEVER_NS)
    return KnownTensors(category, dict(total), [record.ns for record in records], state_ns)


def _noted(records: Sequence[RecordedTensors]) -> Iterator[tuple[int, int, int, int]]:
    """Yield time, address, bytes and category of everything that was noted."""
    for record in records:
        for name in _NOTED:
            code = MEMORY_CATEGORIES.index(name)
            yield from ((record.ns, address, size, code) for address, size in getattr(record, name))


def _by_address(blocks: Blocks, records: Sequence[RecordedTensors]) -> dict[int, tuple[list[int], list[int]]]:
    """Return, for each noted address, when blocks at it were allocated, in order, and their places."""
    wanted = np.fromiter({address for _, address, _, _ in _noted(records)}, np.int64)
    found: dict[int, tuple[list[int], list[int]]] = {}
    chosen = np.flatnonzero(np.isin(blocks.address, wanted))
    chosen = chosen[np.argsort(blocks.begin_ns[chosen], kind="stable")]
    columns = (blocks.address[chosen].tolist(), blocks.begin_ns[chosen].tolist(), chosen.tolist())
    for address, begin_ns, place in zip(*columns, strict=True):
        begins, places = found.setdefault(address, ([], []))
        begins.append(begin_ns)
        places.append(place)
    return found
