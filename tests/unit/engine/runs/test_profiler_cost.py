"""The profiler's cost: a figure only where it can be told from noise."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from perfkit.records.run import ProfilerCost
from perfkit.report.content.run_facts import key_values
from tests.support.reports.report_builders import make_record, make_run
from tests.support.reports.worded import profiler_cost

US = 1_000


def cost_of(
    plain: Sequence[int], recorded: Sequence[int], after: Sequence[int] | None = None, **fields: int
) -> ProfilerCost:
    """The cost in a run of one rank with these steps (µs); unless `after` is given, as many again follow."""
    after = plain if after is None else after
    walls_ns = [step * US for step in (*plain, *recorded, *after)]
    kinds = [*["plain"] * len(plain), *["active"] * len(recorded), *["plain"] * len(after)]
    return profiler_cost([replace(make_record(walls_ns), **fields)], kinds)  # type: ignore[arg-type]


def said(cost: ProfilerCost) -> str:
    (line,) = [line for line in key_values(make_run(profiler_cost=cost)) if line.label == "profiler overhead"]
    return line.value


def test_a_clear_cost_is_a_figure() -> None:
    cost = cost_of([100, 101, 102, 103], [150, 151, 152])
    assert (cost.added_ns, cost.interval_ns, cost.reason) == (49_500, (47_000, 52_000), None)
    assert said(cost) == "×1.49 per step, +49.5 µs (151 µs vs. 102 µs without)"


@pytest.mark.parametrize(("before", "after"), [([], [100, 101, 102, 103]), ([100, 101, 102, 103], [])])
def test_steps_on_one_side_may_differ_by_warm_up(before: list[int], after: list[int]) -> None:
    cost = cost_of(before, [150, 151, 152], after)
    assert (cost.ratio, cost.added_ns) == (None, None)
    assert said(cost).startswith("not measurable here: warm steps without the profiler are needed before and after")


def test_a_step_as_slow_without_the_profiler_is_no_cost() -> None:
    # It becomes faster while it warms up: recorded steps are as long as those before them.
    cost = cost_of([155, 152, 151], [150, 151, 153], [100, 101, 102, 103])
    assert (cost.ratio, cost.plain_step_ns) == (None, 152_667)
    assert cost_of([100, 101, 102], [150, 151, 152], [120, 121, 122]).added_ns == 30_000


def test_writing_traces_is_said_beside_it() -> None:
    assert said(cost_of([100, 101, 102], [150, 151, 152], writing_ns=1_200_000_000)).endswith(
        "without); writing traces took 1.20 s between steps"
    )


@pytest.mark.parametrize("recorded", [[96, 97, 130], [99, 104, 109]])
def test_a_cost_within_the_variation_between_steps_is_not_measurable(recorded: list[int]) -> None:
    cost = cost_of([90, 95, 100, 105, 110, 115], recorded)
    assert (cost.ratio, cost.added_ns) == (None, None)
    assert cost.interval_ns is not None
    assert said(cost).startswith("not measurable here: within the variation between steps, at most ")
    assert "×" not in said(cost)
    assert "-" not in said(cost)  # no negative cost


def test_a_cost_with_bounds_far_apart_is_no_figure() -> None:
    # Something else delayed two of three recorded steps.
    cost = cost_of([1310, 1230, 1370, 1180, 1300, 1060], [86_400, 1_660, 61_100])
    assert (cost.ratio, cost.added_ns) == (None, None)
    assert said(cost).startswith("not measurable here: only known to be between ")
    assert cost_of([100, 101, 102, 103], [130, 150, 170]).added_ns is not None


def test_recorded_steps_that_are_faster_are_no_negative_cost() -> None:
    cost = cost_of([100, 101, 102, 103], [80, 81, 82])
    assert (cost.ratio, cost.added_ns) == (None, None)
    assert "the recorded steps were the faster ones" in said(cost)


def test_too_few_steps_give_no_bound() -> None:
    cost = cost_of([100, 101], [150, 151])
    assert (cost.ratio, cost.interval_ns) == (None, None)
    assert said(cost).startswith("not measurable here: 2 recorded and 2 other steps are too few to tell it from noise")


def test_runs_without_one_kind_of_step_say_so() -> None:
    assert said(cost_of([], [100])).startswith("unknown: no warm step ran without the profiler")
    assert said(cost_of([100], [])).startswith("unknown: no step was recorded")
