"""What the report of a run says, on traces whose truth is known: each sentence where it is true, and not elsewhere."""

from collections.abc import Callable
from pathlib import Path
from statistics import fmean

import pytest
from msgspec.structs import replace

from perfkit.errors import UsageError
from perfkit.pipeline.analyze import analyze
from perfkit.pipeline.whatif import predict
from perfkit.records.report import Insight, Report
from perfkit.report.views import whatif
from tests.support.traces.device_training import Beside, Device, Part, communicate, save, train

pytestmark = pytest.mark.usefixtures("shared_cache")

MS = 1_000_000


def compute(one: Device, _step: int) -> None:
    one.kernels("ampere_sgemm_128x64_nn", 300, 15)


def finish(one: Device, _step: int) -> None:
    one.kernels("multi_tensor_apply", 50)
    one.item()


def load(us: int, every: int = 1) -> Part:
    """Return a loader that takes so long in every n-th step, otherwise nearly nothing."""
    return lambda one, step: one.load(us if step % every == every - 1 else 20)


def insights(report: Report) -> dict[str, Insight]:
    return {one.rule: one for one in report.insights}


def late_row(report: Report) -> tuple[list[int], object, str | None]:
    """Return the late ranks of the ledger, what they cost, and when they are late."""
    (run,) = report.runs
    assert run.ledger is not None
    row = run.ledger.of("late_ranks")
    assert row is not None
    return row.ranks, row.ns, row.late


def test_what_only_some_steps_do_is_promised_in_the_mean(tmp_path: Path) -> None:
    run = train(tmp_path, 2, 12, [load(20_000, every=4), compute, 600, finish])
    one = insights(analyze([run]))["input"]
    assert one.potential_saving_ns == pytest.approx(5 * MS, rel=0.02)
    assert one.predicted_for == "input=0"
    ranking = predict(run)
    assert ranking.ranking is not None
    first = ranking.ranking[0]
    assert first.changes[0].change == "input=0"
    assert first.saving_ns == pytest.approx(5 * MS, rel=0.02)
    headline = whatif.document(ranking, 10).sections[0].headline
    assert headline.startswith("The largest saving is predicted for input=0: 5.01 ms ")
    alone = whatif.document(predict(run, ["input=0"]), 10).sections[0].headline
    assert alone.endswith(": 5.01 ms (49.3 %) less.")


def test_a_change_that_makes_the_median_step_longer_takes_a_negative_share_of_it(tmp_path: Path) -> None:
    ranking = predict(train(tmp_path, 2, 12, [load(5_000), compute, 600, finish]))
    assert ranking.ranking
    longer = replace(ranking.ranking[0], saving_ns=-0.25 * ranking.replayed_step_ns)
    shown = whatif.document(replace(ranking, ranking=[longer]), 10).sections[0].tables[0]
    place = [column.title for column in shown.columns].index("of the step")
    assert shown.rows[0][place].text == "-25.0 %"


def test_what_all_steps_do_has_no_mean_of_its_own(tmp_path: Path) -> None:
    run = train(tmp_path, 2, 12, [load(5_000), compute, 600, finish])
    assert insights(analyze([run]))["input"].potential_saving_ns == pytest.approx(5 * MS, rel=0.02)
    shown = whatif.document(predict(run), 10).sections[0]
    assert "mean" not in shown.headline
    assert [column.title for column in shown.tables[0].columns][-1] == "of the step"


@pytest.mark.parametrize("steps", [3, 12])
def test_the_interval_is_explained_where_there_is_one(tmp_path: Path, steps: int) -> None:
    run = train(tmp_path, 2, steps, [load(5_000), compute, 600, finish])
    (note,) = whatif.document(predict(run, ["input=0"]), 10).footnotes
    assert ("The interval is how the recorded steps vary" in note) == (steps == 12)
    (note,) = whatif.document(predict(run), 10).footnotes
    assert "interval" not in note
    assert "assumes" in note


def test_a_rank_that_is_late_in_one_step_is_an_exception_to_that_none_is(tmp_path: Path) -> None:
    def delay(one: Device, step: int) -> None:
        one.work(30_000 if (one.rank, step) == (2, 5) else 10, "train.py(10): evaluate")

    across = analyze([train(tmp_path, 3, 10, [delay, compute, 600, finish])]).runs[0].cross_rank
    assert across is not None
    assert across.stragglers == []
    (one,) = across.one_off_stragglers
    assert (one.rank, one.step) == (2, 8)
    assert one.lag_ns == pytest.approx(30 * MS, rel=0.01)


