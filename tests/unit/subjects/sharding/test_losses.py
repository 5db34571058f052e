"""Advice on sharded parameters: where it is true, and where nothing is said."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import perfkit
from perfkit.records.per_rank.sharding import ParameterGathers, ShardedParameters
from perfkit.records.report import Insight
from perfkit.records.run import RunReport
from tests.support.reports.report_builders import MS, make_across
from tests.support.reports.scaling_builders import make_ranks, make_scaled
from tests.support.traces.sharded_traces import STEP_US, ShardedTrace
from tests.unit.pipeline.test_insights import QUIET, found
from tests.unit.report.content.test_sharding_content import make_gathers, make_sharded

STEPS = 2
"""Steps of 100 ms of each rank."""


COMMUNICATING = QUIET | {"compute": 67 * MS, "communication": 30 * MS}


def run_of(*sharded: ShardedParameters, dp: str | None = None, **changes: Any) -> RunReport:
    """A run with one rank per argument."""
    pairs = zip(make_ranks([COMMUNICATING] * len(sharded)), sharded, strict=True)
    ranks = [replace(rank, steps=rank.steps[:STEPS], sharded_parameters=part) for rank, part in pairs]
    fields: dict[str, Any] = {"cross_rank": None, "efficiency": None, "ranks": ranks, "config": {"dp": dp}}
    return make_scaled(len(sharded), 100, **(fields | changes))


def said(rule: str, run: RunReport) -> Insight | None:
    return next((insight for insight in found(run) if insight.rule == rule), None)


def late(ms: int, **changes: Any) -> ParameterGathers:
    """All-gathers of backward of which 3 of 4 were issued late; `ms` in all steps."""
    return make_gathers(**({"late": 3, "late_ns": ms * MS, "exposed_ns": ms * MS} | changes))


def test_late_all_gathers_could_be_prefetched() -> None:
    """The rank that loses least tells what can be gained: others wait for it."""
    insight = said("fsdp_prefetch", run_of(make_sharded(late(16)), make_sharded(late(24))))
    assert insight is not None
    assert insight.sentence.endswith("6 of 8 all-gathers in backward are issued too late to be hidden")
    assert "set_modules_to_backward_prefetch" in insight.recommendation
    assert insight.potential_saving_ns == 8 * MS


def test_the_phase_that_loses_most_is_named() -> None:
    insight = said("fsdp_prefetch", run_of(*[make_sharded(late(12), late(20, phase="forward"))] * 2))
    assert insight is not None
    assert "in forward" in insight.sentence
    assert "set_modules_to_forward_prefetch" in insight.recommendation


@pytest.mark.parametrize(
    "row",
    [
        late(6),  # little
        make_gathers(exposed_ns=40 * MS, first_ns=40 * MS),
        make_gathers(exposed_ns=40 * MS, short_ns=40 * MS),
        make_gathers(exposed_ns=40 * MS, queued_ns=40 * MS),
        make_gathers(exposed_ns=40 * MS, synchronous_ns=40 * MS, waited_ns=40 * MS),
        late(40, phase=None),
    ],
)
def test_what_prefetching_does_not_help_is_not_advised_on(row: ParameterGathers) -> None:
    assert said("fsdp_prefetch", run_of(*[make_sharded(row)] * 2)) is None


def test_one_rank_that_waits_for_another_is_no_reason_to_prefetch() -> None:
    assert said("fsdp_prefetch", run_of(make_sharded(late(40)), make_sharded(late(0)))) is None


def resharded(ms: int, **changes: Any) -> ShardedParameters:
    """Forward and backward gather a layer of 1 MB in each of two steps."""
    again = make_gathers(layer="layers.0", bytes=2_000_000, count=2, exposed_ns=ms * MS, short_ns=ms * MS)
    rows = [replace(again, phase="forward"), again]
    return make_sharded(*rows, **({"regathered_bytes": 1_000_000} | changes))


@pytest.mark.parametrize(("dp", "how"), [("zero3", "use --dp zero2, if"), (None, "use reshard_after_forward=False")])
def test_the_price_of_resharding(dp: str | None, how: str) -> None:
    insight = said("fsdp_reshard", run_of(resharded(30), resharded(20), dp=dp))
    assert insight is not None
    assert insight.sentence == "Communication: backward gathers parameters again"
    assert insight.evidence["bytes"] == 1_000_000
    assert insight.recommendation.startswith(how)
    assert insight.potential_saving_ns == 10 * MS


def test_of_synchronous_all_gathers_the_whole_duration_counts() -> None:
    row = make_gathers(exposed_ns=2 * MS, synchronous_ns=2 * MS, waited_ns=40 * MS)
    insight = said("fsdp_reshard", run_of(*[make_sharded(row, replace(row, phase="forward"))] * 2))
    assert insight is not None
    assert insight.potential_saving_ns == 20 * MS


def test_unknown_sizes_are_not_invented() -> None:
    insight = said("fsdp_reshard", run_of(*[resharded(30, regathered_bytes=None)] * 2))
    assert insight is not None
    assert "bytes" not in insight.evidence


@pytest.mark.parametrize(
    "run",
    [
        run_of(*[resharded(8)] * 2),  # little
        run_of(*[resharded(30)] * 2, dp="hsdp"),  # perfkit run has no such option
        run_of(*[make_sharded(make_gathers(layer="a", exposed_ns=40 * MS, short_ns=40 * MS))] * 2),  # only in backward
        run_of(*[make_sharded(make_gathers(phase="forward", exposed_ns=40 * MS, short_ns=40 * MS))] * 2),  # as zero2
        run_of(
            *[
                make_sharded(
                    make_gathers(phase="forward", layer="a"),
                    make_gathers(layer="b", exposed_ns=40 * MS, short_ns=40 * MS),
                )
            ]
            * 2
        ),  # another layer's
    ],
)
def test_nothing_is_said_where_keeping_parameters_would_save_nothing(run: RunReport) -> None:
    assert said("fsdp_reshard", run) is None


def gathering(*, count: int = 48, size: int = 100_000, alpha_ms: float = 0.5, **changes: Any) -> RunReport:
    """All-gathers of parameters of two ranks; latency is half of the time at 1 MB."""
    known = make_across()
    row = replace(
        known.collectives[0],
        operator="all_gather",
        bytes=size,
        count=count * STEPS,
        ddp_bucket=False,
        dimension="shard",
    )
    fit = replace(known.bandwidth_fits[0], operator="all_gather", alpha_ns=alpha_ms * MS, beta=0.5 * 1e9 / alpha_ms)
    sharded = make_sharded(make_gathers(exposed_ns=60 * MS, short_ns=60 * MS))
    fields: dict[str, Any] = {"cross_rank": make_across(collectives=[replace(row, **changes)], bandwidth_fits=[fit])}
    return run_of(sharded, sharded, **fields)


def test_parameters_may_be_sharded_along_a_joint_dimension() -> None:
    assert said("fsdp_wrap", gathering(dimension="shard+cp")) is not None


def test_many_small_units_are_mostly_latency() -> None:
    insight = said("fsdp_wrap", gathering())
    assert insight is not None
    assert insight.sentence.endswith(": 48 all-gathers per step, of 100 kB on average")
    # Units twice as large have half the latencies.
    assert insight.potential_saving_ns == pytest.approx(12 * MS)


@pytest.mark.parametrize(
    "changes",
    [
        {"count": 9},
        {"size": 2_000_000},
        {"size": 8_000},
        {"alpha_ms": 0.05},
        {"dimension": "tp"},
        {"dimension": "cp"},
        {"dimension": None},
        {"operator": "all_reduce"},
    ],
)
def test_few_large_or_fast_ones_need_no_larger_units(changes: dict[str, Any]) -> None:
    assert said("fsdp_wrap", gathering(**changes)) is None


def write_training(folder: Path, *, issued_ahead: bool, reshards: bool = False) -> None:
    """Write two steps of two ranks whose forward gathers two layers, the first in 100 µs, the second in 200 µs.

    With `issued_ahead` the second is issued when the first has been gathered, and runs beside the first's kernel of
    300 µs; else when that has ended. With `reshards` backward gathers it again, in 90 µs.
    """
    for rank in range(2):
        trace = ShardedTrace(rank, steps=2)
        for at in (0, STEP_US):
            trace.forward(at, 700).gather("layers.0", at + 5, at + 10, 100).compute(at + 8, at + 110, 300)
            second = at + 110 if issued_ahead else at + 410
            trace.gather("layers.1", second - 5, second, 200).compute(at + 9, second + 200, 100)
            if reshards:
                trace.backward(at + 800, 150).gather("layers.1", at + 801, at + 805, 90, thread=2)
        trace.write(folder / f"rank{rank}.json")


def rules_of(folder: Path) -> dict[str, Insight]:
    return {insight.rule: insight for insight in perfkit.analyze(folder).insights}


def test_a_trace_whose_second_layer_is_gathered_late(tmp_path: Path) -> None:
    """Its issue, at 405, is 295 µs after its queue was free: enough to hide its 200 µs."""
    write_training(tmp_path, issued_ahead=False)
    insight = rules_of(tmp_path)["fsdp_prefetch"]
    assert insight.sentence.endswith("4 of 8 all-gathers in forward are issued too late to be hidden")
    assert insight.potential_saving_ns == 200_000


def test_a_trace_whose_second_layer_is_gathered_ahead(tmp_path: Path) -> None:
    write_training(tmp_path, issued_ahead=True)
    assert not {"fsdp_prefetch", "fsdp_reshard"} & set(rules_of(tmp_path))


def test_a_trace_whose_backward_gathers_again(tmp_path: Path) -> None:
    write_training(tmp_path, issued_ahead=True, reshards=True)
    insight = rules_of(tmp_path)["fsdp_reshard"]
    assert insight.sentence.endswith("backward gathers parameters again")
    assert insight.evidence["bytes"] == 4_000
    assert insight.potential_saving_ns == 90_000
