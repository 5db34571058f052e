"""Advice by dimension of parallelism: given where it helps, and silent where it would do nothing or harm."""

from typing import Any

import pytest
from msgspec.structs import replace

from perfkit.records.cross_rank import BandwidthFit, RankWait
from perfkit.records.report import Insight
from perfkit.records.run import RunReport
from tests.support.reports.report_builders import (
    MS,
    make_across,
    make_collective,
    make_dimensions,
    make_divided,
    make_efficiency,
)
from tests.support.reports.scaling_builders import make_hosts
from tests.unit.pipeline.test_insights import found, run_of, the
from tests.unit.report.content.test_memory_content import GB, make_use

OWN = {"accumulate": 1, "overlap": True, "dp": "ddp", "sequence_parallel": False}
GRADIENTS = ("accumulat", "bucket")


def communicating(*parts: tuple[str | None, float, float], own: bool = True, **changes: Any) -> RunReport:
    """Two ranks with 20 ms of exposed communication in a step of 100 ms: each dimension's wait and transfer, in ms."""
    wait, transfer = sum(part[1] for part in parts), sum(part[2] for part in parts)
    spans = {"across_hosts": changes.pop("across")} if "across" in changes else {}
    dimensions = make_dimensions(*((name, 8 * one, 8 * other) for name, one, other in parts), **spans)
    part = {"compute": 78 * MS, "communication": 20 * MS}
    whole = make_efficiency(wait_ns=round(8 * wait * MS), transfer_ns=round(8 * transfer * MS), unmatched_ns=0)
    # Both ranks wait for 10 ms per step.
    across = make_across(
        collectives=[replace(row, ddp_bucket=False) for row in make_across().collectives],
        rank_waits=[RankWait(rank=rank, wait_ns=40 * MS, exposed_wait_ns=40 * MS) for rank in (0, 1)],
    )
    run = run_of(part, part, efficiency=whole, cross_rank=across, dimensions=dimensions, config=OWN)
    return replace(run, **({} if own else {"config": None}), **changes)


def advice(several: list[Insight]) -> str:
    return " ".join(insight.recommendation for insight in several)


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("name", ["tp", "pp", "cp", "ep", "shard", "shard+cp", "dp+tp", "blocks", None])
@pytest.mark.parametrize("parts", [(2, 18), (18, 2)], ids=["transfer", "waiting"])
def test_only_gradients_get_advice_for_gradients(name: str | None, parts: tuple[int, int], own: bool) -> None:
    said = advice(found(communicating((name, *parts), own=own)))
    assert not any(word in said for word in (*GRADIENTS, "synchronise less often"))


@pytest.mark.parametrize("name", ["dp", "replicate", "dp+cp"])
def test_gradients_accumulate(name: str) -> None:
    said = the("transfer", found(communicating((name, 2, 18)))).recommendation
    assert said.startswith("use --accumulate 2")
    said = the("transfer", found(communicating((name, 2, 18), own=False))).recommendation
    assert said.startswith("accumulate gradients over micro-steps")
    assert "--accumulate" in the("waiting", found(communicating((name, 18, 2)))).recommendation


@pytest.mark.parametrize(
    ("least_ms", "advised", "saving_ms"),
    [(28, "synchronise less often", 7), (8, "perfkit merge shows", 18), (0, "perfkit merge shows", 18)],
)
def test_synchronising_less_often_saves_no_more_than_the_rank_that_waits_least(
    least_ms: int, advised: str, saving_ms: int
) -> None:
    """In four steps of 100 ms: where one rank hardly waits, a step takes as long as its own work in any case."""
    run = communicating(("dp", 18, 2))
    waits = [RankWait(rank=rank, wait_ns=ms * MS, exposed_wait_ns=ms * MS) for rank, ms in ((0, 100), (1, least_ms))]
    assert run.cross_rank is not None
    one = the("waiting", found(replace(run, cross_rank=replace(run.cross_rank, rank_waits=waits))))
    assert one.recommendation.startswith(advised)
    assert one.potential_saving_ns == saving_ms * MS


def test_gradients_that_accumulate_already_accumulate_over_more() -> None:
    run = replace(communicating(("dp", 2, 18)), config=OWN | {"accumulate": 4})
    assert the("transfer", found(run)).recommendation.startswith("use --accumulate 8 to halve the transfers")