def late_kernels(is_late: Callable[[int, int], bool]) -> Part:
    """Return ten kernels that take 6 ms longer together where a rank is late in a step."""
    return lambda one, step: one.kernels("gemm", 1000 + 600 * is_late(one.rank, step), 10)


def test_ranks_that_are_late_with_different_periods_share_the_waiting(tmp_path: Path) -> None:
    """A quarter of the late steps is rank 2's alone."""

    def is_late(rank: int, step: int) -> bool:
        return (rank == 1 and step % 2 == 0) or (rank == 2 and step % 3 == 0)

    def run(name: str, late: tuple[int, ...]) -> Report:
        parts: list[Part | int] = [late_kernels(lambda rank, step: rank in late and is_late(rank, step)), 1500, finish]
        return analyze([train(tmp_path / name, 4, 24, parts)])

    def mean_step_ns(report: Report) -> float:
        return fmean(step.wall_ns for rank in report.runs[0].ranks for step in rank.steps)

    report, healthy_ns = run("both", (1, 2)), mean_step_ns(run("neither", ()))
    across, one = report.runs[0].cross_rank, insights(report)["waiting"]
    assert across is not None
    assert {row.rank: row.every for row in across.stragglers} == {1: 2, 2: 3}
    assert [row.lag_ns for row in across.stragglers] == pytest.approx([6 * MS] * 2, rel=0.02)
    alone = {row.rank: row.gain_ns for row in across.stragglers}
    assert alone[1] == pytest.approx(mean_step_ns(report) - mean_step_ns(run("second", (2,))), rel=0.02)
    assert alone[2] == pytest.approx(mean_step_ns(report) - mean_step_ns(run("first", (1,))), rel=0.02)
    assert across.stragglers_gain_ns == pytest.approx(mean_step_ns(report) - healthy_ns, rel=0.02)
    assert late_row(report) == ([1, 2], across.stragglers_gain_ns, "at_times")
    assert one.predicted_for == "rank1=healthy rank2=healthy"


def test_a_rank_is_not_said_to_be_waited_for_where_others_are_late(tmp_path: Path) -> None:
    """Rank 2 is late as often, but in no order."""

    def is_late(rank: int, step: int) -> bool:
        return (rank == 1 and step % 3 == 0) or (rank == 2 and step in (1, 4, 5, 10, 13, 14, 20, 22))

    report = analyze([train(tmp_path, 4, 24, [late_kernels(is_late), 1500, finish])])
    assert late_row(report) == ([1], pytest.approx(2 * MS, rel=0.02), "at_times")


