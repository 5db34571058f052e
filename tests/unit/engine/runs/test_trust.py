"""What makes an answer doubtful, and in which order."""

from collections.abc import Sequence
from typing import Any

import pytest

from perfkit.engine.runs.trust import doubts
from perfkit.records.aggregate import real_steps_ns, step_time
from perfkit.records.common import Observation
from perfkit.records.manifest import StepKind
from perfkit.records.rank import RankReport
from perfkit.records.run import CoreLoad, Doubt, ProfilerCost, StepTimes
from perfkit.report.wording import worded
from perfkit.report.wording.trust import trust_line
from tests.support.reports.report_builders import MS, make_cost, make_rank, make_record, make_step
from tests.support.reports.worded import profiler_cost

BUSY = CoreLoad(ranks=[0], cores=2, own=0.4, others=1.6, idle=0.0, taken_share=0.8)

KINDS: list[StepKind] = ["plain", "plain", "plain", "plain", "active", "active", "active"]


def rank_of(*walls_ms: int) -> RankReport:
    steps = [make_step(number, compute=(wall - 40) * MS) for number, wall in enumerate(walls_ms)]
    return make_rank(0, steps)


def found(
    *seen: Observation,
    loads: tuple[CoreLoad, ...] = (),
    walls_ms: tuple[int, ...] = (100, 101, 99),
    cost: ProfilerCost | None = None,
    config: dict[str, Any] | None = None,
    plain_ms: Sequence[int] = (),
) -> list[Doubt]:
    ranks = [rank_of(*walls_ms)]
    recorded_ns = [ms * MS for ms in walls_ms] if plain_ms else []
    times = StepTimes(plain_ns=[ms * MS for ms in plain_ms], recorded_ns=recorded_ns)
    return worded(doubts(seen, loads, ranks, cost, config, step_time(real_steps_ns(times), ranks), times))


def test_equal_steps_on_a_quiet_machine_leave_no_doubt() -> None:
    quiet = CoreLoad(ranks=[0], cores=2, own=1.8, others=0.2, idle=0.0, taken_share=0.1)
    assert found(loads=(quiet,)) == []


def test_a_busy_machine_is_the_heaviest_doubt_and_overrules_the_answer() -> None:
    first, second = found(Observation("ranks_missing", {"missing": 2, "of": 4}), loads=(BUSY,))
    assert (first.code, first.overrules) == ("busy_machine", True)
    assert first.figures == {"others": 1.6, "cores": 2.0, "taken_share": 0.8}
    assert (second.code, second.overrules, second.findings[0]) == ("ranks_missing", False, "ranks_missing")


@pytest.mark.parametrize(
    ("seen", "code", "what"),
    [
        (Observation("damaged_trace", file="rank1.json"), "events_lost", "events are missing in 1 trace"),
        (Observation("skipped_events", file="rank1.json"), "events_lost", "events are missing in 1 trace"),
        (
            Observation("start_skew", {"first_ns": 2100 * MS, "usual_ns": 1.0, "has_later": True}),
            "start_skew",
            "ranks began to record up to 2.10 s apart",
        ),
        (
            Observation("ranks_missing", {"chosen": [0, 3], "world_size": 8}, "not_chosen"),
            "ranks_missing",
            "6 of 8 ranks have no trace",
        ),
        (Observation("steps_missing", {"missing": 1}), "events_lost", "events are missing in 1 trace"),
        (Observation("kernels_lost", {"launches": 1, "of": 9}, "all"), "events_lost", "events are missing in 1 trace"),
        (
            Observation("impossible_times", {"activities": 10, "of": 100, "removed_ns": 1}),
            "impossible_times",
            "times of the device contradict its launches",
        ),
        (
            Observation("device_clock_differs", {"ns": 11 * MS}, "ahead"),
            "impossible_times",
            "times of the device contradict its launches",
        ),
        (Observation("world_size_unknown", {"backends": []}), "ranks_missing", "ranks may be missing"),
        (Observation("suspect_matches"), "matches_suspect", "the traces of the ranks contradict each other"),
        (Observation("no_steps", {"marker": None}), "no_steps", "no steps are marked"),
        (Observation("uneven_steps"), "uneven_steps", "the ranks recorded different steps"),
        (
            Observation("compilation_recorded", {"recorded": [5, 6]}, "manifest"),
            "compilation_recorded",
            "code was compiled in steps 5-6",
        ),
        (
            Observation("possible_communication", {"share": 0.12}),
            "possible_communication",
            "12 % of kernel time may be communication",
        ),
    ],
)
def test_findings_that_cast_doubt_on_the_answer_are_doubts(seen: Observation, code: str, what: str) -> None:
    (doubt,) = found(seen)
    assert (doubt.code, doubt.what) == (code, what)
    assert seen.code in doubt.findings


def test_ranks_that_began_to_record_at_nearly_the_same_time_are_no_doubt() -> None:
    assert found(Observation("start_skew", {"first_ns": 29 * MS, "usual_ns": 1.0, "has_later": True})) == []