def test_without_a_known_dimension_advice_does_not_depend_on_it() -> None:
    (one,) = found(communicating((None, 2, 18), own=False))
    assert one.recommendation.startswith("compare the bus bandwidth with that of the network")
    (one,) = found(communicating((None, 18, 2), own=False))
    assert one.recommendation.startswith("perfkit merge shows all ranks")


def test_a_pipeline_is_not_told_to_send_or_wait_less() -> None:
    """Its waiting is the bubble; of the rest, what another dimension transfers still counts."""
    assert found(communicating(("pp", 2, 18))) == []
    assert found(communicating(("pp", 18, 2))) == []
    one = the("transfer", found(communicating(("pp", 2, 10), ("dp", 0, 8))))
    assert one.evidence["transfer_ns"] == 8 * MS


def test_tensor_parallelism_gets_smaller_and_stays_on_a_host() -> None:
    inside = found(communicating(("tp", 2, 18), across=False))
    assert the("transfer", inside).recommendation.startswith("use a smaller tp, if the model still fits")
    assert "--sequence-parallel divides activations" in the("transfer", inside).recommendation
    assert "tensor_parallel_hosts" not in {one.rule for one in inside}
    across = found(communicating(("tp", 2, 18), across=True))
    assert [one.rule for one in across] == ["tensor_parallel_hosts"]
    assert across[0].recommendation.startswith("keep each tensor-parallel group on one host")
    # Across hosts unknown, or another dimension across hosts: nothing to say.
    assert "tensor_parallel_hosts" not in {one.rule for one in found(communicating(("tp", 2, 18), across=None))}
    assert "tensor_parallel_hosts" not in {one.rule for one in found(communicating(("dp", 2, 18), across=True))}
    split = communicating(("tp", 2, 18), across=False)
    said = advice(found(replace(split, config=OWN | {"sequence_parallel": True})))
    assert "sequence-parallel" not in said


def test_with_one_rank_per_host_no_group_can_stay_on_one() -> None:
    hosts = make_hosts(2, a_host=1)
    said = the("tensor_parallel_hosts", found(communicating(("tp", 2, 18), across=True, hosts=hosts))).recommendation
    assert said.startswith("use another dimension")
    assert "on one host" not in said


@pytest.mark.parametrize("name", ["tp", "cp"])
def test_nothing_that_needs_more_memory_is_advised_where_it_is_full(name: str) -> None:
    run = communicating((name, 2, 18), across=False)
    full = replace(run, ranks=[replace(rank, memory=[make_use(78 * GB)]) for rank in run.ranks])
    assert "use a smaller" in advice(found(run))
    assert the("transfer", found(full)).recommendation.startswith("compare the bus bandwidth")


@pytest.mark.parametrize(
    ("top_k", "across", "said"),
    [
        (2, False, "send less: fewer experts per token (--top-k 1)"),
        (1, False, "compare the bus bandwidth"),
        (1, True, "keep each group of experts on one host"),
    ],
)
def test_own_experts_have_no_capacity_and_send_each_token_once_at_least(top_k: int, across: bool, said: str) -> None:
    run = communicating(("ep", 2, 18), across=across)
    got = the("transfer", found(replace(run, config=OWN | {"top_k": top_k}))).recommendation
    assert got.startswith(said)
    assert "capacity" not in got


def test_experts_are_balanced_or_send_less() -> None:
    assert "balance the load of the experts" in advice(found(communicating(("ep", 18, 2))))
    assert "capacity factor" in the("transfer", found(communicating(("ep", 2, 18)))).recommendation
    assert "on one host" in the("transfer", found(communicating(("ep", 2, 18), across=True))).recommendation
    assert "on one host" not in the("transfer", found(communicating(("ep", 2, 18)))).recommendation


@pytest.mark.parametrize(
    ("own", "said"), [(True, "use --accumulate 2: grad"), (False, "accumulate gradients over mic")]
)
def test_experts_whose_gradients_transfer_most_are_not_told_to_send_fewer_tokens(own: bool, said: str) -> None:
    row = replace(make_across().collectives[0], dimension="ep", count=8, ddp_bucket=False)
    tokens = replace(row, operator="all_to_all", transfer_ns=1.0 * MS)
    gradients = replace(row, operator="all_reduce", transfer_ns=9.0 * MS, ddp_bucket=True)
    across = make_across(collectives=[tokens, gradients])
    run = communicating(("ep", 2, 18), own=own, cross_rank=across)
    assert the("transfer", found(run)).recommendation.startswith(said)
    run = replace(run, cross_rank=make_across(collectives=[gradients, replace(tokens, transfer_ns=10.0 * MS)]))
    assert the("transfer", found(run)).recommendation.startswith("send less")


