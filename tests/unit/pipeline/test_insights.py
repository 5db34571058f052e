"""Insights: which rules apply to which runs, and in which order."""

from typing import Any

import pytest
from msgspec.structs import replace

from perfkit.pipeline.words import find_insights
from perfkit.records.common import Category, Finding
from perfkit.records.cross_rank import CategoryLag, OneOffStraggler, RankWait, Straggler
from perfkit.records.per_run.pauses import RankPauses
from perfkit.records.rank import PhaseStat, RankReport
from perfkit.records.report import Insight
from perfkit.records.run import RunReport, StepTimes, Verdict
from perfkit.report.content.scaling import scaling as scaling_tables
from perfkit.subjects.scaling.summary import scaling
from tests.support.reports.report_builders import (
    MS,
    make_across,
    make_dimensions,
    make_efficiency,
    make_foreign_run,
    make_loading,
    make_rank,
    make_step,
)
from tests.support.reports.scaling_builders import make_factored, make_hosts, make_ranks, make_scaled, make_throughput

QUIET = {"compute": 96 * MS, "communication": 1 * MS, "data_loading": 1 * MS, "overhead": 2 * MS}
"""A step of 100 ms to which no rule applies."""


def found(*runs: RunReport) -> list[Insight]:
    return find_insights(runs, scaling(runs)).insights


def the(rule: str, several: list[Insight]) -> Insight:
    (one,) = [insight for insight in several if insight.rule == rule]
    return one


def advice(run: RunReport) -> str:
    return " ".join(insight.recommendation for insight in found(run))


def run_of(*parts: dict[str, int], **changes: Any) -> RunReport:
    """A run with one rank per part, on as many cores."""
    fields: dict[str, Any] = {
        "cross_rank": None,
        "efficiency": None,
        "dimensions": None,
        "data_loading": make_loading(source="memory"),
        "step_times": None,
    }
    return make_scaled(len(parts), 100, **(fields | {"ranks": make_ranks([QUIET | part for part in parts])} | changes))


def test_a_compute_bound_run_has_no_insights() -> None:
    assert found(run_of({}, {})) == []


def make_straggler(rank: int, **changes: Any) -> Straggler:
    fields: dict[str, Any] = {
        "rank": rank,
        "category": "data_loading",
        "lag_ns": 20 * MS,
        "share": 0.2,
        "gain_ns": 20 * MS,
        "steps_late": 4,
        "steps_last": 4,
        "steps": 4,
    }
    return Straggler(**(fields | changes))


def waiting_run(wait: int, transfer: int, *, slow: bool = True, **changes: Any) -> RunReport:
    """Two ranks: rank 1 loads 20 ms longer, rank 0 waits for it; `wait` and `transfer` are summed, in ms."""
    parts = (
        {"compute": 60 * MS, "communication": 30 * MS, "data_loading": 8 * MS},
        {"compute": 60 * MS, "communication": 10 * MS, "data_loading": 28 * MS},
    )
    late = make_straggler(1)
    fields: dict[str, Any] = {
        "efficiency": make_efficiency(wait_ns=wait * MS, transfer_ns=transfer * MS, unmatched_ns=0),
        "dimensions": make_dimensions(("dp", wait, transfer)),
        "cross_rank": make_across(stragglers=[late] if slow else [], stragglers_gain_ns=20 * MS if slow else 0),
    }
    return run_of(*parts, **(fields | changes))


def test_what_a_rank_is_late_in_besides_is_waited_for_too() -> None:
    late = make_straggler(1, gain_ns=28 * MS, also=[CategoryLag(category="compute", lag_ns=8 * MS)])
    across = make_across(stragglers=[late], stragglers_gain_ns=28 * MS)
    one = the("waiting", found(waiting_run(112, 48, cross_rank=across)))
    assert one.sentence == "Rank 1 late, 28.0 ms"


@pytest.mark.parametrize(
    ("config", "advice"),
    [
        ({"threads": None}, "use --threads 2"),
        ({"script": "train.py"}, "use torch.set_num_threads(2) or OMP_NUM_THREADS=2"),
        (None, "use torch.set_num_threads(2) or OMP_NUM_THREADS=2"),
    ],
)
def test_oversubscription_recommends_the_number_of_threads(config: dict[str, Any] | None, advice: str) -> None:
    run = waiting_run(128, 32, hosts=make_hosts(2, cores=4, threads=4), config=config)
    one = the("oversubscribed", found(run))
    assert one.sentence.startswith("node0 is oversubscribed: 8 threads on 4 cores")
    assert one.recommendation == advice


