"""The verdict: measured shares, and `-bound` only of what takes nearly the whole step."""

from collections.abc import Callable
from typing import Final

import pytest
from msgspec.structs import replace

from perfkit.engine.runs.verdict import classify_bottleneck
from perfkit.pipeline.words import verdict as worded
from perfkit.records.per_rank.idle import IdleNs
from perfkit.records.run import Verdict
from tests.support.reports.report_builders import MS, make_collective, make_cost, make_loading, make_rank, make_step


def verdict_of(*, profiler: float = 0, at_most: float = 0, loader: bool = True, **parts: float) -> Verdict:
    """The verdict on a run whose steps have these parts (ms); the profiler's cost is known, or only its bound."""
    none = {"compute": 0.0, "communication": 0.0, "memcpy": 0.0, "data_loading": 0.0, "overhead": 0.0}
    times = {name: round(value * MS) for name, value in (none | parts).items()}
    rows = [make_collective(exposed_ns=3 * times["communication"])]
    ranks = [make_rank(0, [make_step(number, **times, hidden=0) for number in range(3)], collectives=rows)]
    wall = sum(times.values())
    cost = make_cost(wall - round(profiler * MS), wall) if profiler else None
    if at_most:
        noise = (-MS, round(at_most * MS))
        cost = replace(make_cost(wall, wall), added_ns=None, ratio=None, interval_ns=noise, reason="noise")
    return worded(classify_bottleneck(ranks, make_loading() if loader else None, None, None, cost))


TABLE: Final[list[tuple[dict[str, float], str, str | None]]] = [
    ({"compute": 71.5, "communication": 26, "overhead": 2.5}, "none", "communication"),
    ({"compute": 62, "overhead": 38}, "none", "overhead"),
    ({"compute": 85, "memcpy": 15}, "compute", "memcpy"),
    ({"compute": 100}, "compute", None),
    ({"compute": 20, "data_loading": 80}, "input", "data_loading"),
    ({"compute": 21, "data_loading": 79}, "none", "data_loading"),
    ({"compute": 10, "memcpy": 90}, "memcpy", "memcpy"),
    ({"communication": 85, "overhead": 15}, "none", "communication"),
]


@pytest.mark.parametrize(("parts", "bound", "loss"), TABLE)
def test_shares_are_stated_and_bound_needs_nearly_all(parts: dict[str, float], bound: str, loss: str | None) -> None:
    verdict = verdict_of(**parts)  # type: ignore[arg-type]
    assert (verdict.bound, verdict.largest_loss) == (bound, loss)


def test_the_verdicts_in_words(golden: Callable[[str, str], None]) -> None:
    sentences = [verdict_of(**parts).sentence for parts, *_ in TABLE]  # type: ignore[arg-type]
    golden("\n".join(sentences), "wording/verdicts.txt")


def test_what_the_profiler_adds_does_not_make_a_run_bound() -> None:
    # 5.3 ms of 11, 2 of them the profiler's.
    verdict = verdict_of(compute=5.7, overhead=5.3, profiler=2)
    assert verdict.bound == "none"
    assert verdict.sentence.endswith("48 %; the profiler adds 2.00 ms per step (18 %), which may be part of it")
    assert verdict_of(compute=15, overhead=85).bound == "host"
    assert verdict_of(compute=15, overhead=85, profiler=30).bound == "none"
    # Nor compute, in whose operators a part of the cost may lie.
    assert verdict_of(compute=82, overhead=18).bound == "compute"
    assert verdict_of(compute=82, overhead=18, profiler=15).bound == "none"


def test_a_cost_of_which_only_bounds_are_known_is_told_by_them() -> None:
    ranks = [make_rank(0, [make_step(number, compute=10 * MS, overhead=90 * MS, hidden=0) for number in range(3)])]
    cost = replace(make_cost(MS, 100 * MS), added_ns=None, ratio=None, interval_ns=(MS, 95 * MS), reason="varies")
    verdict = worded(classify_bottleneck(ranks, make_loading(), None, None, cost))
    assert verdict.bound == "none"
    assert verdict.sentence.endswith(
        "; all of it may be the profiler's cost, which is 1.00 ms to 95.0 ms per step here"
    )


def test_idle_time_that_may_all_be_the_profilers_is_no_loss() -> None:
    # The profiler adds 18.1 ms, idle time is 15.1.
    verdict = verdict_of(compute=80, communication=4.9, overhead=15.1, profiler=18.1)
    assert verdict.largest_loss == "communication"
    assert verdict.sentence == (
        "80 % compute; 15 % is idle time, but the profiler adds 18.1 ms per step (18 %); "
        "the largest other loss is exposed communication, 5 % (100 % of it all_reduce)"
    )
    alone = verdict_of(compute=84.9, overhead=15.1, profiler=18.1)
    assert (alone.bound, alone.largest_loss) == ("compute", None)  # 66.8 of 81.9 ms at least
    # Without any idle time the profiler is not mentioned.
    assert "profiler" not in verdict_of(compute=60, communication=30, overhead=10, profiler=5).sentence


