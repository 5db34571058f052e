import re
from collections import Counter

import pytest

from perfkit.errors import UsageError
from perfkit.tools.sweep.plan import (
    Axis,
    arguments,
    combinations,
    parse_axis,
    parse_ranks,
    parse_values,
    plan,
    shuffled,
)
from tests.support.reports.sweep_builders import config_of, points_of, wanted


def sizes(*ranks: int, scaling: tuple[str, ...]) -> list[tuple[int, int, tuple[str, ...]]]:
    return [(p.ranks, p.config["batch_size"], p.scaling) for p in points_of(wanted(ranks=ranks, scaling=scaling))]


def test_weak_scaling_keeps_the_batch_per_rank_and_strong_the_global_batch() -> None:
    assert sizes(1, 2, 4, scaling=("weak",)) == [(1, 16, ("weak",)), (2, 16, ("weak",)), (4, 16, ("weak",))]
    assert sizes(1, 2, 4, scaling=("strong",)) == [(1, 16, ("strong",)), (2, 8, ("strong",)), (4, 4, ("strong",))]


def test_the_smallest_world_size_has_the_given_batch_size_and_runs_once() -> None:
    assert sizes(4, 8, scaling=("strong", "weak")) == [
        (4, 16, ("strong", "weak")),
        (8, 8, ("strong",)),
        (8, 16, ("weak",)),
    ]


def test_ranks_that_do_not_divide_the_global_batch_are_named() -> None:
    with pytest.raises(
        UsageError, match=re.escape("3 ranks do not divide the global batch of 32 samples (16 per rank")
    ):
        points_of(wanted(ranks=(2, 3), scaling=("weak", "strong")))


def test_every_combination_is_repeated_and_repeats_come_last() -> None:
    asked = wanted(axes=(Axis("source", ("memory", "hdf5")), Axis("compile", ("false", "true"))), repeats=3)
    points = points_of(asked)
    assert [point.repeat for point in points] == [1] * 8 + [2] * 8 + [3] * 8
    assert len({point.name for point in points}) == 24
    assert set(Counter(point.key for point in points).values()) == {3}


def test_points_have_the_given_options() -> None:
    asked = wanted(
        scaling=("strong",),
        axes=(Axis("source", ("hdf5",)), Axis("compile", ("false",)), Axis("static_graph", ("true",))),
        options=("--steps", "8"),
    )
    _, two = points_of(asked)
    given = ["gpt", "--steps", "8", "--source=hdf5", "--no-compile", "--static-graph", "--trace-dir", "traces/s"]
    assert arguments(asked, combinations(asked)[0]) == given
    assert two.command == ["run", *given, "--batch-size", "8", "--no-report", "--name", two.name]


def test_a_varied_batch_size_scales_too() -> None:
    asked = wanted(axes=(Axis("batch_size", ("8", "32")),), scaling=("strong",))
    configs = [config_of(asked, {}) | {"batch_size": size} for size in (8, 32)]
    assert [(p.ranks, p.config["batch_size"]) for p in plan(asked, configs)] == [(1, 8), (2, 4), (1, 32), (2, 16)]
    assert plan(asked, configs)[1].command[-5:-3] == ["--batch-size", "4"]  # the last one counts


def test_meshes_have_their_own_ranks_and_share_the_global_batch() -> None:
    asked = wanted(axes=(Axis("mesh", ("dp=4", "dp=2,tp=2", "pp=2,dp=4", "dp=3")),), scaling=("strong", "weak"))
    configs = [config_of(asked, varied) for varied in combinations(asked)]
    found = [(p.ranks, p.config["batch_size"], p.scaling) for p in plan(asked, [*configs[:3], None])]
    # Two replicas are the fewest: 32 samples.
    by_scaling = [(4, 8, ("strong",)), (4, 16, ("weak",)), (4, 16, ("strong", "weak"))]
    assert found == [*by_scaling, (8, 8, ("strong",)), (8, 16, ("weak",))]


def test_equal_configurations_run_once() -> None:
    asked = wanted(axes=(Axis("config", ("a.toml", "b.toml")),))
    assert len(points_of(asked)) == 2


def test_the_order_depends_on_the_seed_only() -> None:
    points = points_of(wanted(ranks=(1, 2, 4), repeats=5))
    assert shuffled(points, 1) == shuffled(points, 1) != shuffled(points, 2)
    assert sorted(p.name for p in shuffled(points, 1)) == sorted(p.name for p in points)
    assert [p.repeat for p in shuffled(points, 0)] != sorted(p.repeat for p in points)


def test_an_axis_is_parsed() -> None:
    assert parse_axis("compile=false,true") == Axis("compile", ("false", "true"))
    assert parse_axis("--num-workers = 0, 2") == Axis("num_workers", ("0", "2"))
    schedules = ("wait=1,active=3", "wait=2,active=5")
    assert parse_axis("schedule=" + ";".join(schedules)) == Axis("schedule", schedules)
    assert parse_ranks("4,1,2") == (1, 2, 4)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("compile", "write it as OPTION=VALUE,VALUE"),
        ("=1,2", "write it as OPTION=VALUE,VALUE"),
        ("a b=1", "write it as OPTION=VALUE,VALUE"),
        ("compile=", "a value is empty"),
        ("compile=true,,false", "a value is empty"),
        ("compile=true,true", "true is given twice"),
    ],
)
def test_an_invalid_axis_is_refused(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse_axis(text)


@pytest.mark.parametrize("text", ["0", "1,x", "-1", "1,1", "", "01,1"])
def test_invalid_ranks_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--ranks"):
        parse_ranks(text)


def test_one_value_is_enough() -> None:
    assert parse_values("memory", "--source") == ("memory",)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"options": ("--name", "x")}, "--name after --: the sweep names its runs"),
        ({"options": ("--trace-dir=x",)}, "--trace-dir=x after --: use --trace-dir of the sweep"),
        ({"options": ("-n", "2")}, "-n after --: use --ranks of the sweep"),
        ({"options": ("-n2",)}, "-n2 after --: use --ranks of the sweep"),
        ({"options": ("--ranks", "2")}, "--ranks after --: use --ranks of the sweep"),
        ({"options": ("--source", "hdf5")}, "--source after --: the sweep varies it"),
        ({"axes": (Axis("name", ("x",)),)}, "--vary name: the sweep names its runs"),
        ({"axes": (Axis("a", ("x",)), Axis("a", ("y",)))}, "--vary a: varied twice"),
        ({"axes": (Axis("compile", ("true",)),), "options": ("--no-compile",)}, "--no-compile after --: the sweep"),
    ],
)
def test_options_that_the_sweep_sets_are_refused(given: dict[str, object], why: str) -> None:
    with pytest.raises(UsageError, match=re.escape(why)):
        wanted(**given)


def test_options_of_the_run_may_be_similar() -> None:
    options = ("--no-profile", "--num-workers", "2", "-1", "--no-overlap")
    assert wanted(options=options).options == options
