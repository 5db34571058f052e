"""What dimensions of parallelism cost adds up to what the run loses, whatever the collectives."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from perfkit.engine.communication.collective_calls import COLUMNS, CollectiveCalls
from perfkit.engine.communication.collective_metadata import CollectiveKey
from perfkit.engine.ranks.dimensions import divide, find_groups, summarize_dimensions
from perfkit.engine.ranks.matching import MatchedCollectives, match
from tests.support.reports.report_builders import make_efficiency, make_rank

WEIGHTS = st.lists(st.integers(0, 10**15), min_size=1, max_size=6)
KINDS = [
    CollectiveKey("all_reduce", "1", 2, 4096, "float32", dimension="tp"),
    CollectiveKey("all_reduce", "2", 2, 8192, "float32", dimension="dp"),
    CollectiveKey("broadcast", "2", 2, 64, "float32", dimension="dp"),
    CollectiveKey("all_to_all", "3", 2, None, "float32"),
    CollectiveKey("recv", None, None, None, None, dimension="pp"),
]


@given(st.integers(0, 10**15), WEIGHTS, WEIGHTS)
def test_parts_are_whole_and_add_up(whole: int, weights: list[int], otherwise: list[int]) -> None:
    otherwise = (otherwise * len(weights))[: len(weights)]
    parts = divide(whole, weights, otherwise)
    assert sum(parts) == whole
    assert min(parts) >= 0
    chosen = weights if sum(weights) else otherwise
    if total := sum(chosen):
        assert all(abs(part * total - whole * weight) < total for part, weight in zip(parts, chosen, strict=True))


@st.composite
def calls(draw: st.DrawFn) -> dict[int, CollectiveCalls]:
    kinds = draw(st.lists(st.integers(0, len(KINDS) - 1), min_size=1, max_size=8))
    return {rank: _of_rank(draw, kinds) for rank in range(2)}


def _of_rank(draw: st.DrawFn, kinds: list[int]) -> CollectiveCalls:
    count = len(kinds)
    duration = np.array(draw(st.lists(st.integers(0, 10**9), min_size=count, max_size=count)), np.int64)
    shown = np.array(draw(st.lists(st.floats(0, 1), min_size=count, max_size=count)))
    columns = dict.fromkeys(COLUMNS, np.zeros(count, np.int64)) | {
        "kind": np.array(kinds),
        "sequence": np.full(count, -1),
        "duration_ns": duration,
        "exposed_ns": np.minimum((duration * shown).astype(np.int64), duration),
    }
    table = np.vstack([columns[name] for name in COLUMNS]).astype(np.int64)
    return CollectiveCalls(kinds=KINDS, columns=bytearray(table), progress_ns=0)


@given(calls(), st.integers(0, 10**9), st.lists(st.integers(0, 10**12), min_size=3, max_size=3))
def test_dimensions_add_up_to_the_run(ranks: dict[int, CollectiveCalls], outside: int, times: list[int]) -> None:
    matched: MatchedCollectives = match(ranks, 2)
    wait, exposed = int(matched.exposed_wait_ns.sum()), int(matched.exposed_ns.sum())
    own_ns, t_ideal_ns, t_ns = sorted(times)
    whole = make_efficiency(
        wait_ns=wait, transfer_ns=exposed - wait + outside, own_ns=own_ns, t_ideal_ns=t_ideal_ns, t_ns=t_ns
    )
    found = summarize_dimensions(matched, [make_rank(0), make_rank(1)], whole, 2)
    assert found is not None
    assert sum(row.exposed_wait_ns for row in found.rows) == wait
    assert sum(row.exposed_transfer_ns for row in found.rows) + found.outside_ns == whole.transfer_ns
    lost = sum(row.serialisation_lost_ns + row.transfer_lost_ns for row in found.rows)
    assert lost + found.outside_lost_ns == t_ns - own_ns
    assert sum(row.calls for row in found.rows) == len(matched.rank)
    assert len({(row.dimension, row.across_hosts) for row in found.rows}) == len(found.rows)
    assert len(find_groups(matched, {0: "a", 1: "b"}, 2).hosts) == len(matched.rank)
