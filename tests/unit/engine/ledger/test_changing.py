"""What each step waits for on another rank is told as such; what a rank does in every step, or one alone, is not."""

import pytest
from msgspec.structs import replace

from perfkit.engine.ledger.code import changes_ranks
from perfkit.records.per_rank.idle import Cause
from tests.support.traces.idle_builders import STEPS, idle_rank, row


@pytest.mark.parametrize(
    ("counts", "cause", "changes"),
    [
        ((1, 1, 1, 1), "host_work", True),
        ((2, 1, 0, 1), "not_running", True),
        ((2, 0, 0, 0), "host_work", False),  # one rank alone
        ((STEPS, STEPS, STEPS, STEPS), "host_work", False),
        ((3, 1, 0, 0), "host_work", False),
        ((1, 0, 0, 0), "host_work", False),
        ((1, 0, 0, 1), "launch_bound", False),
        ((1, 1, 1, 1), "unknown", False),
    ],
)
def test_in_most_steps_on_one_of_several(counts: tuple[int, ...], cause: Cause, changes: bool) -> None:
    assert STEPS == 4
    collect = row(cause, "<built-in function collect>", 5)
    other = row(cause, "step", 9, count=4)
    ranks = [
        idle_rank(other, *([replace(collect, count=count)] if count else []), rank=number)
        for number, count in enumerate(counts)
    ]
    assert changes_ranks(cause, collect.detail, ranks) == changes
    assert not changes_ranks(cause, "step", ranks)