def test_a_known_load_of_experts_is_not_advised_on_by_its_waiting() -> None:
    known = make_divided(dimension="ep", imbalance=1.0, wait_ns=18.0 * MS)
    assert "balance the load" not in advice(found(communicating(("ep", 18, 2), divided_work=[known])))


def test_context_parallelism_gets_smaller() -> None:
    assert the("transfer", found(communicating(("cp", 2, 18)))).recommendation.startswith("use a smaller cp")


@pytest.mark.parametrize("option", [{"dp": "deepspeed", "zero": 2}, {"mesh": "pp=2,dp=2"}])
def test_no_accumulation_where_it_does_not_help_or_is_refused(option: dict[str, object]) -> None:
    for parts in ((2, 18), (18, 2)):
        run = communicating(("dp", *parts))
        assert "--accumulate" not in advice(found(replace(run, config=OWN | option)))


@pytest.mark.parametrize("strategy", ["zero2", "zero3", "hsdp"])
def test_sharded_parameters_are_gathered_however_often_gradients_accumulate(strategy: str) -> None:
    run = communicating(("dp", 2, 18))
    said = advice(found(replace(run, config=OWN | {"dp": strategy})))
    assert said.startswith("use a larger --batch-size: each micro-step gathers")
    assert "accumulate" not in said
    waiting = replace(communicating(("dp", 18, 2)), config=OWN | {"dp": strategy})
    assert "accumulate" not in advice(found(waiting))


@pytest.mark.parametrize(("exposed_ms", "said"), [(80, True), (1, False)])
def test_a_foreign_program_gathers_parameters_if_its_all_gathers_take_time(exposed_ms: int, said: bool) -> None:
    """Data-parallel groups of FSDP may be called dp; a metric's all_gather is no sharding."""
    rows = [
        make_collective(dimension="dp", exposed_ns=80 * MS),
        make_collective(dimension="dp", operator="all_gather", exposed_ns=exposed_ms * MS),
    ]
    run = communicating(("dp", 2, 18), own=False)
    run = replace(run, ranks=[replace(rank, collectives=rows) for rank in run.ranks])
    assert ("increase the batch of a micro-step" in advice(found(run))) == said
    assert ("accumulate" in advice(found(run))) != said


def with_buckets(per_step: int, size: int, latency: float) -> RunReport:
    """A run whose gradients are reduced in buckets; `latency` is the share of their transfer time that is latency."""
    steps = 4
    row = replace(make_across().collectives[0], bytes=size, count=per_step * steps, transfer_ns=1 * MS)
    fit = BandwidthFit(
        operator="all_reduce",
        group="default",
        group_size=2,
        sizes=3,
        alpha_ns=latency * MS,
        beta=1e9,
        error=0.0,
        reason=None,
    )
    return communicating(("dp", 2, 18), cross_rank=make_across(collectives=[row], bandwidth_fits=[fit]))


@pytest.mark.parametrize(
    ("per_step", "size", "latency", "said"),
    [
        (1, 100_000_000, 0.0, "use a smaller --bucket-cap-mb"),
        (1, 1_000_000, 0.0, None),  # all that there is fits into DDP's first bucket
        (2, 100_000_000, 0.0, None),
        (20, 100_000, 0.1, None),
    ],
)
def test_buckets(per_step: int, size: int, latency: float, said: str | None) -> None:
    recommendation = the("transfer", found(with_buckets(per_step, size, latency))).recommendation
    assert recommendation.startswith(said or "use --accumulate 2")


@pytest.mark.parametrize(
    ("name", "strategy", "said"),
    [("dp", "ddp", True), ("dp", "zero1", True), ("tp", "ddp", False), ("pp", "ddp", False), ("dp", "zero3", False)],
)
def test_a_split_or_sharded_model_gets_no_advice_to_compile_it(name: str, strategy: str, said: bool) -> None:
    idle = {"compute": 60 * MS, "overhead": 38 * MS}
    run = run_of(idle, config={"compile": False, "dp": strategy}, dimensions=make_dimensions((name, 1, 1)))
    run = replace(run, ranks=[replace(rank, device="gpu") for rank in run.ranks])
    assert ("use --compile" in the("host", found(run)).recommendation) == said
