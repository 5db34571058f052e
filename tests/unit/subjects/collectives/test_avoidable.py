"""Many tiny collectives and broadcasts of buffers: where they cost time, and where nothing is said."""

from typing import Any

import pytest
from msgspec.structs import replace

from perfkit.engine.losses.context import LossContext, loss_context
from perfkit.engine.losses.loss import Loss
from perfkit.records.rank import PhaseStat
from perfkit.records.report import Insight
from perfkit.records.run import RunReport
from perfkit.subjects.collectives import avoidable
from perfkit.subjects.collectives.avoidable import reported_ns, unreported
from tests.support.reports.report_builders import MS, make_across, make_collective
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
    fields: dict[str, Any] = {"ranks": ranks, "cross_rank": across, "efficiency": None}
    return make_scaled(2, 100, **(fields | changes))


def tiny(run: RunReport) -> list[Insight]:
    return [insight for insight in found(run) if insight.rule == "tiny_collectives"]


def test_many_tiny_collectives() -> None:
    (insight,) = tiny(run_of(each_us=100, per_step=66))
    assert insight.sentence == "Communication, 20.0 ms (20 %): 66 tiny all_gather per step, 528 B in all"
    # One of them stays.
    assert insight.potential_saving_ns == pytest.approx(6.5 * MS)


@pytest.mark.parametrize(
    "changes",
    [
        {"per_step": 9, "each_us": 1000},  # few
        {"per_step": 66, "each_us": 10},  # fast
        {"per_step": 66, "each_us": 100, "size": 1 << 20},  # large
        {"per_step": 66, "each_us": 100, "exposed_us": 5},  # overlapped
        {"per_step": 66, "each_us": 100, "cross_rank": None},  # their transfer is unknown
    ],
)
def test_nothing_is_said_of_few_fast_large_or_overlapped_ones(changes: dict[str, Any]) -> None:
    assert tiny(run_of(**changes)) == []


@pytest.mark.parametrize(
    ("phases", "exposed_ms", "said"),
    [
        (["DistributedDataParallel.forward"], 8, True),
        (["DistributedDataParallel.forward"], 1, False),
        ([], 8, False),  # broadcasts of the program's own
        (["DistributedDataParallel.forward", "Optimizer.step#ZeroRedundancyOptimizer.step"], 8, False),
    ],
)
def test_broadcasts_of_buffers(phases: list[str], exposed_ms: int, *, said: bool) -> None:
    rows = [PhaseStat(name=name, count=STEPS, total_ns=10 * MS, max_ns=5 * MS) for name in phases]
    own = make_collective(operator="broadcast", bytes=512, count=2 * STEPS, exposed_ns=exposed_ms * MS * STEPS)
    ranks = [replace(rank, collectives=[own], phases=rows) for rank in make_ranks([COMMUNICATING, COMMUNICATING])]
    several = found(make_scaled(2, 100, ranks=ranks, cross_rank=None, efficiency=None))
    assert any(insight.rule == "broadcast_buffers" for insight in several) == said
    if said:
        insight = only("broadcast_buffers", several)
        assert insight.sentence.endswith("DDP broadcasts buffers before each forward, 2 per step")
        assert insight.potential_saving_ns == 8 * MS


@pytest.mark.parametrize(("dimension", "said"), [(None, 1), ("dp", 1), ("tp", 0), ("shard+cp", 0)])
def test_collectives_that_depend_on_each_other_are_not_combined(dimension: str | None, said: int) -> None:
    """Each all-reduce of tensor parallelism is part of its layer, however small it is."""
    run = run_of(each_us=100, per_step=66)
    assert run.cross_rank is not None
    (row,) = run.cross_rank.collectives
    across = replace(run.cross_rank, collectives=[replace(row, dimension=dimension)])
    assert len(tiny(replace(run, cross_rank=across))) == said


def test_which_collectives_are_told_is_found_once_and_not_per_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model of variable shapes has hundreds of sizes, on each of thousands of ranks."""
    run = run_of(each_us=100, per_step=66)
    assert run.cross_rank is not None
    (tiny_row,) = run.cross_rank.collectives
    large = replace(tiny_row, bytes=1 << 24)
    rows = [*(replace(tiny_row, bytes=size) for size in range(8, 28)), large]
    context = loss_context(replace(run, cross_rank=replace(run.cross_rank, collectives=rows)), None)
    assert context is not None
    evaluated: list[LossContext] = []
    evaluate = avoidable.tiny_collectives

    def counted(given: LossContext) -> Loss | None:
        evaluated.append(given)
        return evaluate(given)

    monkeypatch.setattr(avoidable, "tiny_collectives", counted)
    assert unreported(context, rows) == [large]
    assert len(evaluated) == 1


def test_what_is_saved_of_several_dimensions_is_told_once() -> None:
    run = run_of(each_us=100, per_step=66)
    assert run.cross_rank is not None
    (row,) = run.cross_rank.collectives
    rows = [
        replace(row, dimension=name, count=row.count * part // 3, bytes=8 * part)
        for name, part in (("dp", 2), (None, 1))
    ]
    context = loss_context(replace(run, cross_rank=replace(run.cross_rank, collectives=rows)), None)
    assert context is not None
    reported = [reported_ns(context, name) for name in ("dp", None, "cp")]
    assert reported == pytest.approx([6.5 * MS * 2 / 3, 6.5 * MS / 3, 0])
