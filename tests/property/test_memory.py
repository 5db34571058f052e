"""Peaks of allocated memory against the definition, on any order of records and steps."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import perfkit
from perfkit.records.rank import MemoryUse
from tests.support.traces.trace_builder import TraceBuilder

Record = tuple[int, int, int]
"""Time, total, change."""

RECORDS = st.lists(st.tuples(st.integers(-20, 140), st.integers(0, 9), st.integers(-9, 9)), max_size=30)
STARTS = st.lists(st.integers(0, 90), min_size=1, max_size=5, unique=True).map(sorted)


def analysed(records: list[Record], starts: list[int], folder: Path) -> list[MemoryUse]:
    builder = TraceBuilder().op("aten::mm", 0, 1)
    for number, (start, end) in enumerate(zip(starts, [*starts[1:], 120], strict=True)):
        builder.step(number, start, end - start)
    for record in records:
        builder.memory(*record)
    (run,) = perfkit.analyze(builder.write(folder / "rank0.json"), cache=False).runs
    return run.ranks[0].memory


def level_before(records: list[Record], instant: int) -> int | None:
    """Return the total of the last record before an instant; before all records, the first total minus its change."""
    earlier = [total for at, total, _ in records if at < instant]
    if earlier or not records:
        return earlier[-1] if earlier else None
    before = records[0][1] - records[0][2]
    return before if before >= 0 else None


@given(records=RECORDS, starts=STARTS)
def test_a_peak_is_the_most_of_what_a_step_begins_with_and_what_is_recorded_in_it(
    records: list[Record], starts: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    found = analysed(records, starts, tmp_path_factory.getbasetemp())
    ordered = sorted(records, key=lambda record: record[0])  # of the same time as they stand in the file
    expected = []
    for number, (start, end) in enumerate(zip(starts, [*starts[1:], 120], strict=True)):
        levels = [(0, level_before(ordered, start))]
        levels += [(1000 * (at - start), total) for at, total, _ in ordered if start <= at < end]
        known = [(at, level) for at, level in levels if level is not None]
        if known:
            at_ns, most = max(known, key=lambda pair: pair[1])
            expected.append((number, most, at_ns))
    peaks = [(peak.step, peak.allocated_bytes, peak.at_ns) for use in found for peak in use.steps]
    assert peaks == expected
    for use in found:
        assert use.peak in use.steps
        assert use.peak.allocated_bytes == max(use.curve.allocated_bytes) == max(most for _, most, _ in expected)
        assert use.peak.at_ns in use.curve.at_ns
