"""What a prediction is compared with."""

import pytest

from perfkit.records.rank import MemoryPeak
from perfkit.tools.plan.check import explained_bytes


@pytest.mark.parametrize(("unknown", "expected"), [(None, 1_000), (0, 1_000), (300, 700), (-300, 1_000)])
def test_memory_whose_release_was_not_recorded_is_not_measured(unknown: int | None, expected: int) -> None:
    peak = MemoryPeak(step=3, allocated_bytes=1_000, reserved_bytes=None, at_ns=0, unknown_bytes=unknown)
    assert explained_bytes(peak) == expected


def test_neither_is_memory_that_may_have_been_released_before_the_peak() -> None:
    peak = MemoryPeak(
        step=3, allocated_bytes=1_000, reserved_bytes=None, at_ns=0, unknown_bytes=100, unseen_release_bytes=250
    )
    assert explained_bytes(peak) == 650
