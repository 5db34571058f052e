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
    *,
    loaded: tuple[list[str], ...] = ([], []),
    initial: tuple[list[str], ...] = ([], []),
    updated: tuple[list[str], ...] = ([], []),
) -> list[str]:
    ranks = [replace(rank, collectives=rows) for rank in make_ranks([PART, PART])]
    checks = [
        ReplicaCheck(batches=own, loaded=read, initial=before, updated=after, parameters=1000)
        for own, read, before, after in zip(batches, loaded, initial, updated, strict=True)
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


def test_equal_inputs_of_different_batches() -> None:
    """The generator of a GAN may get the same noise on all ranks."""
    assert found((SEVERAL, SEVERAL), [make_collective(**BUCKET)], loaded=(["e"], ["f"])) == []


@pytest.mark.parametrize(
    ("initial", "updated", "per_step", "said"),
    [
        ((["a"], ["b"]), (["c"], ["d"]), (1000, "float32"), True),
        ((["a", "b"], ["a", "c"]), (["d", "e"], ["d", "f"]), (1000, "float32"), True),  # of the second optimizer
        ((["a"], ["b"]), (["c"], ["d"]), (1000, "bfloat16"), True),  # gradients are reduced in 16 bits
        ((["a"], ["b"]), (["c"], ["d"]), (3000, "float32"), True),  # in each of three micro-batches
        ((["a"], ["a"]), (["c"], ["d"]), (1000, "float32"), False),  # rounding of unequal processors
        ((["a"], ["b"]), (["c"], ["c"]), (1000, "float32"), False),  # broadcast after the first update
        (([], []), ([], []), (1000, "float32"), False),
        ((["a"], ["b"]), (["c"], ["d"]), (900, "float32"), False),  # some parameters are not reduced: experts
        ((["a"], ["b"]), (["c"], ["d"]), (1200, "float32"), False),  # activations, too
        ((["a"], ["b"]), (["c"], ["d"]), (1000, None), False),
    ],
)
@pytest.mark.parametrize("wrapped", [False, True])
def test_parameters_of_ranks_that_reduce_by_hand(
    initial: tuple[list[str], ...],
    updated: tuple[list[str], ...],
    per_step: tuple[int, str | None],
    *,
    said: bool,
    wrapped: bool,
) -> None:
    steps = len(make_ranks([PART, PART])[0].steps)
    kind, (elements, dtype) = BUCKET if wrapped else BY_HAND, per_step
    size = elements * (2 if dtype == "bfloat16" else 4)
    rows = [make_collective(bytes=size, dtype=dtype, count=steps, **kind)]
    rows.append(make_collective(bytes=4, dtype="float32", count=steps, **BY_HAND))
    codes = found((["a", "b"], ["c", "d"]), rows, initial=initial, updated=updated)
    assert codes == (["replicas_differ"] if said and not wrapped else [])
