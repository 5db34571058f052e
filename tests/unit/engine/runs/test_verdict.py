"""The verdict: measured shares, and `-bound` only of what takes nearly the whole step."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import pytest
from msgspec.structs import replace

from perfkit.engine.runs.verdict import classify_bottleneck
from perfkit.pipeline.words import verdict as worded
from perfkit.records.per_rank.idle import IdleNs
from perfkit.records.run import Verdict
from tests.support.reports.report_builders import MS, make_collective, make_cost, make_loading, make_rank, make_step


def verdict_of(
    *,
    profiler: float = 0,
    at_most: float = 0,
    at_least: float = -1,
    loader: bool = True,
    idle: IdleNs | None = None,
    exposed: Sequence[tuple[str | None, str, float]] = (),
    **parts: float,
) -> Verdict:
    """The verdict on a run whose steps have these parts (ms); the profiler's cost is known, or only its bounds."""
    none = {"compute": 0.0, "communication": 0.0, "memcpy": 0.0, "data_loading": 0.0, "overhead": 0.0}
    times = {name: round(value * MS) for name, value in (none | parts).items()}
    rows = [
        make_collective(
            operator=operator, dimension=dimension, exposed_ns=round(3 * ms * MS), total_ns=round(3 * ms * MS)
        )
        for dimension, operator, ms in exposed or [(None, "all_reduce", parts.get("communication", 0))]
    ]
    steps = [replace(make_step(number, **times, hidden=0), idle_ns=idle or IdleNs()) for number in range(3)]
    wall = sum(times.values())
    cost = make_cost(wall - round(profiler * MS), wall) if profiler else None
    if at_most:
        bounds, reason = (round(at_least * MS), round(at_most * MS)), "noise" if at_least < 0 else "varies"
        cost = replace(make_cost(wall, wall), added_ns=None, ratio=None, interval_ns=bounds, reason=reason)
    ranks = [make_rank(0, steps, collectives=rows)]
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


WORDED: Final[list[dict[str, Any]]] = [
    # What the profiler adds, or may add, to the idle time.
    {"compute": 5.7, "overhead": 5.3, "profiler": 2},
    {"compute": 10, "overhead": 90, "at_least": 1, "at_most": 95},
    {"compute": 80, "communication": 4.9, "overhead": 15.1, "profiler": 18.1},
    {"compute": 60, "communication": 30, "overhead": 10, "profiler": 5},
    {"compute": 60, "overhead": 40, "at_most": 30},
    {"compute": 60, "overhead": 40, "at_most": 45},
    # Not where most of the idle time is not the profiler's, nor where idle time is not the largest loss.
    {"compute": 60, "overhead": 40, "at_most": 19},
    {"compute": 60, "communication": 30, "overhead": 10, "at_most": 19},
    {"compute": 60, "communication": 20, "overhead": 20, "at_most": 19},
    # Causes of idle time, known or possible.
    {"compute": 40, "overhead": 60},
    {"compute": 40, "overhead": 60, "loader": False},
    {"compute": 40, "overhead": 60, "idle": IdleNs(launch_bound=45 * MS, host_work=15 * MS)},
    {"compute": 40, "overhead": 60, "idle": IdleNs(launch_bound=45 * MS, host_work=15 * MS), "loader": False},
    {"compute": 10, "overhead": 90, "idle": IdleNs(launch_bound=68 * MS, host_work=22 * MS)},
    {"compute": 40, "overhead": 60, "idle": IdleNs(launch_bound=60 * MS), "loader": False},
    {"compute": 40, "overhead": 60, "idle": IdleNs(unknown=60 * MS)},
    {"compute": 10, "overhead": 90, "idle": IdleNs(unknown=90 * MS), "loader": False},
    # The dimension or operator of most of the communication.
    {"compute": 50, "communication": 50, "exposed": [("dp", "all_reduce", 0)]},
    {"compute": 50, "communication": 50, "exposed": [(None, "unknown", 50)]},
    {
        "compute": 50,
        "communication": 50,
        "exposed": [("tp", "all_reduce", 30), ("dp", "all_reduce", 15), ("dp", "broadcast", 5)],
    },
    {
        "compute": 50,
        "communication": 50,
        "exposed": [("tp", "all_gather", 15), ("dp", "all_reduce", 15), ("dp", "broadcast", 20)],
    },
    {"compute": 50, "communication": 50, "exposed": [(None, "all_reduce", 30), ("dp", "all_reduce", 20)]},
    # The rest is in no collective: calls that issue them, or wait for them.
    {"compute": 50, "communication": 50, "exposed": [("a\x1b[31m", "all_reduce", 30)]},
]


def test_the_verdicts_in_words(golden: Callable[[str, str], None]) -> None:
    cases = [*(parts for parts, *_ in TABLE), *WORDED]
    golden("\n".join(verdict_of(**parts).sentence for parts in cases), "wording/verdicts.txt")


def test_what_the_profiler_adds_does_not_make_a_run_bound() -> None:
    # 5.3 ms of 11, 2 of them the profiler's.
    assert verdict_of(compute=5.7, overhead=5.3, profiler=2).bound == "none"
    assert verdict_of(compute=15, overhead=85).bound == "host"
    assert verdict_of(compute=15, overhead=85, profiler=30).bound == "none"
    assert verdict_of(compute=15, overhead=85, at_most=80).bound == "none"
    assert verdict_of(compute=10, overhead=90, at_least=1, at_most=95).bound == "none"
    # Nor compute, in whose operators a part of the cost may lie.
    assert verdict_of(compute=82, overhead=18).bound == "compute"
    assert verdict_of(compute=82, overhead=18, profiler=15).bound == "none"


def test_idle_time_that_may_all_be_the_profilers_is_no_loss() -> None:
    # The profiler adds 18.1 ms, idle time is 15.1.
    assert verdict_of(compute=80, communication=4.9, overhead=15.1, profiler=18.1).largest_loss == "communication"
    alone = verdict_of(compute=84.9, overhead=15.1, profiler=18.1)
    assert (alone.bound, alone.largest_loss) == ("compute", None)  # 66.8 of 81.9 ms at least
