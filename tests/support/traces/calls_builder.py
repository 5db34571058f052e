"""Collectives with known results: durations, delays and clocks of each rank."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.ranks.matching import MatchedCollectives, match
from perfkit.engine.communication.collective_calls import COLUMNS, CollectiveCalls
from perfkit.engine.communication.collective_metadata import CollectiveKey

EPOCH_NS = 1_700_000_000_000_000_000
ALL_REDUCE = CollectiveKey("all_reduce", "0", None, 4_000_000, "float32")


def make_calls(
    duration_ns: Sequence[int], ended_ns: Sequence[int], kind: CollectiveKey = ALL_REDUCE
) -> CollectiveCalls:
    """Return a rank's collectives, one per step, all fully exposed."""
    count = len(duration_ns)
    zeros = np.zeros(count, np.int64)
    columns = {
        "kind": zeros,
        "step": np.arange(count),
        "sequence": np.full(count, -1),
        "duration_ns": np.array(duration_ns),
        "exposed_ns": np.array(duration_ns),
        "joined_ns": zeros,
        "blocked_ns": zeros,
        "ended_ns": np.array(ended_ns),
    }
    table = np.vstack([columns[name] for name in COLUMNS]).astype(np.int64)
    return CollectiveCalls(kinds=[kind], columns=bytearray(table), progress_ns=0)


def make_matched(
    late_ns: NDArray[np.int64],
    transfer_ns: int = 1000,
    clock: Callable[[int, NDArray[np.int64]], NDArray[np.int64]] | None = None,
    jitter_ns: NDArray[np.int64] | None = None,
) -> MatchedCollectives:
    """Return the matched collectives of ranks, one per step of 10 ms.

    Args:
        late_ns: when each rank joins after the step's begin, shape (ranks, steps).
        transfer_ns: from the last rank's joining on.
        clock: maps true instants to the clock of a rank.
        jitter_ns: by how much later than the others' each end is seen, shape (ranks, steps).
    """
    begin = EPOCH_NS + np.arange(late_ns.shape[1]) * 10_000_000
    end = begin + late_ns.max(axis=0) + transfer_ns
    ranks = {}
    for rank, late in enumerate(late_ns):
        seen = end + (jitter_ns[rank] if jitter_ns is not None else 0)
        told = clock(rank, seen) if clock else seen
        ranks[rank] = make_calls((seen - begin - late).tolist(), told.tolist())
    return match(ranks)
