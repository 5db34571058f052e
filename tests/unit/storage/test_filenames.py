"""Ranks in the names of trace files."""

import pytest

from perfkit.storage.filenames import rank_in_name


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("rank0.json", 0),
        ("rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz", 0),
        ("trace_rank_3.json", 3),
        ("rank12.cycle1.json.gz", 12),
        ("sampled_rank-0.json.gz", 0),
        ("Rank.7.json", 7),
        ("global_rank9.json", 9),
        ("ddp_rank4.json", 4),
        ("rank5_step100_rank5.json", 5),
        ("rank0/rank1.json", 1),
        ("node1_local_rank0_rank2.json", 2),
        ("rank2_local-rank.0.json", 2),
        ("node_rank1_rank3.json", 3),
        ("dp_rank0_tp_rank1_rank5.json", 5),
        ("tp_rank3.json", 3),
        ("step_rank6.json", 6),
    ],
)
def test_names_that_tell_a_rank(name: str, rank: int) -> None:
    assert rank_in_name(name) == rank


@pytest.mark.parametrize(
    "name",
    [
        "trace_0.json",
        "2ranks.json",
        "rank1234567890.json",
        "local_rank0.json",
        "node-rank-1_local-rank-0.json",
        "dp_rank0_tp_rank1.json",
        "dp_rank1_tp_rank1.json",
        "rank0_rank1.json",
    ],
)
def test_names_that_tell_none(name: str) -> None:
    assert rank_in_name(name) is None