def test_a_stragglers_longer_loads_are_not_counted_twice() -> None:
    # Both ranks load for 8 ms; the 20 ms more of rank 1 are what rank 0 waits for.
    ledger = waiting_run(128, 32).ledger
    assert ledger is not None
    assert [(row.cause, row.ns) for row in ledger.rows[:2]] == [("compute", 60 * MS), ("late_ranks", 20 * MS)]


def test_per_sample_reads_get_the_advice_to_batch() -> None:
    one = the("waiting", found(waiting_run(128, 32, config={"read": "per-sample"})))
    assert one.recommendation == "use batched reads (--read batched), or --num-workers 2"


def test_no_rank_is_said_to_be_in_time_where_a_trace_is_damaged() -> None:
    damage = Finding(code="damaged_trace", severity="warning", message="the file breaks", file="rank1.json")
    one = the("waiting", found(waiting_run(128, 32, slow=False, findings=[damage])))
    assert "for other ranks (traces are damaged: whether one of them is late is not known)" in one.sentence


def test_two_late_ranks_are_both_named_and_one_alone_promises_nothing() -> None:
    late = [make_straggler(rank, gain_ns=0, category="overhead") for rank in (1, 3)]
    across = make_across(stragglers=late, stragglers_gain_ns=20 * MS)
    part = {"compute": 60 * MS, "communication": 15 * MS}
    run = run_of(part, part, part, part, efficiency=waiting_run(128, 32).efficiency, cross_rank=across)
    one = the("waiting", found(run))
    assert one.sentence == "Ranks 1 and 3 late, 20.0 ms"
    assert one.recommendation.startswith("fix both: one alone saves nothing; ")
    assert one.potential_saving_ns is None  # there is no graph to replay


def test_late_ranks_whose_mending_saves_nothing_are_not_advised_on() -> None:
    across = make_across(stragglers=[make_straggler(1, gain_ns=0)], stragglers_gain_ns=0)
    one = the("waiting", found(waiting_run(128, 32, cross_rank=across)))
    assert "rank 1" not in one.sentence + one.recommendation


@pytest.mark.parametrize(
    ("changes", "who", "what"),
    [
        (
            {"every": 3},
            "Rank 1 late, 20.0 ms",
            "find what runs on rank 1 in every third step only",
        ),
        (
            {"every": 2, "in_turns": True, "one_at_a_time": True, "steps_late": 2},
            "Ranks 0 and 1 late, 20.0 ms",
            "each of the",
        ),
    ],
)
def test_a_pattern_is_called_what_it_is(changes: dict[str, Any], who: str, what: str) -> None:
    ranks = (0, 1) if "in_turns" in changes else (1,)
    late = [make_straggler(rank, category="overhead", **changes) for rank in ranks]
    across = make_across(stragglers=late, stragglers_gain_ns=20 * MS)
    one = the("waiting", found(waiting_run(128, 32, cross_rank=across)))
    assert who in one.sentence
    assert what in one.recommendation


@pytest.mark.parametrize(
    ("category", "advice"),
    [
        ("overhead", "find what runs in step 7 on ranks 0 and 1 only: a log, a checkpoint, garbage collection"),
        ("memcpy", "find what is copied in step 7 on ranks 0 and 1 only: a checkpoint, values to log"),
        ("data_loading", "find what is loaded in step 7 on ranks 0 and 1 only: large samples, or files that are not"),
        (None, "find what runs in step 7 on ranks 0 and 1 only: an evaluation, a checkpoint, a log"),
    ],
)
def test_advice_on_a_single_delay_fits_what_takes_longer(category: Category | None, advice: str) -> None:
    once = OneOffStraggler(
        rank=1, with_ranks=[0], step=7, is_first=True, lag_ns=240 * MS, category=category, category_ns=240 * MS
    )
    waits = [RankWait(rank=rank, wait_ns=0, exposed_wait_ns=0) for rank in range(4)]
    across = make_across(one_off_stragglers=[once], one_off_gain_ns=24 * MS, rank_waits=waits)
    part = {"compute": 60 * MS, "communication": 30 * MS}
    run = run_of(part, part, part, part, efficiency=waiting_run(128, 32).efficiency, cross_rank=across)
    one = the("single_delays", found(run))
    assert one.sentence.startswith("Ranks 0 and 1 late in step 7")
    assert one.recommendation.startswith(advice)
    assert one.recommendation.endswith("may also contain what starting the profiler costs")


