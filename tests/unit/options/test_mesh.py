import itertools
import re

import pytest

from perfkit.errors import UsageError
from perfkit.options.mesh import MeshLayout, lay_out
from perfkit.options.run import RunConfig


@pytest.mark.parametrize(
    ("mesh", "ranks", "message"),
    [
        ("dp=3", 2, "--mesh dp=3: 3 ranks, but this run has 2: start 3 ranks"),
        ("pp=2,dp=2", 8, "2 x 2 = 4 ranks, but this run has 8"),
        ("sp=2", 2, "unknown dimension 'sp': choose from pp, replicate, dp, shard, ep, cp, tp"),
        ("dp=2,dp=2", 4, "dimension dp is given twice"),
        ("dp", 2, "'dp' has no size: write it as dp=2"),
        ("dp=0", 2, "'dp=0' has no size"),
        ("", 2, "unknown dimension ''"),
    ],
)
def test_invalid_meshes_are_refused_by_name(mesh: str, ranks: int, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        RunConfig(mesh=mesh).check_world(ranks)


def test_the_order_is_fixed_and_data_parallel_dimensions_are_always_there() -> None:
    assert list(lay_out("tp=2,pp=3", 6).sizes.items()) == [("pp", 3), ("dp", 1), ("tp", 2)]
    assert list(lay_out("shard=4,replicate=2", 8).sizes.items()) == [("replicate", 2), ("shard", 4)]
    assert lay_out(None, 4).sizes == {"dp": 4}


def test_each_rank_is_in_one_group_of_each_dimension_with_those_that_differ_only_there() -> None:
    layout = MeshLayout(sizes={"pp": 2, "replicate": 3, "shard": 2, "tp": 2})
    places = [layout.coordinate(rank) for rank in range(24)]
    assert places == [
        dict(zip(layout.sizes, place, strict=True)) for place in itertools.product(*map(range, (2, 3, 2, 2)))
    ]
    for name, size in layout.sizes.items():
        groups = layout.groups(name)
        assert sorted(rank for group in groups for rank in group) == list(range(24))
        for group in groups:
            assert [places[rank][name] for rank in group] == list(range(size))
            others = [{key: value for key, value in places[rank].items() if key != name} for rank in group]
            assert all(other == others[0] for other in others)


def test_ranks_that_divide_experts_train_on_different_samples() -> None:
    layout = lay_out("ep=2,dp=2", 4)
    assert layout.replicas == 4
    assert [layout.replica(rank) for rank in range(4)] == [0, 1, 2, 3]
    assert (layout.groups("ep"), layout.groups("dp")) == ([[0, 1], [2, 3]], [[0, 2], [1, 3]])


def test_ranks_that_share_samples_are_one_replica() -> None:
    layout = MeshLayout(sizes={"pp": 2, "replicate": 2, "shard": 2, "tp": 2})
    assert layout.replicas == 4
    by_place = {(p["replicate"], p["shard"]): set[int]() for p in map(layout.coordinate, range(16))}
    for rank in range(16):
        place = layout.coordinate(rank)
        by_place[place["replicate"], place["shard"]].add(layout.replica(rank))
    assert list(by_place.values()) == [{0}, {1}, {2}, {3}]
