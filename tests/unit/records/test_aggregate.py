"""The step time, from the run's own clock and from traces."""

from collections.abc import Sequence

from msgspec.structs import replace

from perfkit.records.aggregate import (
    MOST_IDLE_CAUSES,
    OTHER_DETAILS,
    add_idle_causes,
    clock_step_times,
    real_steps_ns,
    step_time_ns,
    traced_step_ns,
)
from perfkit.records.manifest import RankRecord, StepKind
from perfkit.records.per_rank.idle import IdleCause
from perfkit.records.per_run.pauses import RecordedPause
from perfkit.records.rank import StepBreakdown
from perfkit.records.run import StepTimes
from tests.support.reports.report_builders import make_rank, make_step

KINDS: list[StepKind] = ["cold", "plain", "active", "plain", "active"]


def record(rank: int, walls_ns: Sequence[int]) -> RankRecord:
    return RankRecord(
        rank=rank,
        local_rank=rank,
        node_rank=0,
        host="a",
        device="cpu",
        device_name="",
        threads=1,
        step_wall_ns=list(walls_ns),
        load_ns=[],
        loss=[],
    )


def step(number: int, wall_ns: int) -> StepBreakdown:
    return make_step(number, compute=wall_ns, communication=0, data_loading=0, overhead=0, hidden=0)


def test_a_stall_after_the_last_collective_counts_once() -> None:
    # The other rank waits in the next step: each of them takes 27 and 127 in turn, 77 on average.
    kinds: list[StepKind] = ["plain"] * 4
    times = clock_step_times([record(0, [127, 27, 127, 27]), record(1, [27, 127, 27, 127])], kinds)
    assert sum(times.plain_ns) / 4 == 77


def test_a_step_is_as_long_as_on_its_slowest_rank() -> None:
    times = clock_step_times([record(0, [9, 1, 5, 4, 7]), record(1, [8, 2, 6, 3, 5])], KINDS)
    assert times == StepTimes(plain_ns=[1, 4], recorded_ns=[5, 7])


def test_steps_that_some_rank_did_not_complete_do_not_count() -> None:
    times = clock_step_times([record(0, [9, 1, 5, 4, 7]), record(1, [8, 2, 6])], KINDS)
    assert times == StepTimes(plain_ns=[2], recorded_ns=[6])
    assert clock_step_times([], KINDS) == StepTimes(plain_ns=[], recorded_ns=[])


def test_a_step_after_a_pause_counts_only_if_there_are_no_others() -> None:
    pause = RecordedPause(phase="checkpoint", step=1, begin_ns=0, end_ns=1)
    one = replace(record(0, [9, 1, 5, 4, 7]), pauses=[pause])
    assert clock_step_times([one], KINDS) == StepTimes(plain_ns=[4], recorded_ns=[5, 7])
    two = replace(one, pauses=[pause, replace(pause, step=3)])
    assert clock_step_times([two], KINDS).plain_ns == [1, 4]


def test_steps_without_the_profiler_are_real_and_recorded_ones_too_where_those_are_longer() -> None:
    def real(plain_ns: list[int], recorded_ns: list[int]) -> list[int]:
        return real_steps_ns(StepTimes(plain_ns=plain_ns, recorded_ns=recorded_ns))

    assert real([90], [100, 104]) == [90]
    assert real([120], [100, 104]) == [120, 100, 104]
    assert real([120], []) == [120]
    assert real([], [100, 104]) == []
    assert real([90, 900], [100, 104]) == [90, 900]  # a long step, which no recorded one stands for
    assert real([110, 900], [100, 104]) == [110, 900, 100, 104]
    assert real([900], [100, 104]) == [900]


def test_traced_steps_are_matched_by_number() -> None:
    ranks = [make_rank(0, [step(3, 10), step(4, 20)]), make_rank(1, [step(4, 25), step(5, 5)])]
    assert traced_step_ns(ranks) == {3: 10, 4: 25, 5: 5}
    assert step_time_ns(traced_step_ns(ranks).values()) == 40 / 3


def test_no_steps_have_no_step_time() -> None:
    assert step_time_ns([]) is None
    assert step_time_ns([4, 1]) == 2.5


def test_idle_causes_that_were_added_up_before_have_one_row_for_the_others() -> None:
    rows = [_cause(n) for n in range(150)]
    once = add_idle_causes(rows)
    twice = add_idle_causes([*once, *add_idle_causes(rows[:120])])
    expected = [sum(row.total_ns for row in summed) for summed in (rows, rows + rows[:120])]
    for found, total_ns in zip((once, twice), expected, strict=True):
        assert [row.detail for row in found].count(OTHER_DETAILS) == 1
        assert sum(row.total_ns for row in found) == total_ns
        assert len(found) == MOST_IDLE_CAUSES + 1


def _cause(number: int) -> IdleCause:
    time_ns = 10 + number
    return IdleCause(cause="host_work", detail=f"f{number}", context=None, count=1, total_ns=time_ns, max_ns=time_ns)
