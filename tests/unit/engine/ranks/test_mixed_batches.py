"""Messages beside kernels that send to one rank and receive from another: nothing tells which pair is in them."""

import numpy as np
import pytest

from perfkit.engine.communication.collective_calls import COLUMNS, CollectiveCalls
from perfkit.engine.communication.collective_metadata import CollectiveKey
from perfkit.engine.ranks.matching import match


def message(operator: str, peer: int | None, group: str | None = "pp") -> CollectiveKey:
    return CollectiveKey(operator, group, None, None, "float32", peer=peer)


def calls(*kinds: CollectiveKey) -> CollectiveCalls:
    """A rank's messages, all in one step."""
    table = np.zeros((len(COLUMNS), len(kinds)), np.int64)
    table[COLUMNS.index("kind")] = np.arange(len(kinds))
    table[COLUMNS.index("sequence")] = -1
    table[COLUMNS.index("duration_ns")] = 10
    return CollectiveCalls(kinds=list(kinds), columns=bytearray(table), progress_ns=0)


@pytest.mark.parametrize(
    ("mixed_in", "pairs"),
    [
        ("pp", 0),
        (None, 0),  # a kernel of an unknown group may have a message of any
        ("cp", 1),
    ],
)
def test_a_message_that_may_be_in_a_mixed_batch_shifts_no_others(mixed_in: str | None, pairs: int) -> None:
    """Of two messages, rank 0 sends the second in a batch with others, and rank 1 gets the first in one."""
    mixed = message("send_recv", None, mixed_in)
    matched = match({0: calls(message("send", 1), mixed), 1: calls(mixed, message("recv", 0))}, 4)
    found = {
        int(number)
        for number, kind in zip(matched.collective, matched.kind, strict=True)
        if number >= 0 and matched.kinds[kind] != mixed
    }
    assert len(found) == pairs
