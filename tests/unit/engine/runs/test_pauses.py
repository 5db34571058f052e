"""Checkpoints and evaluations, on traces whose pauses are known: no part of a step, of its breakdown or of lateness."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from perfkit.engine.runs.pauses import summarize_pauses
from perfkit.engine.steps.pauses import TracedPause
from perfkit.pipeline import analyze as pipeline
from perfkit.records.manifest import CaptureRecord, RankRecord, RunManifest, World
from perfkit.records.per_run.pauses import EarlierPauses, RankPauses, RecordedPause
from perfkit.records.run import RunReport
from tests.support.reports.report_builders import make_record
from tests.support.traces.trace_builder import BASE_NS, TraceBuilder

STEPS = 6
STEP = 1_000
PAUSE = 5_000
"""Microseconds."""


def training(
    rank: int,
    *,
    pause: str | None,
    waits: bool = False,
    cat: str = "user_annotation",
    pause_us: int = PAUSE,
    idle_us: int = 0,
) -> TraceBuilder:
    """Steps of 1 ms; before the fourth, a pause of 5 ms, or waiting in the collective for that of the other rank."""
    builder = TraceBuilder(rank, 2, backend="gloo")
    at = 0
    for number in range(STEPS):
        extra = pause_us if number == 3 and (pause or waits) else 0
        builder.step(number, at, STEP + extra)
        late = min(extra, idle_us)
        begin = at + (extra if pause else late)
        if pause and extra:
            builder.event(cat, pause, at, extra, pid=1000 + rank, tid=1).op("aten::mm", at + 100, extra * 4 // 5)
            builder.data_loading(at + extra * 21 // 25, extra // 10)
        builder.data_loading(begin, 50).op("aten::mm", begin + 50, 700).op("c10d::allreduce_", begin + 750, 10)
        builder.gloo("all_reduce", begin + 760, 200 + (extra - late if waits else 0))
        at += STEP + extra
    return builder


def analyse(folder: Path, *traces: TraceBuilder) -> RunReport:
    for rank, builder in enumerate(traces):
        builder.write(folder / f"rank{rank}.json")
    (run,) = pipeline.analyze(folder, cache=False).runs
    return run


def rows(run: RunReport) -> dict[tuple[str, int | None], RankPauses]:
    return {(row.phase, row.rank): row for row in run.pauses}


@pytest.mark.parametrize(
    ("name", "cat", "phase"),
    [
        ("perfkit.checkpoint", "user_annotation", "checkpoint"),
        ("perfkit.evaluation", "user_annotation", "evaluation"),
        ("save_checkpoint", "user_annotation", "checkpoint"),
        ("[pl][profile][Callback]ModelCheckpoint{'monitor': None}.on_train_batch_end", "user_annotation", "checkpoint"),
        ("[pl][profile][Strategy]DDPStrategy.validation_step", "user_annotation", "evaluation"),
        ("validation", "user_annotation", "evaluation"),
        ("run_evaluation", "user_annotation", "evaluation"),
        ("validate_epoch", "user_annotation", "evaluation"),
        ("torch/serialization.py(944): save", "python_function", "checkpoint"),
        ("/venv/torch/distributed/checkpoint/state_dict_saver.py(88): save", "python_function", "checkpoint"),
    ],
)
def test_a_pause_is_no_part_of_its_step(tmp_path: Path, name: str, cat: str, phase: str) -> None:
    run = analyse(tmp_path, *(training(rank, pause=name, cat=cat) for rank in range(2)))
    assert {key: (row.count, row.total_ns, row.recorded_ns) for key, row in rows(run).items()} == {
        (phase, rank): (1, PAUSE * 1000, PAUSE * 1000) for rank in range(2)
    }
    for rank in run.ranks:
        assert [step.wall_ns for step in rank.steps] == [STEP * 1000] * STEPS
        assert [step.paused_ns for step in rank.steps] == [0, 0, 0, PAUSE * 1000, 0, 0]
        assert {(step.exposed_ns.compute, step.exposed_ns.data_loading, step.loads.count) for step in rank.steps} == {
            (700_000, 50_000, 1)
        }
        assert {step.idle_ns.host_work for step in rank.steps} == {rank.steps[0].idle_ns.host_work}
        assert sum(row.total_ns for row in rank.operators if row.name == "aten::mm") == STEPS * 700_000
    assert run.critical_path is not None
    assert run.critical_path.total_ns == 3 * STEP * 1000
    assert run.ledger is not None
    assert run.ledger.step_ns == STEP * 1000


@pytest.mark.parametrize(
    "name",
    [
        "checkpoint",
        "perfkit.forward",
        "evaluate",
        "validate",
        "evaluate_loss_function",
        "aten::save",
    ],
)
def test_other_annotations_are_part_of_the_step(tmp_path: Path, name: str) -> None:
    run = analyse(tmp_path, *(training(rank, pause=name) for rank in range(2)))
    assert run.pauses == []
    assert run.ranks[0].steps[3].wall_ns == (STEP + PAUSE) * 1000


def test_an_evaluation_with_a_backward_pass_is_training(tmp_path: Path) -> None:
    traces = [training(rank, pause="validation") for rank in range(2)]
    for builder in traces:
        builder.op("autograd::engine::evaluate_function: MmBackward0", 3 * STEP + 4_500, 100, 2)
    assert analyse(tmp_path, *traces).pauses == []


@pytest.mark.parametrize(("without", "paused"), [(None, 0), (4, STEPS - 1)])
@pytest.mark.parametrize("listed", [False, True])
def test_an_evaluation_in_each_step_is_part_of_it(
    tmp_path: Path, without: int | None, paused: int, listed: bool
) -> None:
    builder = TraceBuilder(0, 1)
    pauses = []
    for number in range(STEPS):
        at = number * STEP
        builder.step(number, at, STEP).op("aten::mm", at, 700)
        if number != without:
            builder.annotation("validation", at + 100, 200)
            begin_ns = BASE_NS + (at + 100) * 1000
            pauses.append({"phase": "evaluation", "step": number, "begin_ns": begin_ns, "end_ns": begin_ns + 200_000})
    if listed:  # then the run has said so
        builder.header(perfkit={"rank": 0, "world_size": 1, "pauses": pauses})
        paused = len(pauses)
    run = analyse(tmp_path, builder)
    assert sum(row.recorded for row in run.pauses) == paused
    assert sum(step.paused_ns for step in run.ranks[0].steps) == 200_000 * paused


def test_an_evaluation_on_one_rank_is_waited_for_and_no_straggler(tmp_path: Path) -> None:
    run = analyse(tmp_path, training(0, pause="perfkit.evaluation"), training(1, pause=None, waits=True))
    assert run.cross_rank is not None
    assert run.cross_rank.stragglers == []
    assert run.cross_rank.one_off_stragglers == []
    (row,) = run.pauses
    # Rank 1 computes for 760 us of the 5 ms, then waits: until rank 0, after the pause, has computed as long.
    assert (row.rank, row.recorded_ns, row.waited_ns) == (0, PAUSE * 1000, PAUSE * 1000)


def test_waiting_for_a_pause_is_no_transfer(tmp_path: Path) -> None:
    """Each of six steps transfers for 210 us, and rank 1 waits 5 ms in one of them."""
    one = analyse(tmp_path, training(0, pause="perfkit.evaluation"), training(1, pause=None, waits=True)).efficiency
    assert one is not None
    assert one.t_ns == (STEPS * STEP + PAUSE) * 1000
    assert one.t_ideal_ns == one.t_ns - STEPS * 210_000
    assert one.serialisation == pytest.approx((one.t_ideal_ns - PAUSE * 1000) / one.t_ideal_ns)


def test_pauses_of_all_ranks_at_once_lose_nothing(tmp_path: Path) -> None:
    one = analyse(tmp_path, *(training(rank, pause="perfkit.checkpoint") for rank in range(2))).efficiency
    assert one is not None
    assert one.t_ns == STEPS * STEP * 1000
    assert one.serialisation == 1


def test_a_pause_shorter_than_the_others_computation_is_waited_for_after_it(tmp_path: Path) -> None:
    run = analyse(
        tmp_path,
        training(0, pause="perfkit.evaluation", pause_us=500),
        training(1, pause=None, waits=True, pause_us=500),
    )
    (row,) = run.pauses
    assert (row.recorded_ns, row.waited_ns) == (500_000, 500_000)


def test_what_a_rank_usually_communicates_is_no_waiting_for_a_pause(tmp_path: Path) -> None:
    run = analyse(
        tmp_path,
        training(0, pause="perfkit.evaluation", pause_us=500),
        training(1, pause=None, waits=True, pause_us=500, idle_us=200),
    )
    (row,) = run.pauses
    assert row.waited_ns == 300_000


def test_nobody_waits_for_a_pause_of_all_ranks(tmp_path: Path) -> None:
    run = analyse(tmp_path, *(training(rank, pause="perfkit.checkpoint") for rank in range(2)))
    assert [row.waited_ns for row in run.pauses] == [0, 0]


def device_trace() -> TraceBuilder:
    """Two steps whose device runs behind: at the pause of the host it still works, and works on what that launches."""
    builder = TraceBuilder(0, 1).step(0, 0, 200).launch(1, 10, 5).kernel("gemm", 50, 300, 1)
    builder.step(1, 200, 800).annotation("perfkit.evaluation", 200, 400)
    builder.launch(2, 250, 5).kernel("gemm", 400, 250, 2)
    builder.launch(3, 610, 5).kernel("gemm", 700, 200, 3)
    return builder


def test_on_a_device_a_pause_begins_when_the_work_before_is_done(tmp_path: Path) -> None:
    run = analyse(tmp_path, device_trace())
    (rank,) = run.ranks
    # From the end of the kernel before (350) to the end of the pause's own (650).
    assert sum(step.paused_ns for step in rank.steps) == 300_000
    assert sum(step.exposed_ns.compute for step in rank.steps) == 500_000
    assert sum(row.total_ns for row in rank.operators) == 500_000
    assert sum(step.wall_ns + step.paused_ns for step in rank.steps) == 1_000_000


def test_the_advice_names_the_evaluation_that_is_waited_for(tmp_path: Path) -> None:
    for rank, builder in enumerate((training(0, pause="perfkit.evaluation"), training(1, pause=None, waits=True))):
        builder.write(tmp_path / f"rank{rank}.json")
    insights = pipeline.analyze(tmp_path, cache=False).insights
    waiting = next(one for one in insights if one.rule == "waiting")
    assert waiting.sentence.endswith("for evaluation on rank 0")
    assert waiting.recommendation.startswith("divide the evaluation evenly over all ranks")


@pytest.mark.parametrize("files", [1, 4, 7])
@pytest.mark.parametrize("first_step", [None, 61])
def test_what_is_saved_together_is_one_checkpoint(files: int, first_step: int | None) -> None:
    """Model, optimizer and schedule are files of one; a capture of four steps lists the pauses of all before."""
    pauses = [
        RecordedPause(
            phase="checkpoint", step=step, begin_ns=step * 1000 + 10 * file, end_ns=step * 1000 + 10 * file + 5
        )
        for step in (20, 40)
        for file in range(files)
    ]
    record = replace(make_record([1_000] * 5), pauses=pauses)
    capture = None if first_step is None else CaptureRecord(first_step=first_step, steps=4, ranks=[0])
    manifest = replace(manifest_of(record), capture=capture)
    (row,) = summarize_pauses({}, {}, [], manifest)
    assert (row.count, row.total_ns, row.max_ns) == (2, 2 * 5 * files, 5 * files)
    assert row.steps == (5 if first_step is None else 65)


@pytest.mark.parametrize("files", [1, 3])
def test_files_written_in_one_recorded_step_are_one_checkpoint(tmp_path: Path, files: int) -> None:
    builder = TraceBuilder(0, 1)
    for number in range(STEPS):
        at = number * STEP
        builder.step(number, at, STEP).op("aten::mm", at, 400)
        for file in range(files if number in (1, 4) else 0):
            builder.annotation("save_checkpoint", at + 500 + 100 * file, 50)
    (row,) = analyse(tmp_path, builder).pauses
    assert (row.count, row.recorded, row.total_ns, row.max_ns) == (2, 2, 2 * 50_000 * files, 50_000 * files)


@pytest.mark.parametrize(
    "name", ["[pl][profile][Callback]ModelCheckpoint{'monitor': None}.on_train_batch_end", "validation"]
)
@pytest.mark.parametrize(("length_us", "found"), [(1, 0), (9, 0), (11, 1), (300, 1)])
def test_a_callback_that_had_nothing_to_do_is_no_pause(tmp_path: Path, name: str, length_us: int, found: int) -> None:
    builder = TraceBuilder(0, 1)
    for number in range(STEPS):
        at = number * STEP
        builder.step(number, at, STEP).op("aten::mm", at, 400)
        builder.annotation(name, at + 500, length_us if number == 2 else 4)
    run = analyse(tmp_path, builder)
    assert sum(row.count for row in run.pauses) == found
    assert sum(step.paused_ns for step in run.ranks[0].steps) == found * length_us * 1000


def manifest_of(record: RankRecord) -> RunManifest:
    world = World(world_size=1, nodes=1, launcher="none", local_world_sizes=[1])
    return RunManifest(
        run="r",
        state="completed",
        workload="gpt",
        source="memory",
        started_at="2026-01-01T00:00:00+00:00",
        config={},
        versions={},
        backend="gloo",
        device="cpu",
        world=world,
        batch_size=8,
        ranks=[record],
    )


def test_pauses_that_a_record_has_only_as_a_sum_count_as_well() -> None:
    last = RecordedPause(phase="checkpoint", step=9, begin_ns=100, end_ns=150, bytes=5, caller="train.py:9 save")
    short = RecordedPause(phase="checkpoint", step=10, begin_ns=200, end_ns=210, caller="train.py:12 save_best")
    earlier = EarlierPauses(phase="checkpoint", count=20, total_ns=900, max_ns=60, bytes=70, asynchronous=2)
    logging = EarlierPauses(phase="logging", count=3, total_ns=30, max_ns=10)
    record = replace(make_record([1_000]), pauses=[last, short], earlier_pauses=[earlier, logging])
    manifest = manifest_of(record)
    in_trace = TracedPause(phase="evaluation", begin_ns=0, end_ns=7, step_ns=7)
    of_checkpoints, of_evaluation, of_logging = summarize_pauses({0: [in_trace]}, {}, [], manifest)
    assert (of_checkpoints.count, of_checkpoints.total_ns, of_checkpoints.max_ns) == (22, 960, 60)
    assert (of_checkpoints.bytes, of_checkpoints.asynchronous) == (75, 2)
    assert of_checkpoints.caller == "train.py:9 save"  # of the longest whose caller is known
    assert (of_logging.phase, of_logging.count, of_logging.total_ns, of_logging.bytes) == ("logging", 3, 30, None)
    # The record has completed steps, but no evaluations: those outside of the trace are unknown.
    assert (of_evaluation.count, of_evaluation.recorded) == (1, 1)
    assert (of_checkpoints.steps, of_evaluation.steps, of_logging.steps) == (1, None, 1)