@pytest.mark.parametrize("changes", [{"every": 3}, {"steps_late": 2}])
def test_more_computing_in_some_steps_is_no_log_or_checkpoint(changes: dict[str, int]) -> None:
    late = make_straggler(1, **({"category": "compute", "gain_ns": 10 * MS} | changes))
    across = make_across(stragglers=[late], stragglers_gain_ns=10 * MS)
    one = the("waiting", found(waiting_run(128, 32, cross_rank=across)))
    often = "in every third step" if "every" in changes else "in 2 of 4 steps"
    assert one.recommendation == (
        f"check for more work (larger inputs, an evaluation), a slower device or a shared one on rank 1 {often}"
    )


@pytest.mark.parametrize(("waited_ms", "is_waiting"), [(100, True), (20, False)])
def test_a_checkpoint_is_told_once_as_waiting_for_it_or_besides_the_steps(waited_ms: int, is_waiting: bool) -> None:
    row = RankPauses(
        phase="checkpoint",
        rank=1,
        count=4,
        total_ns=400 * MS,
        max_ns=100 * MS,
        caller="train.py:14 save",
        steps=16,
        waited_ns=waited_ms * MS,
    )
    by_rule = {one.rule: one.sentence for one in found(waiting_run(128, 32, slow=False, pauses=[row]))}
    assert by_rule["waiting"].endswith("wait for checkpoint (train.py:14 save) on rank 1") is is_waiting
    assert ("pauses" in by_rule) is not is_waiting


def test_start_up_skew_is_not_called_waiting() -> None:
    skew = Finding(code="start_skew", severity="info", message="it holds the skew")
    assert "waiting" not in {one.rule for one in found(waiting_run(128, 32, slow=False, findings=[skew]))}


@pytest.mark.parametrize(
    "change",
    [
        {"efficiency": make_efficiency(wait_ns=0, transfer_ns=160 * MS, unmatched_ns=100 * MS)},
        {"efficiency": None},
    ],
)
def test_unmatched_communication_is_neither_waiting_nor_transfer(change: dict[str, Any]) -> None:
    several = found(waiting_run(32, 128, slow=False, **change))
    assert "waiting" not in {one.rule for one in several}
    one = the("transfer", several)
    assert one.row == "communication"
    assert one.potential_saving_ns == pytest.approx(20 * MS)


@pytest.mark.parametrize("world_size", [3, 128])
def test_communication_with_ranks_without_a_trace_has_no_advice(world_size: int) -> None:
    assert "communication" not in {one.row for one in found(waiting_run(32, 128, slow=False, world_size=world_size))}


def test_of_communication_that_is_not_split_what_others_wait_for_a_late_rank_is_told_and_not_promised_again() -> None:
    broadcasts = make_efficiency(wait_ns=0, transfer_ns=160 * MS, unmatched_ns=120 * MS)
    one = the("transfer", found(waiting_run(32, 128, efficiency=broadcasts)))
    # One of two ranks waits for the other one, which costs 20 ms per step.
    assert one.potential_saving_ns == pytest.approx(10 * MS)


def test_no_more_is_promised_than_the_communication_of_the_dimension_that_the_advice_is_about() -> None:
    unknown = make_efficiency(wait_ns=0, transfer_ns=160 * MS, unmatched_ns=100 * MS)
    run = waiting_run(32, 128, efficiency=unknown, dimensions=make_dimensions(("dp", 8, 40)))
    assert the("transfer", found(run)).potential_saving_ns == pytest.approx(6 * MS)


def test_input_is_compared_with_memory() -> None:
    slow = run_of(
        {"compute": 60 * MS, "data_loading": 37 * MS},
        source="hdf5",
        data_loading=make_loading(source="hdf5", median_ns=37 * MS),
        name="slow",
    )
    memory = run_of({}, data_loading=make_loading(source="memory", median_ns=1 * MS))
    timed = [replace(run, step_times=make_scaled(1, 100).step_times) for run in (slow, memory)]
    one = the("input", found(*timed))
    assert one.run == "slow"
    assert one.sentence == "Data loading, 37.0 ms"
    assert one.evidence["load_ratio"] == 37