def test_ranks_that_take_turns_for_five_steps_each_are_named(tmp_path: Path) -> None:
    parts: list[Part | int] = [late_kernels(lambda rank, step: step // 5 % 2 == rank), 1500, finish]
    report = analyze([train(tmp_path, 2, 20, parts)])
    assert late_row(report) == ([0, 1], pytest.approx(6 * MS, rel=0.02), "in_turns")
    one = insights(report)["waiting"]
    assert one.recommendation == "find what each of the ranks does only in the steps in which it is late"


@pytest.mark.parametrize(
    ("late", "step", "who"),
    [
        ((1,), 0, "rank 1 in step 3, with step 2 not recorded on all ranks"),
        ((1, 2), 5, "ranks 1 and 2 in step 8"),
    ],
)
def test_a_delay_of_one_step_is_told_of_the_first_step_and_of_two_ranks(
    tmp_path: Path, late: tuple[int, ...], step: int, who: str
) -> None:
    def delayed(one: Device, number: int) -> None:
        one.kernels("gemm", 2500 if one.rank in late and number == step else 500, 10)

    report = analyze([train(tmp_path, 4, 10, [delayed, 300, finish])])
    (message,) = [one.message for one in report.runs[0].findings if one.code == "one_off_straggler"]
    assert message.endswith("; the profiler may have started in it, and cost some of it") is (step == 0)
    assert f" in {who.partition(' in ')[2]} (compute" in message
    one = insights(report)["single_delays"]
    assert one.sentence == f"Rank{'s 1 and 2' if len(late) > 1 else ' 1'} late in step {step + 3}"
    assert one.recommendation.startswith("check for more work (larger inputs, an evaluation), a slower device")
    assert one.potential_saving_ns == pytest.approx(2 * MS, rel=0.02)


@pytest.mark.parametrize("early", [1, 3])
def test_where_most_ranks_take_equally_long_the_few_that_take_less_are_named(tmp_path: Path, early: int) -> None:
    def work(one: Device, _step: int) -> None:
        one.kernels("gemm", 300 if one.rank < early else 700, 10)

    report = analyze([train(tmp_path, 8, 10, [work, 600, finish])])
    who, computes, waits = ("rank 0", "computes", "waits") if early == 1 else ("ranks 0, 1 and 2", "compute", "wait")
    said = f"{who} {computes} 4.00 ms less per step than the others, and {waits} for them"
    across = report.runs[0].cross_rank
    assert across is not None
    assert [(row.rank, row.lead_ns) for row in across.early_ranks] == [(rank, 4 * MS) for rank in range(early)]
    if early == 3:
        one = insights(report)["waiting"]
        assert one.sentence == f"R{said[1:]}"
        assert one.potential_saving_ns == pytest.approx(3 / 8 * 4 * MS, rel=0.02)


def test_a_late_rank_does_not_keep_the_report_from_naming_an_early_one(tmp_path: Path) -> None:
    def work(one: Device, _step: int) -> None:
        one.kernels("gemm", {0: 300, 1: 740}.get(one.rank, 700), 10)

    report = analyze([train(tmp_path, 6, 10, [work, 600, finish])])
    early = "Rank 0 computes 4.00 ms less per step than the others that are not late, and waits for them"
    one = insights(report)["waiting"]
    assert early in one.sentence
    assert one.recommendation == "give rank 0 more of the work: it has less of it than the others, or is faster"


def test_a_delay_of_one_step_does_not_keep_the_report_from_naming_an_early_rank(tmp_path: Path) -> None:
    def work(one: Device, step: int) -> None:
        one.kernels("gemm", (300 if one.rank == 0 else 700) + 300 * ((one.rank, step) == (2, 5)), 10)

    (run,) = analyze([train(tmp_path, 8, 10, [work, 600, finish])]).runs
    assert run.cross_rank is not None
    assert [(one.rank, one.step) for one in run.cross_rank.one_off_stragglers] == [(2, 8)]
    assert [(row.rank, row.lead_ns) for row in run.cross_rank.early_ranks] == [(0, 4 * MS)]


def kernels(us: Callable[[int, int], int]) -> Part:
    """Return ten kernels of so many µs, by rank and step."""
    return lambda one, step: one.kernels("gemm", us(one.rank, step), 10)


def log(is_now: Callable[[int], bool]) -> Part:
    """Return work of 4 ms on the host of some ranks."""

    def part(one: Device, _step: int) -> None:
        if is_now(one.rank):
            one.work(4000, "train.py(10): log")

    return part


@pytest.mark.parametrize(
    "parts",
    [
        [
            kernels(lambda rank, _: (100 if rank % 2 else 600) - 70 * (rank == 0)),
            600,
            kernels(lambda rank, _: 600 if rank % 2 else 100),
            600,
        ],
        [
            kernels(lambda rank, _: 700 - 400 * (rank == 0)),
            600,
            kernels(lambda rank, _: 200 + 200 * (rank == 0)),
            600,
        ],
        [kernels(lambda rank, step: 300 - 60 * (rank == 0) + 400 * (rank == 1 + (5 * step) % 7)), 600],
        [kernels(lambda rank, step: 4000 + (900 if step in (2, 3, 7) else -400) * (rank == 0)), 600],
        [kernels(lambda rank, step: 700 - 400 * (rank == 0 and step not in (2, 3, 7))), 600],
        [log(lambda rank: rank > 2), kernels(lambda *_: 300), 600, log(lambda rank: rank < 3)],
    ],
    ids=["waits of others", "waited for itself", "late ones", "late at times", "in some steps", "another order"],
)
def test_a_rank_that_computes_less_is_not_named_where_waiting_has_other_reasons(
    tmp_path: Path, parts: list[Part | int]
) -> None:
    (run,) = analyze([train(tmp_path, 8, 10, [*parts, finish])]).runs
    assert run.cross_rank is not None
    assert run.cross_rank.early_ranks == []


def test_a_rank_that_may_wait_for_one_without_a_trace_is_not_named(tmp_path: Path) -> None:
    def work(one: Device, _step: int) -> None:
        one.kernels("gemm", 300 if one.rank == 0 else 700, 10)

    run = train(tmp_path, 5, 10, [work, 600, finish])
    next(run.glob("*rank4*")).unlink()
    across = analyze([run]).runs[0].cross_rank
    assert across is not None
    assert across.early_ranks == []


def test_ranks_that_take_less_and_do_not_wait_are_not_named(tmp_path: Path) -> None:
    def work(one: Device, _step: int) -> None:
        one.kernels("gemm", 300 if one.rank == 0 else 700, 10)
        one.item()

    (run,) = analyze([train(tmp_path, 4, 10, [work])]).runs
    assert run.cross_rank is None or not run.cross_rank.early_ranks


def test_one_delay_of_one_rank_promises_all_that_the_others_wait_for_it(tmp_path: Path) -> None:
    def evaluate(one: Device, step: int) -> None:
        if (one.rank, step) == (1, 4):
            one.work(30_000, "train.py(10): evaluate")

    run = train(tmp_path, 2, 10, [compute, 600, finish, evaluate])
    one = insights(analyze([run]))["single_delays"]
    assert one.sentence == "Rank 1 late in step 7"
    assert one.potential_saving_ns == pytest.approx(3 * MS, rel=0.05)


@pytest.mark.parametrize(
    ("ranks", "late"),
    [
        (2, lambda rank, step: rank == step % 2),
        (3, lambda rank, step: rank == step % 3),
        (3, lambda rank, _step: rank < 2),
        (4, lambda rank, _step: rank in (1, 2)),
    ],
    ids=["turns of two", "turns of three", "two of three", "two of four"],
)
def test_what_late_ranks_cost_is_what_a_run_without_their_delays_saves(
    tmp_path: Path, ranks: int, late: Callable[[int, int], bool]
) -> None:
    def run(name: str, longer_us: int) -> Report:
        def delayed(one: Device, step: int) -> None:
            one.kernels("gemm", 300 + longer_us * late(one.rank, step), 10)

        return analyze([train(tmp_path / name, ranks, 12, [delayed, 600, finish])])

    def mean_step_ns(report: Report) -> float:
        return fmean(step.wall_ns for rank in report.runs[0].ranks for step in rank.steps)

    report = run("late", 200)
    truth = pytest.approx(mean_step_ns(report) - mean_step_ns(run("healthy", 0)), rel=0.02)
    across, one = report.runs[0].cross_rank, insights(report)["waiting"]
    assert across is not None
    assert across.stragglers_gain_ns == truth
    assert one.predicted_for is not None
    assert one.predicted_for.count("=healthy") == len(across.stragglers) > 1
    assert one.potential_saving_ns == truth


def test_ranks_that_are_late_one_after_the_other_each_cost_the_step(tmp_path: Path) -> None:
    def longer(rank: int, us: int) -> Part:
        return lambda one, _: one.kernels("gemm", 300 + us * (one.rank == rank), 10)

    def run(name: str, first_us: int, second_us: int) -> Report:
        parts: list[Part | int] = [longer(0, first_us), 600, longer(1, second_us), 600, finish]
        return analyze([train(tmp_path / name, 4, 10, parts)])

    def mean_step_ns(report: Report) -> float:
        return fmean(step.wall_ns for rank in report.runs[0].ranks for step in rank.steps)

    both = run("both", 200, 150)
    across, one = both.runs[0].cross_rank, insights(both)["waiting"]
    assert across is not None
    alone = {row.rank: row.gain_ns for row in across.stragglers}
    lost_ns = mean_step_ns(both)
    assert alone[0] == pytest.approx(lost_ns - mean_step_ns(run("second", 0, 150)), rel=0.05)
    assert alone[1] == pytest.approx(lost_ns - mean_step_ns(run("first", 200, 0)), rel=0.05)
    truth = pytest.approx(lost_ns - mean_step_ns(run("neither", 0, 0)), rel=0.05)
    assert across.stragglers_gain_ns == truth
    assert one.predicted_for == "rank0=healthy rank1=healthy"
    assert one.potential_saving_ns == truth


def test_waiting_for_a_rank_in_one_step_does_not_say_that_none_is_late(tmp_path: Path) -> None:
    run = train(tmp_path, 3, 1, [lambda one, _: one.kernels("gemm", 500 if one.rank == 1 else 200, 15), 600, finish])
    one = insights(analyze([run]))["waiting"]
    assert one.sentence.endswith("(too few steps to tell which of them are late)")
    assert one.potential_saving_ns == pytest.approx(15 * 0.3 * MS, rel=0.05)


@pytest.mark.parametrize(
    ("kind", "words", "advice"),
    [
        ("Memcpy HtoD (Pageable -> Device)", "from the host", "copy ahead, asynchronously and from pinned"),
        ("Memcpy HtoD (Pinned -> Device)", "from the host's pinned memory", "copy the next batch on another"),
        ("Memcpy DtoD (Device -> Device)", "within the device", "find what copies tensors on the device"),
        ("Memcpy DtoH (Device -> Pageable)", "to the host", "read results back less often"),
        ("Memcpy PtoP (Device -> Device)", "between devices", "keep tensors on the device that uses them"),
        ("Memset (Device)", "fills of memory", "find what fills memory on the device"),
    ],
)
def test_advice_on_copies_is_about_where_they_go(tmp_path: Path, kind: str, words: str, advice: str) -> None:
    run = train(tmp_path, 1, 4, [compute, lambda one, _: one.copy(900, kind), finish])
    one = insights(analyze([run]))["copies"]
    assert one.row == "memcpy"
    assert one.sentence.endswith(f": {words}")
    assert one.recommendation.startswith(advice)


def test_copies_of_which_none_is_most_get_no_advice_on_one_of_them(tmp_path: Path) -> None:
    def both(one: Device, _step: int) -> None:
        one.copy(500, "Memcpy HtoD (Pageable -> Device)")
        one.copy(500, "Memcpy DtoD (Device -> Device)")

    one = insights(analyze([train(tmp_path, 1, 4, [compute, both, finish])]))["copies"]
    assert "pinned" not in one.recommendation


def broadcasting(folder: Path, broadcast_us: int, reduce_us: int) -> Path:
    """Write the traces of DDP that broadcasts buffers in each forward."""
    devices = [Device(rank, 2) for rank in range(2)]
    for step in range(8):
        begun = [one.now for one in devices]
        communicate(devices, broadcast_us, "broadcast")
        for one, begin in zip(devices, begun, strict=True):
            one.trace.annotation("DistributedDataParallel.forward", begin, one.now - begin)
            compute(one, step)
        communicate(devices, reduce_us)
        for one, begin in zip(devices, begun, strict=True):
            finish(one, step)
            one.trace.step(step + 3, begin, one.now - begin)
            one.now += 5
    return save(folder, devices)


def test_broadcasts_of_buffers_are_told_and_promised_once(tmp_path: Path) -> None:
    found = insights(analyze([broadcasting(tmp_path, 2000, 100)]))
    assert "transfer" not in found
    assert found["broadcast_buffers"].potential_saving_ns == pytest.approx(2 * MS, rel=0.02)


def test_other_communication_beside_broadcasts_is_told_without_them(tmp_path: Path) -> None:
    found = insights(analyze([broadcasting(tmp_path, 2000, 1200)]))
    one = found["transfer"]
    assert one.potential_saving_ns == pytest.approx(1.2 * MS, rel=0.02)
    assert found["broadcast_buffers"].potential_saving_ns == pytest.approx(2 * MS, rel=0.02)


def test_tiny_collectives_are_told_and_promised_once(tmp_path: Path) -> None:
    def metrics(folder: Path, reduce_us: int) -> dict[str, Insight]:
        devices = [Device(rank, 2) for rank in range(2)]
        for step in range(6):
            begun = [one.now for one in devices]
            for one in devices:
                compute(one, step)
            communicate(devices, reduce_us)
            for _ in range(20):
                communicate(devices, 60, elements=4)
            for one, begin in zip(devices, begun, strict=True):
                finish(one, step)
                one.trace.step(step + 3, begin, one.now - begin)
                one.now += 5
        return insights(analyze([save(folder, devices)]))

    assert "transfer" not in metrics(tmp_path / "alone", 50)
    both = metrics(tmp_path / "both", 1000)
    assert both["tiny_collectives"].potential_saving_ns == pytest.approx(1.14 * MS, rel=0.02)
    assert both["transfer"].potential_saving_ns == pytest.approx(1.06 * MS, rel=0.02)
    assert both["transfer"].sentence.endswith("all_reduce of 4.00 MB")


@pytest.mark.parametrize(
    ("batches", "reduced", "said"), [(4, 4, True), (2, 2, True), (8, 8, True), (4, 1, False), (1, 1, False)]
)
def test_gradients_reduced_in_each_micro_batch_need_no_sync(
    tmp_path: Path, batches: int, reduced: int, said: bool
) -> None:
    """The last `reduced` of the micro-batches of a step reduce 4 MB in 1 ms each."""
    devices = [Device(rank, 2) for rank in range(2)]
    for step in range(6):
        begun = [one.now for one in devices]
        for batch in range(batches):
            called = [one.now for one in devices]
            for one, call in zip(devices, called, strict=True):
                compute(one, step)
                one.trace.annotation("DistributedDataParallel.forward", call, one.now - call)
            if batch < batches - reduced:
                continue
            for one in devices:
                one.trace.op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", one.now, 100)
                one.now += 1
            communicate(devices, 1000)
            for one in devices:
                one.now += 100
        for one, begin in zip(devices, begun, strict=True):
            call = one.now
            finish(one, step)
            one.trace.annotation("Optimizer.step#AdamW.step", call, one.now - call)
            one.trace.step(step + 3, begin, one.now - begin)
            one.now += 5
    found = insights(analyze([save(tmp_path, devices)]))
    assert ("each_micro_batch" in found) == said
    if said:
        saved_ns = found["each_micro_batch"].potential_saving_ns
        assert saved_ns == pytest.approx((batches - 1) * MS, rel=0.1)
        prediction = predict(tmp_path, ["no_sync"]).prediction
        assert prediction is not None
        assert prediction.saving_ns == saved_ns
        assert "transfer" not in found
    else:
        with pytest.raises(UsageError, match="in each of several micro-batches"):
            predict(tmp_path, ["no_sync"])


def test_a_straggler_is_no_skew_of_the_start(tmp_path: Path) -> None:
    """The others wait for it in the first collective of each step, and in no other."""

    def late_load(first_step: int) -> Part:
        return lambda one, step: one.load(5_000 if one.rank == 1 and step < first_step else 50)

    def codes(folder: Path, first_step: int, begins: dict[int, int]) -> set[str]:
        parts: list[Part | int] = [late_load(first_step), compute, 600, compute, 600, finish]
        return {finding.code for finding in analyze([train(folder, 3, 8, parts, begins=begins)]).runs[0].findings}

    always, once, later = (
        codes(tmp_path / "a", 8, {}),
        codes(tmp_path / "b", 1, {}),
        codes(tmp_path / "c", 0, {1: 5000}),
    )
    assert ("straggler" in always, "start_skew" in always) == (True, False)
    assert "start_skew" not in once
    assert "start_skew" in later


@pytest.mark.parametrize(("load_us", "begins"), [(50, {1: 5_000}), (5_000, {})])
def test_one_step_shows_skew_but_not_whether_a_rank_is_always_late(
    tmp_path: Path, load_us: int, begins: dict[int, int]
) -> None:
    parts: list[Part | int] = [lambda one, _: one.load(load_us if one.rank == 1 else 50)]
    parts += [compute, 600, 600, 600, finish]
    findings = analyze([train(tmp_path, 3, 1, parts, begins=begins)]).runs[0].findings
    messages = [finding.message for finding in findings if finding.code == "start_skew"]
    assert len(messages) == len(begins)
    assert all(one.endswith("it may include the skew with which the ranks started recording") for one in messages)


def test_launching_promises_all_pauses_up_to_its_bound(tmp_path: Path) -> None:
    run = train(tmp_path, 1, 6, [lambda one, _: one.kernels("elementwise", 2, 200, "aten::add"), finish])
    one = insights(analyze([run]))["host"]
    assert one.row == "launch_bound"
    assert one.predicted_for is None
    assert one.potential_saving_ns is not None
    assert one.potential_saving_ns > 1 * MS


@pytest.mark.parametrize(("late_us", "transfer_us"), [(300, 20), (2_000, 2_500)])
def test_a_late_rank_comes_with_advice_on_it(tmp_path: Path, late_us: int, transfer_us: int) -> None:
    """The mean over ranks of what they wait may be little, and less than what they transfer."""

    def late(one: Device, _step: int) -> None:
        if one.rank == 1:
            one.kernels("gemm", late_us)

    report = analyze([train(tmp_path, 2, 8, [compute, late, transfer_us, finish])])
    assert late_row(report) == ([1], pytest.approx(late_us * 1000, rel=0.05), "always")
    one = insights(report)["waiting"]
    assert one.potential_saving_ns == pytest.approx(late_us * 1000, rel=0.05)


@pytest.mark.parametrize("missing", [[], [3], [1]])
def test_what_ranks_without_a_trace_hide_is_not_denied(tmp_path: Path, missing: list[int]) -> None:
    """Rank 1 is late in computing: without its trace, waiting for it looks like transfer."""

    def late(one: Device, _step: int) -> None:
        one.kernels("gemm", 2_000 if one.rank == 1 else 500)

    report = analyze([train(tmp_path, 4, 8, [compute, late, 600, finish], left_out=missing)])
    if missing == [1]:
        assert "waiting" not in insights(report)
        return
    assert late_row(report) == ([1], pytest.approx(1.5 * MS, rel=0.05), "always")
    assert (insights(report)["waiting"].predicted_for is None) is bool(missing)


def test_pauses_of_one_rank_or_another_promise_what_each_step_loses(tmp_path: Path) -> None:
    """On average a rank pauses for a quarter of that."""
    pausing = [1, 1, 1, 3, 0, 2, 3, 1, 1, 2, 3]

    def pause(one: Device, step: int) -> None:
        if pausing[step] == one.rank:
            one.work(6_000, "train.py(10): log")

    run = train(tmp_path, 4, len(pausing), [pause, compute, 600, finish])
    one = insights(analyze([run]))["host"]
    assert one.predicted_for == "idle:train.py(10): log=0"
    assert one.potential_saving_ns == pytest.approx(6 * MS, rel=0.02)


def test_kernels_that_begin_when_their_launch_lets_them_do_not_wait_for_each_other(tmp_path: Path) -> None:
    """Each is launched 2 us before the one before has ended, and begins 8 us later: no stream makes it wait."""
    run = train(tmp_path, 1, 6, [lambda one, _: one.kernels("elementwise", 2, 200, "aten::add"), finish])
    prediction = predict(run, ["kernels<5us=fused"]).prediction
    assert prediction is not None
    # Of 200 launch calls of 5 us, 199 are saved.
    assert prediction.saving_ns == pytest.approx(199 * 5_000, rel=0.02)


@pytest.mark.parametrize(("last_us", "costs_us"), [(15_000, 0), (60_000, 36_000)])
def test_a_rank_that_computes_longer_is_late_only_as_far_as_the_network_lets_others_wait(
    tmp_path: Path, last_us: int, costs_us: int
) -> None:
    """Four transfers of 8 ms beside the computation of 10 ms: the step takes as long as these, whoever computes on."""

    def run(name: str, longer_us: int) -> Report:
        def last(one: Device, _step: int) -> None:
            one.kernels("gemm", (2_000 + longer_us * (one.rank == 1)) // 10, 10)

        buckets: list[Part | int | Beside] = [kernels(lambda *_: 200), Beside(8_000)] * 4
        return analyze([train(tmp_path / name, 4, 10, [*buckets, last, 100, finish])])

    def mean_step_ns(report: Report) -> float:
        return fmean(step.wall_ns for rank in report.runs[0].ranks for step in rank.steps)

    late = run("late", last_us)
    across = late.runs[0].cross_rank
    assert across is not None
    assert mean_step_ns(late) - mean_step_ns(run("healthy", 0)) == pytest.approx(costs_us * 1000, abs=0.1 * MS)
    assert [row.rank for row in across.stragglers] == [1] * bool(costs_us)
    assert (across.stragglers_gain_ns or 0) == pytest.approx(costs_us * 1000, abs=0.1 * MS)


def test_tensor_parallel_ranks_that_meet_the_others_in_every_fourth_step_delay_them_in_all(tmp_path: Path) -> None:
    """Only its neighbour waits for rank 5 in each step; the other groups do when gradients are reduced."""

    def run(name: str, longer_us: int) -> Report:
        devices = [Device(rank, 8) for rank in range(8)]
        for step in range(24):
            begun = [one.now for one in devices]
            for _layer in range(3):
                for one in devices:
                    one.kernels("gemm", 300 + longer_us * (one.rank == 5), 10)
                for first in range(0, 8, 2):
                    communicate(devices[first : first + 2], 200, group=(f"tp{first}", "mesh_tp"))
            for replica in range(2) if step % 4 == 3 else ():
                communicate(devices[replica::2], 800, group=(f"dp{replica}", "mesh_dp"))
            for one, begin in zip(devices, begun, strict=True):
                finish(one, step)
                one.trace.step(step + 3, begin, one.now - begin)
                one.now += 5
        return analyze([save(tmp_path / name, devices)])

    def mean_step_ns(report: Report) -> float:
        return fmean(step.wall_ns for rank in report.runs[0].ranks for step in rank.steps)

    late = run("late", 120)
    across, one = late.runs[0].cross_rank, insights(late)["waiting"]
    assert across is not None
    truth = pytest.approx(mean_step_ns(late) - mean_step_ns(run("healthy", 0)), rel=0.02)
    assert across.stragglers_gain_ns == truth
    assert one.potential_saving_ns == truth
    assert late_row(late) == ([5], truth, "always")


def test_a_rank_that_is_always_late_and_one_that_is_later_now_and_then_are_late_in_turns(tmp_path: Path) -> None:
    def loads(one: Device, step: int) -> None:
        one.load(5_000 if one.rank == 3 and step % 7 in (2, 3) else 20)

    parts: list[Part | int] = [loads, kernels(lambda rank, _: 800 + 150 * (rank == 0)), 800, finish]
    report = analyze([train(tmp_path, 4, 28, parts)])
    assert late_row(report) == ([3, 0], pytest.approx(2.49 * MS, rel=0.01), "in_turns")
    assert report.runs[0].ledger is not None
    row = report.runs[0].ledger.of("late_ranks")
    assert row is not None
    assert (row.late_in, row.name) == (None, None)  # each in another category


@pytest.mark.parametrize(
    ("every", "late_ns"),
    [(40, [3 * MS]), (44, [])],
    ids=["ten", "nine"],
)
def test_ten_delays_of_one_rank_are_beyond_chance_among_any_number_of_steps(
    tmp_path: Path, every: int, late_ns: list[int]
) -> None:
    late = kernels(lambda rank, step: 200 + 300 * (rank == 1 and step % every == 7))
    (run,) = analyze([train(tmp_path, 4, 400, [late, 300, finish])]).runs
    assert run.cross_rank is not None
    assert [row.lag_ns for row in run.cross_rank.stragglers] == late_ns
    assert len(run.cross_rank.one_off_stragglers) == (0 if every == 40 else 3)


def test_what_a_rank_is_always_late_in_is_told_beside_what_it_does_in_every_fifth_step(tmp_path: Path) -> None:
    def dump(one: Device, step: int) -> None:
        if (one.rank, step % 5) == (1, 4):
            one.work(9_000, "train.py(70): dump")

    parts: list[Part | int] = [kernels(lambda rank, _: 1000 + 150 * (rank == 1)), 800, finish, dump]
    report = analyze([train(tmp_path, 4, 30, parts)])
    across = report.runs[0].cross_rank
    assert across is not None
    (late,) = across.stragglers
    assert (late.every, [(one.category, one.lag_ns) for one in late.also]) == (5, [("compute", 1.5 * MS)])
    # All others wait for it, for both: 1.5 ms in each of 30 steps, and 9 ms after five dumps (nobody follows the last).
    assert {row.rank: row.wait_ns for row in across.rank_waits} == {0: 90 * MS, 1: 0, 2: 90 * MS, 3: 90 * MS}
    assert late_row(report) == ([1], across.stragglers_gain_ns, "at_times")
