"""Many tiny collectives and broadcasts of buffers: where they cost time, and where nothing is said."""

from typing import Any

import pytest
from msgspec.structs import replace

from perfkit.engine.losses.context import loss_context
from perfkit.records.cross_rank import BandwidthFit
from perfkit.records.rank import PhaseStat
from perfkit.records.report import Insight
from perfkit.records.run import RunReport
from perfkit.subjects.collectives.avoidable import AVOIDABLE, find_avoidable, reported_ns, unreported
from tests.support.reports.report_builders import MS, make_across, make_collective, make_dimensions, make_efficiency
from tests.support.reports.scaling_builders import make_ranks, make_scaled
from tests.unit.pipeline.test_insights import QUIET, found
from tests.unit.pipeline.test_insights import the as only

COMMUNICATING = QUIET | {"compute": 77 * MS, "communication": 20 * MS}
MATCHED = make_across().collectives[0]
STEPS = 4


def run_of(*, each_us: int, per_step: int, size: int = 8, exposed_us: int | None = None, **changes: Any) -> RunReport:
    """Two ranks with these all_gathers, of a step of 100 ms."""
    count = per_step * STEPS
    own = make_collective(
        operator="all_gather",
        bytes=size,
        count=count,
        exposed_ns=(exposed_us if exposed_us is not None else each_us) * 1000 * count,
    )
    row = replace(
        MATCHED, operator="all_gather", bytes=size, count=count, transfer_ns=each_us * 1000.0, ddp_bucket=False
    )
    ranks = [replace(rank, collectives=[own]) for rank in make_ranks([COMMUNICATING, COMMUNICATING])]
    across = make_across(collectives=[row], bandwidth_fits=[])
    fields: dict[str, Any] = {"ranks": ranks, "cross_rank": across, "efficiency": None, "dimensions": None}
    return make_scaled(2, 100, **(fields | changes))


def tiny(run: RunReport) -> list[Insight]:
    return [insight for insight in found(run) if insight.rule == "tiny_collectives"]


def test_many_tiny_collectives() -> None:
    (insight,) = tiny(run_of(each_us=100, per_step=66))
    assert insight.sentence == "Communication: 66 all_gather per step, 528 B in all, mostly latency"
    # One of them stays.
    assert insight.potential_saving_ns == pytest.approx(6.5 * MS)


@pytest.mark.parametrize(
    "changes",
    [
        {"per_step": 1, "each_us": 10_000},  # one
        {"per_step": 66, "each_us": 10},  # fast
        {"per_step": 66, "each_us": 100, "size": 1 << 20},  # large
        {"per_step": 66, "each_us": 100, "exposed_us": 5},  # overlapped
        {"per_step": 66, "each_us": 100, "cross_rank": None},  # their transfer is unknown
    ],
)
def test_nothing_is_said_of_one_or_of_fast_large_or_overlapped_ones(changes: dict[str, Any]) -> None:
    assert tiny(run_of(**changes)) == []


@pytest.mark.parametrize(
    ("phases", "dimension", "exposed_ms", "said"),
    [
        (["DistributedDataParallel.forward"], "dp", 8, True),
        (["DistributedDataParallel.forward"], "dp", 1, False),
        (["DistributedDataParallel.forward"], None, 8, False),  # issued by the program itself
        ([], "dp", 8, False),
        (["DistributedDataParallel.forward", "Optimizer.step#ZeroRedundancyOptimizer.step"], "dp", 8, False),
    ],
)
def test_broadcasts_of_buffers(phases: list[str], dimension: str | None, exposed_ms: int, *, said: bool) -> None:
    rows = [PhaseStat(name=name, count=STEPS, total_ns=10 * MS, max_ns=5 * MS) for name in phases]
    own = make_collective(
        operator="broadcast", dimension=dimension, bytes=512, count=2 * STEPS, exposed_ns=exposed_ms * MS * STEPS
    )
    ranks = [replace(rank, collectives=[own], phases=rows) for rank in make_ranks([COMMUNICATING, COMMUNICATING])]
    several = found(make_scaled(2, 100, ranks=ranks, cross_rank=None, efficiency=None))
    assert any(insight.rule == "broadcast_buffers" for insight in several) == said
    if said:
        insight = only("broadcast_buffers", several)
        assert insight.sentence.endswith("DDP broadcasts buffers before each forward, 2 per step")
        assert insight.potential_saving_ns == 8 * MS