def test_the_bound_of_a_cost_that_cannot_be_told_from_noise_is_said_where_it_decides() -> None:
    unknown = "which cannot be told from noise here"
    some = verdict_of(compute=60, overhead=40, at_most=30).sentence
    assert some.endswith(f"40 %; up to 30.0 ms per step of it may be the profiler's cost, {unknown}")
    assert (
        f"all of it may be the profiler's cost, {unknown}" in verdict_of(compute=60, overhead=40, at_most=45).sentence
    )
    assert verdict_of(compute=15, overhead=85, at_most=80).bound == "none"
    # Not where most of the idle time is not the profiler's, nor where idle time is not the largest loss.
    assert "profiler" not in verdict_of(compute=60, overhead=40, at_most=19).sentence
    assert "profiler" not in verdict_of(compute=60, communication=30, overhead=10, at_most=19).sentence
    assert "profiler" not in verdict_of(compute=60, communication=20, overhead=20, at_most=19).sentence


def test_idle_time_may_be_an_unmarked_loader_unless_loading_was_seen() -> None:
    assert "or data if your loader is not torch's" in verdict_of(compute=40, overhead=60, loader=False).sentence
    assert "data" not in verdict_of(compute=40, overhead=60).sentence


@pytest.mark.parametrize(
    ("compute", "loader", "sentence"),
    [
        (40, True, "40 % compute; the largest loss is idle time, 60 % (75 % of it launching)"),
        (40, False, "40 % compute; the largest loss is idle time, or data if your loader is not torch's, 60 % (75 % of "
         "it launching)"),
        (10, True, "host-bound: 90 % of the step is idle time (75 % of it launching)"),
    ],
)  # fmt: skip
def test_a_known_cause_of_idle_time_stands_in_place_of_possible_ones(compute: int, loader: bool, sentence: str) -> None:
    idle_ns = (100 - compute) * MS
    by_cause = IdleNs(launch_bound=idle_ns * 3 // 4, host_work=idle_ns // 4)
    step = make_step(0, compute=compute * MS, communication=0, data_loading=0, overhead=idle_ns, hidden=0)
    ranks = [make_rank(0, [replace(step, idle_ns=by_cause)])]
    assert worded(classify_bottleneck(ranks, make_loading() if loader else None)).sentence == sentence


def test_idle_time_that_is_all_launching_is_no_loading() -> None:
    step = make_step(0, compute=40 * MS, communication=0, data_loading=0, overhead=60 * MS, hidden=0)
    ranks = [make_rank(0, [replace(step, idle_ns=IdleNs(launch_bound=60 * MS))])]
    sentence = worded(classify_bottleneck(ranks, None)).sentence
    assert sentence == "40 % compute; the largest loss is idle time, 60 % (100 % of it launching)"


@pytest.mark.parametrize(
    ("compute", "loader", "sentence"),
    [
        (40, True, "40 % compute; the largest loss is idle time, 60 % (100 % of it unknown: launch gaps, Python, "
         "synchronisation)"),
        (10, False, "host-bound: 90 % of the step is idle time (100 % of it unknown: launch gaps, Python, "
         "synchronisation, or data if your loader is not torch's)"),
    ],
)  # fmt: skip
def test_an_unknown_cause_of_idle_time_leaves_the_possible_ones(compute: int, loader: bool, sentence: str) -> None:
    idle_ns = (100 - compute) * MS
    step = make_step(0, compute=compute * MS, communication=0, data_loading=0, overhead=idle_ns, hidden=0)
    ranks = [make_rank(0, [replace(step, idle_ns=IdleNs(unknown=idle_ns))])]
    assert worded(classify_bottleneck(ranks, make_loading() if loader else None)).sentence == sentence


def test_no_dimension_is_named_where_hardly_any_communication_is_in_a_collective() -> None:
    rows = [make_collective(dimension="dp", exposed_ns=MS // 10, total_ns=MS // 10)]
    step = make_step(0, compute=50 * MS, communication=50 * MS, data_loading=0, overhead=0)
    sentence = worded(classify_bottleneck([make_rank(0, [step], collectives=rows)], None)).sentence
    assert sentence == "50 % compute; the largest loss is exposed communication, 50 %"


def test_an_operator_that_is_unknown_is_not_named() -> None:
    rows = [make_collective(operator="unknown", dimension=None, exposed_ns=50 * MS, total_ns=50 * MS)]
    step = make_step(0, compute=50 * MS, communication=50 * MS, data_loading=0, overhead=0)
    sentence = worded(classify_bottleneck([make_rank(0, [step], collectives=rows)], None)).sentence
    assert sentence == "50 % compute; the largest loss is exposed communication, 50 %"


@pytest.mark.parametrize(
    ("exposed", "detail"),
    [
        ([("tp", "all_reduce", 6), ("dp", "all_reduce", 3), ("dp", "broadcast", 1)], "60 % of it in dimension tp"),
        ([("tp", "all_gather", 3), ("dp", "all_reduce", 3), ("dp", "broadcast", 4)], "70 % of it in dimension dp"),
        ([(None, "all_reduce", 6), ("dp", "all_reduce", 4)], "100 % of it all_reduce"),
        # The rest is in no collective: calls that issue them, or wait for them.
        ([("a\x1b[31m", "all_reduce", 6)], "60 % of it in dimension a"),
    ],
)
def test_communication_is_named_by_its_dimension(exposed: list[tuple[str | None, str, int]], detail: str) -> None:
    rows = [
        make_collective(operator=operator, dimension=name, exposed_ns=5 * ms * MS, total_ns=5 * ms * MS)
        for name, operator, ms in exposed
    ]
    ranks = [make_rank(0, [make_step(0, compute=50 * MS, communication=50 * MS)], collectives=rows)]
    sentence = worded(classify_bottleneck(ranks, None)).sentence
    assert detail in sentence
    assert "\x1b" not in sentence
