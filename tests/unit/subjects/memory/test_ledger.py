"""Blocks and levels on random records, complete or not, against a simulation record by record."""

from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from perfkit.records.per_rank.memory import MEMORY_CATEGORIES
from perfkit.subjects.memory.blocks import NOT_RECORDED, UNDECIDED, Blocks, KnownTensors, find_blocks, open_ledger
from perfkit.trace.events import AllocatorTimeline

Record = tuple[int, int, int, bool]
"""Address, bytes, time since the record before, whether the record is missing."""
RECORDS = st.lists(
    st.tuples(st.integers(-1, 6), st.integers(0, 9), st.integers(0, 2), st.booleans() | st.just(False)), max_size=40
)


def timeline_of(records: list[Record], before: int) -> AllocatorTimeline:
    """Toggle addresses: what is there is released, else allocated. Totals contain what is missing."""
    sizes: dict[int, int] = {}
    kept, total, now = [], before, 0
    for address, size, pause, missing in records:
        change = -sizes.pop(address) if address in sizes else size
        if change >= 0:
            sizes[address] = size
        total, now = total + change, now + pause
        if not missing:
            kept.append((now, total, 0, change, address, 1))
    columns = np.array(kept, np.int64).reshape(-1, 6).T
    time_ns, allocated, reserved, change_bytes, address_column, thread = columns
    return AllocatorTimeline(
        time_ns=time_ns,
        allocated_bytes=allocated,
        reserved_bytes=reserved,
        before_bytes=before,
        change_bytes=change_bytes,
        address=address_column,
        thread=thread.astype(np.int32),
    )


def simulated(timeline: AllocatorTimeline) -> list[tuple[int, int, int, int]]:
    """Return address, bytes, begin and end of each block."""
    live: dict[int, tuple[int, int]] = {}
    seen, found = set(), []
    for number, (change, address) in enumerate(
        zip(timeline.change_bytes.tolist(), timeline.address.tolist(), strict=True)
    ):
        if address < 0 or change == 0:
            continue
        if address in live and (change > 0 or change < 0):
            begin, size = live.pop(address)
            found.append((address, size, begin, number))
        elif change < 0 and address not in seen:
            found.append((address, -change, NOT_RECORDED, number))
        if change > 0:
            live[address] = number, change
        seen.add(address)
    ends = len(timeline.time_ns)
    return sorted([*found, *((address, size, begin, ends) for address, (begin, size) in live.items())])


def rows_of(blocks: Blocks | None) -> list[tuple[int, ...]]:
    if blocks is None:
        return []
    return sorted(zip(*(c.tolist() for c in (blocks.address, blocks.bytes, blocks.begin, blocks.end)), strict=True))


@given(RECORDS, st.integers(0, 100))
def test_blocks_are_those_of_a_simulation(records: list[Record], before: int) -> None:
    timeline = timeline_of(records, before)
    assert rows_of(find_blocks(timeline)) == simulated(timeline)


@given(RECORDS, st.integers(-1, 100), st.integers(0, 1), st.randoms(use_true_random=False), st.integers(0, 60))
def test_categories_add_up_to_the_total_at_every_record(
    records: list[Record], before: int, kind: int, random: Random, held: int
) -> None:
    timeline = timeline_of(records, before)
    blocks = find_blocks(timeline)
    if blocks is None:
        return
    category = np.array([random.randrange(9) for _ in blocks.bytes], np.int64)
    known = KnownTensors(np.full(len(category), UNDECIDED), {0: held}, [5], 5)
    ledger = open_ledger(timeline, kind, blocks, category, known)
    every = np.arange(len(timeline.time_ns) + 1)
    levels = ledger.levels(every)
    total = [before, *timeline.allocated_bytes.tolist()]
    assert np.sum([levels[name] for name in MEMORY_CATEGORIES], axis=0).tolist() == total
    for records_until in every.tolist():
        of_blocks = ledger.live(records_until)
        for code, name in enumerate(MEMORY_CATEGORIES[:8]):
            alive = sum(blocks.bytes[k] for k in of_blocks.tolist() if category[k] == code)
            older = (blocks.begin == NOT_RECORDED) & (blocks.end >= records_until) & (category == code)
            expected = alive + blocks.bytes[older].sum() + ledger.initial[code]
            assert levels[name][records_until] == expected