def test_what_was_bounded_or_left_out_and_is_little_is_no_doubt() -> None:
    assert found(Observation("impossible_times", {"activities": 9, "of": 100, "removed_ns": 9 * MS})) == []
    assert found(Observation("device_clock_differs", {"ns": 9 * MS}, "behind")) == []
    assert found(Observation("kernels_lost", {"launches": 1, "of": 9, "judged": [5, 6]}, "some")) == []


def test_findings_about_the_program_are_none() -> None:
    assert found(Observation("straggler"), Observation("oversubscribed"), Observation("injected_delay")) == []


@pytest.mark.parametrize("config", [None, {"detail": "time"}])
def test_a_single_step_is_few(config: dict[str, Any] | None) -> None:
    (doubt,) = found(walls_ms=(100,), config=config)
    assert (doubt.code, doubt.what, doubt.remedy) == ("few_steps", "1 step recorded", "record 10 steps")
    assert [one.what for one in found(walls_ms=(100, 100), config=config)] == ["2 steps recorded"]


@pytest.mark.parametrize(
    ("walls_ms", "remedy"),
    [((100, 100, 160), "record 10 steps"), ((*[100] * 9, 220), "record 100 steps"), ((*[100] * 9, 200), "")],
)
def test_steps_of_which_some_are_far_longer_are_a_doubt_and_more_of_them_less_so(
    walls_ms: tuple[int, ...], remedy: str
) -> None:
    doubts_found = found(walls_ms=walls_ms)
    assert [(one.code, one.remedy) for one in doubts_found] == ([("varying_steps", remedy)] if remedy else [])
    if len(walls_ms) == 3:
        assert doubts_found[0].what == "steps take 100 ms to 160 ms"
        assert doubts_found[0].figures == {"steps": 3, "mean_ns": 120 * MS, "standard_error": pytest.approx(1 / 6)}


@pytest.mark.parametrize(
    ("plain_ms", "what"),
    [
        ([60], "the step time has a standard error of 35 %"),
        ([60, 60], "the step time has a standard error of 24 %"),
        ([60] * 30, ""),
        ([120], ""),  # no shorter than recorded ones, which it is averaged with
        ([120, 130, 900], ""),
    ],
)
def test_a_step_that_is_the_mean_of_few_which_vary_is_a_doubt(plain_ms: Sequence[int], what: str) -> None:
    doubts_found = found(walls_ms=(80, 120) * 5, plain_ms=plain_ms)
    assert [(one.what, one.remedy) for one in doubts_found if one.code == "varying_steps"] == (
        [(what, "run longer")] if what else []
    )


def test_a_profiler_that_takes_much_of_the_step_is_a_doubt() -> None:
    (doubt,) = found(cost=make_cost(100 * MS, 150 * MS), config={"detail": "why"})
    assert (doubt.code, doubt.what, doubt.remedy) == (
        "profiler_cost",
        "the profiler takes 33 % of a recorded step",
        "--detail time",
    )
    assert found(cost=make_cost(100 * MS, 105 * MS), config={}) == []


def test_recorded_steps_that_are_faster_than_the_others_are_not_typical() -> None:
    cost = profiler_cost([make_record([150 * MS, 151 * MS, 152 * MS, 153 * MS, 100 * MS, 101 * MS, 102 * MS])], KINDS)
    (doubt,) = found(cost=cost, config={})
    assert (doubt.code, doubt.what) == ("not_typical", "recorded steps are faster than the others")


@pytest.mark.parametrize(
    ("plain_ms", "what", "remedy"),
    [
        ([100] * 78 + [1000] * 11, "11 unrecorded steps of 89 take 59 % of the time", "active=10"),
        ([100] * 40 + [3000], "1 unrecorded step of 41 takes 43 % of the time", "active=100"),
        ([90, 110] * 10 + [250] * 10, "10 unrecorded steps of 30 take 56 % of the time", "active=10"),
    ],
)
def test_steps_that_no_recorded_one_is_like_are_a_doubt(plain_ms: list[int], what: str, remedy: str) -> None:
    (doubt,) = found(plain_ms=plain_ms)
    assert (doubt.code, doubt.what) == ("not_typical", what)
    assert doubt.remedy.endswith(remedy)


@pytest.mark.parametrize("plain_ms", [[], [100] * 20, [80, 120, 149] * 9, [100] * 99 + [300]])
def test_steps_that_vary_or_a_short_stall_leave_none(plain_ms: list[int]) -> None:
    assert found(plain_ms=plain_ms) == []


def test_the_line_has_two_doubts_only_where_they_fit() -> None:
    missing = Observation("ranks_missing", {"missing": 2, "of": 4})
    assert trust_line([]) == ""
    differ = Observation("uneven_steps", {})
    assert trust_line(found(differ, walls_ms=(100,))) == (
        "Trust: 1 step recorded (record 10 steps); the ranks recorded different steps"
    )
    line = trust_line(found(missing, loads=(BUSY,)))
    assert line == "Trust: other processes used 1.6 of 2 cores (record on an idle machine)"
    assert len(line) < 80
