"""The profiler's cost: a figure only where it can be told from noise."""

from collections.abc import Sequence

import pytest

from perfkit.records.run import ProfilerCost
from perfkit.report.content.run_facts import key_values
from tests.support.reports.report_builders import make_record, make_run
from tests.support.reports.worded import profiler_cost

US = 1_000


def cost_of(plain: Sequence[int], recorded: Sequence[int]) -> ProfilerCost:
    """The cost in a run of one rank with these steps (µs)."""
    walls_ns = [step * US for step in (*plain, *recorded)]
    return profiler_cost([make_record(walls_ns)], [*["plain"] * len(plain), *["active"] * len(recorded)])  # type: ignore[list-item]


def said(cost: ProfilerCost) -> str:
    (line,) = [line for line in key_values(make_run(profiler_cost=cost)) if line.label == "profiler overhead"]
    return line.value


def test_a_clear_cost_is_a_figure() -> None:
    cost = cost_of([100, 101, 102, 103], [150, 151, 152])
    assert (cost.added_ns, cost.interval_ns, cost.reason) == (49_500, (47_000, 52_000), None)
    assert said(cost) == "×1.49 per step, +49.5 µs (151 µs vs. 102 µs without)"


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
