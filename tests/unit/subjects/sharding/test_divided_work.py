"""Tensor, context and expert parallelism: communication against compute, tokens and layers."""

from typing import Any

import pytest

from perfkit.records.manifest import ExpertLoad, RunManifest, World
from perfkit.records.per_rank.sharding import DividedWork, IssuedCollectives
from perfkit.records.rank import RankReport
from perfkit.subjects.sharding.divided_work import divided_work, imbalance
from tests.support.reports.report_builders import MS, make_across, make_operator, make_rank
from tests.unit.report.content.test_sharding_content import make_issued

STEPS = 2


def make_manifest(*experts: ExpertLoad, **changes: Any) -> RunManifest:
    fields: dict[str, Any] = {
        "run": "r",
        "state": "completed",
        "workload": "gpt",
        "source": "memory",
        "started_at": "2026-01-01T00:00:00+00:00",
        "config": {"layers": 4},
        "versions": {},
        "backend": "gloo",
        "device": "cpu",
        "world": World(world_size=2, nodes=1, launcher="none", local_world_sizes=[2]),
        "batch_size": 8,
        "tokens_per_sample": 64,
        "experts": list(experts),
    }
    return RunManifest(**(fields | changes))


def make_load(*rank_tokens: float) -> ExpertLoad:
    return ExpertLoad(layer=0, expert_tokens=list(rank_tokens), rank_tokens=list(rank_tokens))


def ranks_of(*rows: IssuedCollectives, **changes: Any) -> list[RankReport]:
    """Two ranks of two steps, 210 ms of compute in all on each."""
    return [make_rank(rank, issued_collectives=list(rows), **changes) for rank in range(2)]


def only(ranks: list[RankReport], manifest: RunManifest | None = None, **changes: Any) -> DividedWork:
    (row,) = divided_work(ranks, make_across(**changes), manifest)
    return row


def test_means_are_per_step_and_rank() -> None:
    rows = [make_issued(dimension="tp"), make_issued(dimension="tp", phase="backward"), make_issued(dimension="dp")]
    row = only(ranks_of(*rows), make_manifest())
    assert (row.dimension, row.collectives, row.bytes) == ("tp", 4, 8_000_000)
    assert (row.total_ns, row.exposed_ns, row.compute_ns) == (40 * MS, 20 * MS, 75 * MS)
    assert (row.tokens, row.layers, row.imbalance, row.attention_ns) == (512, 4, None, None)


def test_what_is_not_known_stays_unknown() -> None:
    row = only(ranks_of(make_issued(dimension="ep", unsized=1)))
    assert (row.bytes, row.tokens, row.layers, row.imbalance, row.wait_ns) == (None, None, None, None, None)
    assert only(ranks_of(make_issued(dimension="ep")), make_manifest(config={"layers": True})).layers is None


@pytest.mark.parametrize("name", ["tp", "cp", "ep"])
def test_only_what_layers_issue_counts(name: str) -> None:
    own = make_issued(dimension=name, operator="all_to_all")
    norm = make_issued(dimension=name, operator="all_reduce", phase="optimizer")
    gradients = make_issued(dimension=name, operator="all_reduce", phase="backward")
    (alone,) = divided_work(ranks_of(own), None, None)
    assert divided_work(ranks_of(own, norm), None, None) == [alone]
    (both,) = divided_work(ranks_of(own, gradients), None, None)
    assert both.collectives == (2 if name == "tp" else 1) * alone.collectives
    assert divided_work(ranks_of(norm), None, None) == []


def test_the_wait_is_that_of_the_dimension() -> None:
    first = make_across().collectives[0]
    mine = {"dimension": "ep", "operator": "all_to_all", "count": 4, "wait_ns": 3.0 * MS}
    matched = [type(first)(**({name: getattr(first, name) for name in first.__struct_fields__} | mine)), first]
    # Four on two ranks each, in two steps of two ranks.
    assert only(ranks_of(make_issued(dimension="ep")), collectives=matched).wait_ns == 6 * MS


@pytest.mark.parametrize(
    ("reduces", "scatters", "expected"), [(0, 100, True), (100, 0, False), (60, 40, False), (0, 0, None)]
)
def test_sequence_parallel_is_recognised(reduces: int, scatters: int, *, expected: bool | None) -> None:
    """Backward reduces by all_reduce in both."""
    rows = [
        make_issued(dimension="tp", operator="all_reduce", phase="backward", bytes=900),
        make_issued(dimension="tp", operator="all_reduce", bytes=reduces),
        make_issued(dimension="tp", operator="reduce_scatter", bytes=scatters),
    ]
    assert only(ranks_of(*rows)).sequence_parallel is expected


def test_attention_stands_beside_the_ring() -> None:
    operators = [make_operator("aten::_scaled_dot_product_flash_attention_for_cpu", total_ns=12 * MS)]
    operators += [make_operator("aten::mm", total_ns=50 * MS), make_operator("flash", category="communication")]
    row = only(ranks_of(make_issued(dimension="cp", operator="send"), operators=operators))
    assert row.attention_ns == 6 * MS
    assert only(ranks_of(make_issued(dimension="cp"), operators=operators[1:])).attention_ns is None


def test_imbalance_adds_up_what_each_layer_waits_for() -> None:
    """Two layers that are unequal the other way round do not make up for each other."""
    assert imbalance([make_load(30, 10), make_load(10, 30)]) == 1.5
    assert imbalance([make_load(20, 20)]) == 1
    assert imbalance([]) is None
    assert only(ranks_of(make_issued(dimension="ep")), make_manifest(make_load(30, 10))).imbalance == 1.5


def test_nothing_is_said_without_such_a_dimension() -> None:
    assert divided_work(ranks_of(make_issued()), None, None) == []
    assert divided_work([], None, None) == []