def test_broadcasts_of_buffers_are_not_combined_as_well() -> None:
    rows = [PhaseStat(name="DistributedDataParallel.forward", count=STEPS, total_ns=10 * MS, max_ns=5 * MS)]
    own = make_collective(operator="broadcast", dimension="dp", bytes=512, count=2 * STEPS, exposed_ns=18 * MS * STEPS)
    matched = replace(
        MATCHED,
        operator="broadcast",
        dimension="dp",
        bytes=512,
        count=2 * STEPS,
        transfer_ns=9.0 * MS,
        ddp_bucket=False,
    )
    ranks = [replace(rank, collectives=[own], phases=rows) for rank in make_ranks([COMMUNICATING, COMMUNICATING])]
    across = make_across(collectives=[matched], bandwidth_fits=[])
    run = make_scaled(2, 100, ranks=ranks, cross_rank=across, efficiency=None)
    assert [insight.rule for insight in found(run) if insight.rule in AVOIDABLE] == ["broadcast_buffers"]


@pytest.mark.parametrize(("dimension", "said"), [(None, 1), ("dp", 1), ("tp", 0), ("shard+cp", 0)])
def test_collectives_that_depend_on_each_other_are_not_combined(dimension: str | None, said: int) -> None:
    """Each all-reduce of tensor parallelism is part of its layer, however small it is."""
    run = run_of(each_us=100, per_step=66)
    assert run.cross_rank is not None
    (row,) = run.cross_rank.collectives
    across = replace(run.cross_rank, collectives=[replace(row, dimension=dimension)])
    assert len(tiny(replace(run, cross_rank=across))) == said


