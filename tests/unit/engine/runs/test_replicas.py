"""What is said of ranks that share their batches or differ in their parameters, and of which nothing is."""

from typing import Any

import pytest
from msgspec.structs import replace

from perfkit.engine.runs.replicas import replica_findings
from perfkit.records.manifest import ReplicaCheck
from perfkit.records.rank import CollectiveStat
from tests.support.reports.report_builders import make_collective, make_record
from tests.support.reports.scaling_builders import make_ranks

BUCKET = {"dimension": "dp", "ddp_bucket": True, "group_size": 2}
BY_HAND = {"dimension": None, "group_size": 2}
PART = {"compute": 50, "communication": 10}
SEVERAL = ["a", "b", "c", "d"]


def found(
    batches: tuple[list[str], ...],
    rows: list[CollectiveStat],
    parameters: tuple[list[float], ...] = ([0.5, -0.25], [0.5, -0.25]),
    size: int = 1000,
) -> list[str]:
    ranks = [replace(rank, collectives=rows) for rank in make_ranks([PART, PART])]
    checks = [
        ReplicaCheck(batches=own, parameters=values, parameters_bytes=size)
        for own, values in zip(batches, parameters, strict=True)
    ]
    records = [replace(make_record([1], rank), check=check) for rank, check in enumerate(checks)]
    return [one.code for one in replica_findings(ranks, records, 2)]


def test_data_parallel_ranks_with_equal_batches() -> None:
    assert found((SEVERAL, SEVERAL), [make_collective(**BUCKET)]) == ["same_batches"]


@pytest.mark.parametrize(
    ("batches", "rows"),
    [
        ((SEVERAL, ["a", "b", "c", "e"]), [BUCKET]),
        ((["a"] * 4, ["a"] * 4), [BUCKET]),  # constant input
        (([], []), [BUCKET]),  # unknown
        ((SEVERAL, SEVERAL), [BUCKET, {"dimension": "tp", "group_size": 2}]),
        ((SEVERAL, SEVERAL), [BUCKET, {"dimension": None, "operator": "send", "group_size": 2}]),
        ((SEVERAL, SEVERAL), [BUCKET, {"dimension": None, "operator": "all_to_all", "group_size": 2}]),
        ((SEVERAL, SEVERAL), [{**BUCKET, "group_size": 1}]),  # within a part of the ranks
        ((SEVERAL, SEVERAL), []),  # independent models
    ],
)
def test_other_ranks_or_batches(batches: tuple[list[str], ...], rows: list[dict[str, Any]]) -> None:
    assert found(batches, [make_collective(**row) for row in rows]) == []


@pytest.mark.parametrize(
    ("parameters", "size", "per_step", "said"),
    [
        (([0.5, -0.25], [0.1, 0.3]), 1000, 1000, True),
        (([0.5, -0.25, 0.0, 0.0], [0.1, 0.3, 0.0, 0.0]), 1000, 1000, True),  # half begin with zeros
        (([0.5, -0.25], [0.5, -0.25]), 1000, 1000, False),
        (([0.5, -0.25], [0.5000001, -0.25000001]), 1000, 1000, False),  # rounding
        (([0.5, -0.25], [float("nan")] * 2), 1000, 1000, False),
        (([], []), 1000, 1000, False),
        (([0.5, -0.25], [0.1, 0.3]), 1000, 900, False),  # some parameters are not reduced: experts
        (([0.5, -0.25], [0.1, 0.3]), 1000, 1200, False),  # activations, too
    ],
)
@pytest.mark.parametrize("wrapped", [False, True])
def test_parameters_of_ranks_that_reduce_by_hand(
    parameters: tuple[list[float], ...], size: int, per_step: int, *, said: bool, wrapped: bool
) -> None:
    steps = len(make_ranks([PART, PART])[0].steps)
    kind = BUCKET if wrapped else BY_HAND
    rows = [make_collective(bytes=per_step, count=steps, **kind), make_collective(bytes=4, count=steps, **BY_HAND)]
    codes = found((["a", "b"], ["c", "d"]), rows, parameters, size)
    assert codes == (["replicas_differ"] if said and not wrapped else [])
