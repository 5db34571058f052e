"""What `perfkit capture` prints at the end."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from perfkit.cli.recording.capture import _report
from perfkit.errors import CaptureError
from perfkit.records.manifest import CaptureRecord
from tests.support.manifests import make_manifest

ENDED = "the run ended after 1 of 3 steps"


@pytest.mark.parametrize(
    ("world_size", "problems", "others"),
    [(1, 1, ""), (2, 2, r" \(and 1 more rank\)"), (4, 2, r" \(and 3 more ranks\)")],
)
def test_an_incomplete_capture_names_a_rank_and_counts_the_others(world_size: int, problems: int, others: str) -> None:
    ranks = list(range(problems))
    record = CaptureRecord(first_step=4, steps=3, ranks=ranks, problems=dict.fromkeys(ranks, ENDED))
    with pytest.raises(CaptureError, match=f"is incomplete: rank 0: {ENDED}{others}$"):
        _report(Path("run"), replace(make_manifest("completed"), capture=record), list(range(world_size)))