@pytest.mark.parametrize(
    ("share", "advice"),
    [
        (0.81, "use faster storage, or read less"),
        (0.6, "use --num-workers 2 to load while the step computes, or faster"),
    ],
)
def test_input_that_is_as_fast_as_its_file_needs_another_file_system(share: float, advice: str) -> None:
    loading = make_loading(median_ns=37 * MS, file_share=share)
    slow = run_of({"compute": 60 * MS, "data_loading": 37 * MS}, source="hdf5", data_loading=loading)
    one = the("input", found(slow))
    assert one.evidence["file_share"] == share
    assert one.recommendation.startswith(advice)
    assert one.recommendation.count("storage") == 1


def test_idle_time_of_longer_recorded_steps_is_a_share_of_the_real_ones() -> None:
    busy = {"compute": 68 * MS, "overhead": 30 * MS}
    assert the("host", found(run_of(busy))).potential_saving_ns == 30 * MS
    plain = StepTimes(plain_ns=[75 * MS] * 6, recorded_ns=[100 * MS] * 6)
    assert the("host", found(run_of(busy, step_times=plain))).sentence == "Idle, cause unknown, 22.5 ms"


def test_copies() -> None:
    one = the("copies", found(run_of({"compute": 76 * MS, "memcpy": 20 * MS})))
    assert (one.potential_saving_ns, one.recommendation) == (None, "use --pin-memory")


def test_shared_cores_explain_the_loss_before_anything_else() -> None:
    small = make_scaled(1, 50, hosts=make_hosts(1, cores=2))
    timed = make_scaled(2, 100).step_times
    shared = waiting_run(128, 32, slow=False, hosts=make_hosts(2, cores=1), name="shared", step_times=timed)
    first, *rest = found(small, shared)
    assert (first.rule, first.run, first.potential_saving_ns) == ("oversubscribed", "shared", None)
    assert first.sentence.startswith(
        "node0 is oversubscribed: 2 ranks on 1 core, and efficiency drops from 100.0 % to 50.0 %"
    )
    assert first.recommendation == "use at most 1 rank on node0, or more hosts"
    assert all(one.run != "shared" for one in rest)


def test_a_late_rank_has_advice_though_messages_are_not_matched() -> None:
    unmatched = make_efficiency(wait_ns=0, transfer_ns=160 * MS, unmatched_ns=100 * MS)
    one = the("waiting", found(waiting_run(128, 32, efficiency=unmatched)))
    assert one.sentence == "Rank 1 late, 20.0 ms"


def test_shared_cores_do_not_explain_a_rank_that_is_late_beyond_chance() -> None:
    """The verdict names it, so advice about it follows; what waiting comes from is not known for sure."""
    first, *rest = found(waiting_run(128, 32, hosts=make_hosts(2, cores=1)))
    assert first.sentence == "node0 is oversubscribed: 2 ranks on 1 core"
    assert the("waiting", rest).row == "late_ranks"


IDEAL = dict.fromkeys(("load_balance", "host", "input", "serialisation", "transfer"), 1.0)