def test_what_is_saved_of_several_dimensions_is_told_once() -> None:
    run = run_of(each_us=100, per_step=66)
    assert run.cross_rank is not None
    (row,) = run.cross_rank.collectives
    rows = [
        replace(row, dimension=name, count=row.count * part // 3, bytes=8 * part)
        for name, part in (("dp", 2), (None, 1))
    ]
    own = [
        make_collective(operator="all_gather", dimension=one.dimension, bytes=one.bytes, count=one.count)
        for one in rows
    ]
    own = [replace(one, exposed_ns=100_000 * one.count) for one in own]
    ranks = [replace(rank, collectives=own) for rank in run.ranks]
    across = replace(run.cross_rank, collectives=[*rows, large := replace(row, bytes=1 << 24)])
    context = loss_context(replace(run, ranks=ranks, cross_rank=across), None)
    assert context is not None
    avoidable = find_avoidable(context)
    reported = [reported_ns(avoidable, name) for name in ("dp", None, "cp")]
    assert reported == pytest.approx([6.5 * MS * 2 / 3, 6.5 * MS / 3, 0])
    assert unreported(avoidable, across.collectives) == [large]


@pytest.mark.parametrize(("per_step", "size"), [(2, 8), (4, 128), (8, 4096), (30, 64_000)])
@pytest.mark.parametrize("alpha_us", [None, 40, 60])
def test_latency_is_what_the_fit_says_and_without_one_what_the_size_says(
    per_step: int, size: int, alpha_us: int | None
) -> None:
    run = run_of(each_us=100, per_step=per_step, size=size, exposed_us=20_000 // per_step)
    assert run.cross_rank is not None
    fit = BandwidthFit(
        operator="all_gather",
        group=MATCHED.group,
        group_size=2,
        sizes=3,
        alpha_ns=None if alpha_us is None else alpha_us * 1000.0,
        beta=1e9,
        error=0.0,
        reason=None,
    )
    several = found(replace(run, cross_rank=replace(run.cross_rank, bandwidth_fits=[fit])))
    is_latency = size <= 16_384 if alpha_us is None else alpha_us > 50
    assert any(insight.rule == "tiny_collectives" for insight in several) == is_latency
    assert not (is_latency and any("compare the bus bandwidth" in insight.recommendation for insight in several))


DDP = "DistributedDataParallel.forward"


def accumulating(
    batches: int, buckets: dict[int, int], phases: dict[str, int] | None = None, exposed_ms: int = 20
) -> RunReport:
    """Two ranks of DDP whose updates have so many micro-batches, and reduce buckets of these sizes so often."""
    counts = {DDP: batches, "Optimizer.step#AdamW.step": 1} if phases is None else phases
    rows = [
        PhaseStat(name=name, count=count * STEPS, total_ns=10 * MS, max_ns=5 * MS) for name, count in counts.items()
    ]
    each_ns = exposed_ms * MS // sum(buckets.values())
    own = [
        make_collective(
            bytes=size, count=count * STEPS, exposed_ns=each_ns * count * STEPS, ddp_bucket=True, dimension="dp"
        )
        for size, count in buckets.items()
    ]
    across = make_across(
        collectives=[
            replace(MATCHED, bytes=one.bytes, count=one.count, ddp_bucket=True, dimension="dp", transfer_ns=each_ns)
            for one in own
        ],
        bandwidth_fits=[],
    )
    ranks = [replace(rank, collectives=own, phases=rows) for rank in make_ranks([COMMUNICATING, COMMUNICATING])]
    whole = make_efficiency(wait_ns=0, transfer_ns=2 * exposed_ms * MS * STEPS, unmatched_ns=0)
    dimensions = make_dimensions(("dp", 0, 2 * exposed_ms * STEPS))
    run = make_scaled(2, 100, ranks=ranks, cross_rank=across, efficiency=whole, dimensions=dimensions)
    return replace(run, config=None)


@pytest.mark.parametrize("batches", [2, 4, 16])
@pytest.mark.parametrize("sizes", [[100 << 20], [1 << 20, 25 << 20, 7 << 20]])
def test_gradients_that_are_reduced_in_each_micro_batch(batches: int, sizes: list[int]) -> None:
    several = found(accumulating(batches, dict.fromkeys(sizes, batches)))
    insight = only("each_micro_batch", several)
    assert insight.sentence.endswith(f"gradients are reduced in each of {batches} micro-batches")
    assert insight.recommendation.endswith(f"no_sync() around {batches - 1} of {batches} micro-batches")
    assert insight.potential_saving_ns == pytest.approx(20 * MS * (batches - 1) / batches, rel=0.001)
    assert not any("accumulate" in one.recommendation for one in several)


@pytest.mark.parametrize(
    ("batches", "buckets", "phases"),
    [
        (1, {1 << 20: 1, 25 << 20: 1}, None),  # no accumulation
        (4, {1 << 20: 1, 25 << 20: 1}, None),  # with no_sync
        (2, {1 << 20: 1, 25 << 20: 3}, None),  # a model that is called twice, and reduced once
        (4, {1 << 20: 4}, {DDP: 4}),  # unknown how often parameters are updated
        (4, {1 << 20: 4}, {DDP: 4, "Optimizer.step#SGD.step": 4}),  # four updates in a recorded step
        (0, {1 << 20: 2, 2 << 20: 3}, {DDP: 4, "Optimizer.step#Adam.step": 2}),  # two models: a GAN
        (4, {1 << 20: 4}, {"Optimizer.step#AdamW.step": 1}),  # not DDP
    ],
)
def test_gradients_that_are_not(batches: int, buckets: dict[int, int], phases: dict[str, int] | None) -> None:
    assert not any(one.rule == "each_micro_batch" for one in found(accumulating(batches, buckets, phases)))


def test_who_accumulates_is_told_to_accumulate_more() -> None:
    (once,) = (one for one in found(accumulating(1, {1 << 20: 1, 25 << 20: 1})) if "accumulate" in one.recommendation)
    (more,) = (one for one in found(accumulating(4, {1 << 20: 1, 25 << 20: 1})) if "accumulate" in one.recommendation)
    assert "over micro-steps" in once.recommendation
    assert "over more than 4 micro-steps" in more.recommendation


@pytest.mark.parametrize(("count", "size", "said"), [(12, 4096, True), (2, 4096, False), (6, 12_000, True)])
def test_buckets_that_are_smaller_than_by_default(count: int, size: int, *, said: bool) -> None:
    """DDP's first bucket is small, so two are the fewest."""
    several = found(accumulating(1, {size: count}))
    assert any("use a larger bucket_cap_mb" in one.recommendation for one in several) == said
    if said:
        assert only("tiny_collectives", several).potential_saving_ns == pytest.approx(20 * MS * (count - 2) / count)


@pytest.mark.parametrize(
    ("dtype", "exposed_ms", "said"), [("int32", 8, True), ("int32", 1, False), ("float32", 8, False)]
)
def test_the_search_for_unused_parameters(dtype: str, exposed_ms: int, *, said: bool) -> None:
    """DDP reduces which parameters got gradients as int32."""
    run = accumulating(1, {3200: 1, 25 << 20: 1}, exposed_ms=2 * exposed_ms)
    ranks = [
        replace(
            rank,
            collectives=[replace(row, dtype=dtype if row.bytes == 3200 else "float32") for row in rank.collectives],
        )
        for rank in run.ranks
    ]
    several = [one for one in found(replace(run, ranks=ranks)) if one.rule == "unused_parameters"]
    assert [one.potential_saving_ns for one in several] == ([exposed_ms * MS] if said else [])
