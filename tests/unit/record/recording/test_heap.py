"""Free memory goes back to the operating system."""

import sys
from pathlib import Path

import pytest

from perfkit.record.recording.cycle_recorder import give_back_free_memory


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_what_lies_free_below_a_block_that_stays_is_given_back() -> None:
    blocks = [bytearray(60_000) for _ in range(1000)]  # below the size that has a mapping of its own
    kept = blocks[-1]
    before = resident_bytes()
    del blocks
    give_back_free_memory()
    assert before - resident_bytes() > 40_000_000
    assert len(kept) == 60_000