def test_more_computation_on_more_ranks_is_reported_with_its_reason() -> None:
    runs = [
        make_factored(size, ms + repeat, IDEAL, batch=64 // size, name=f"{size}-{repeat}")
        for size, ms in ((1, 100), (2, 200))
        for repeat in range(3)
    ]
    one = the("computation_scaling", found(*runs))
    assert one.run == "gpt strong"
    assert one.sentence == (
        "from 1 to 2 ranks, computation scaling costs 50 percentage points of global efficiency: the same work takes "
        "1.99 times as much compute time; "
        "the batch per rank is 32 instead of 64"
    )
    assert one.potential_saving_ns == pytest.approx(50 * MS, rel=0.02)


@pytest.mark.parametrize("steps", [2, 12])
def test_more_computation_of_one_run_each_may_be_chance(steps: int) -> None:
    runs = [
        make_factored(size, ms, IDEAL, batch=64 // size, ranks=[_even_rank(rank, ms, steps) for rank in range(size)])
        for size, ms in ((1, 100), (2, 200))
    ]
    # That the steps of one run are alike tells nothing about another run's.
    assert "computation_scaling" not in {one.rule for one in found(*runs)}


def _even_rank(rank: int, compute_ms: int, steps: int) -> RankReport:
    return make_rank(rank, [make_step(number, compute=compute_ms * MS) for number in range(steps)])


def test_computation_within_run_to_run_variation_is_not_reported() -> None:
    runs = [
        make_factored(size, ms * factor, IDEAL, batch=64 // size, name=f"{size}-{factor}")
        for size, ms in ((1, 100), (2, 130))
        for factor in (0.7, 1.0, 1.4)
    ]
    assert "computation_scaling" not in {one.rule for one in found(*runs)}


def test_an_option_is_recommended_only_if_repeats_show_a_difference() -> None:
    def runs(repeats: int) -> list[RunReport]:
        return [
            run_of({}, config={"compile": on}, name=f"{on}{n}", step_times=make_scaled(1, ms + n).step_times)
            for on, ms in ((False, 100), (True, 80))
            for n in range(repeats)
        ]

    several = runs(3)
    one = the("option", find_insights(several, scaling(several, ["compile"])).insights)
    assert one.sentence == "with compile=on a step takes 0.80 times as long as with off at 1 rank"
    assert one.potential_saving_ns == 20 * MS
    single = runs(1)
    assert find_insights(single, scaling(single, ["compile"])).insights == []


def test_a_step_with_fewer_samples_is_not_recommended() -> None:
    def runs(samples: int) -> list[RunReport]:
        return [
            run_of(
                {},
                config={"mesh": mesh},
                name=f"{mesh}{n}",
                step_times=make_scaled(1, ms + n).step_times,
                throughput=make_throughput(1, batch, (ms + n) * MS),
            )
            for mesh, ms, batch in (("dp=2", 100, 64), ("tp=2", 80, samples))
            for n in range(3)
        ]

    same, fewer = (scaling(runs(samples), ["mesh"]) for samples in (64, 32))
    assert "option" in {one.rule for one in find_insights(runs(64), same).insights}
    assert "option" not in {one.rule for one in find_insights(runs(32), fewer).insights}
    for multi_run, differ in ((same, False), (fewer, True)):
        assert multi_run is not None
        (table,) = [table for table in scaling_tables(multi_run) if table.title.startswith("By mesh")]
        assert ("different numbers of samples" in table.remark) == differ


def test_the_median_repeat_counts_and_most_repeats_must_agree() -> None:
    def runs(*overheads_ms: int) -> list[RunReport]:
        return [run_of({"overhead": ms * MS}, name=f"r{n}") for n, ms in enumerate(overheads_ms)]

    assert the("host", found(*runs(30, 90, 40))).run == "r2"
    assert found(*runs(2, 90, 3)) == []


@pytest.mark.parametrize(
    "change",
    [
        {"state": "failed"},
        {"ranks": []},
        {"ranks": make_ranks([{"overhead": 90 * MS}])[:0]},
    ],
)
def test_incomplete_runs_have_no_insights(change: dict[str, Any]) -> None:
    assert found(run_of({"overhead": 60 * MS}, **change)) == []


def test_one_step_has_insights_and_a_whole_trace_none() -> None:
    (host, *_) = found(run_of({}, ranks=[make_rank(0, [make_step(3, overhead=90 * MS)])]))
    assert host.rule == "host"
    assert found(make_foreign_run()) == []


def test_no_verdict_no_insights() -> None:
    verdict = Verdict(bound="unknown", share=0.0, sentence="no verdict: device activity was not recorded")
    assert found(run_of({"overhead": 60 * MS})) != []
    assert found(run_of({"overhead": 60 * MS}, verdict=verdict)) == []


def test_at_most_five_by_potential_saving() -> None:
    run = waiting_run(32, 128, name="a")
    others = [
        run_of({"overhead": 30 * MS}, name="b", workload="b"),
        run_of({"memcpy": 25 * MS}, name="c", workload="c"),
        run_of({"data_loading": 90 * MS}, name="d", workload="d"),
        waiting_run(128, 32, name="e", workload="e"),
    ]
    several = found(run, *others)
    assert len(several) == 5
    assert several[0].rule == "input"
    assert [one.row for one in several][:3] == ["data_loading", "unknown", "memcpy"]


def test_loader_workers_that_are_there_are_not_recommended() -> None:
    slow = {"compute": 70 * MS, "data_loading": 28 * MS}
    loader = PhaseStat(
        name="enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", count=2, total_ns=2 * MS, max_ns=MS
    )
    foreign = replace(run_of(slow), config=None)
    said = the("input", found(foreign)).recommendation
    assert "with loader workers that read ahead" in said
    with_workers = replace(foreign, ranks=[replace(rank, phases=[loader]) for rank in foreign.ranks])
    assert the("input", found(with_workers)).recommendation.startswith("use more loader workers")
