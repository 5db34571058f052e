from itertools import combinations

import pytest

from perfkit.tools.collectives.slow_links import rounds


@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 8, 13, 64])
def test_every_pair_meets_once_in_rounds_of_disjoint_pairs(ranks: int) -> None:
    played = list(rounds(ranks))
    assert len(played) == (ranks - 1 if ranks % 2 == 0 else ranks)
    for pairs in played:
        members = [rank for pair in pairs for rank in pair]
        assert len(members) == len(set(members)) == ranks // 2 * 2
    assert sorted(pair for pairs in played for pair in pairs) == list(combinations(range(ranks), 2))
