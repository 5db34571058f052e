"""The bubble of simulated pipelines: its size, its parts, and what is said of heavy stages."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perfkit
from perfkit.engine.pipelines import bubbles
from perfkit.engine.pipelines.replay import Action, make_plan
from perfkit.records.per_run.pipeline import Pipeline
from perfkit.records.run import RunReport
from perfkit.trace.intervals import Union, difference, union
from tests.support.traces.pipeline_builder import gpipe, one_forward_one_backward, traces
from tests.support.traces.trace_builder import TraceBuilder, collective_args

SCHEDULES = [gpipe, one_forward_one_backward]
Times = Callable[[int, str], int]


def run_of(folder: Path, *builders: TraceBuilder) -> RunReport:
    for rank, builder in enumerate(builders):
        builder.write(folder / f"rank{rank}.json")
    (run,) = perfkit.analyze(folder, cache=False).runs
    return run


def pipeline_of(folder: Path, *builders: TraceBuilder) -> Pipeline:
    (found,) = run_of(folder, *builders).pipelines
    return found


def equal(stage: int, kind: str) -> int:
    return 100 if kind == "F" else 200


def heavy(at: int, factor: float) -> Times:
    return with_factors({at: factor})


def with_factors(factors: Mapping[int, float]) -> Times:
    return lambda stage, kind: round(equal(stage, kind) * factors.get(stage, 1))


def check_sums(found: Pipeline, run: RunReport) -> None:
    walls = {rank.rank: {step.step: step.wall_ns for step in rank.steps} for rank in run.ranks}
    for rank in found.ranks:
        parts = (rank.ideal_ns, rank.imbalance_ns, rank.communication_ns)
        assert sum(part for part in parts if part is not None) == rank.bubble_ns
        whole = rank.compute_ns + rank.bubble_ns + rank.other_communication_ns + rank.other_ns
        assert whole == rank.wall_ns <= sum(walls[rank.rank].values())


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("ranks", "batches"), [(2, 4), (4, 4), (4, 8)])
def test_with_equal_stages_the_bubble_is_that_of_the_formula(
    tmp_path: Path, schedule: Callable[..., list[list[tuple[int, str, int]]]], ranks: int, batches: int
) -> None:
    found = pipeline_of(tmp_path, *traces(schedule(ranks, batches), [equal] * 3))
    assert (found.stages, found.micro_batches, found.steps, found.heavy) == (ranks, batches, 2, None)
    assert found.bubble_share == found.ideal_share == pytest.approx((ranks - 1) / (batches + ranks - 1))
    assert all((rank.imbalance_ns, rank.communication_ns) == (0, 0) for rank in found.ranks)


@settings(deadline=None, max_examples=12)
@given(
    schedule=st.sampled_from(SCHEDULES),
    ranks=st.integers(2, 4),
    batches=st.integers(1, 6),
    delay=st.integers(0, 50),
    seed=st.randoms(use_true_random=False),
)
def test_the_parts_add_up_whatever_the_times(
    tmp_path_factory: pytest.TempPathFactory,
    schedule: Callable[..., list[list[tuple[int, str, int]]]],
    ranks: int,
    batches: int,
    delay: int,
    seed: object,
) -> None:
    drawn = [{(stage, kind): seed.randint(1, 400) for stage in range(ranks) for kind in "FB"} for _ in range(3)]  # type: ignore[attr-defined]
    times: list[Times] = [lambda stage, kind, one=one: one[stage, kind] for one in drawn]  # type: ignore[misc]
    run = run_of(tmp_path_factory.mktemp("run"), *traces(schedule(ranks, batches), times, delay=delay))
    (found,) = run.pipelines
    check_sums(found, run)
    for rank in found.ranks:
        assert rank.communication_ns is not None
        # The replay without transfers follows the simulation exactly.
        assert rank.communication_ns >= 0 if delay else rank.communication_ns == 0


def test_transfers_are_told_from_imbalance(tmp_path: Path) -> None:
    run = run_of(tmp_path, *traces(gpipe(2, 4), [equal] * 3, delay=7))
    (found,) = run.pipelines
    check_sums(found, run)
    # In a step the first transfer each way; the others take place while their receiver computes.
    assert [(rank.imbalance_ns, rank.communication_ns) for rank in found.ranks] == [(0, 2 * 14_000)] * 2


@pytest.mark.parametrize("at", [0, 1, 3])
def test_a_heavy_stage_is_named_with_its_size(tmp_path: Path, at: int) -> None:
    own = [{"index": stage, "layers": 4} for stage in range(4)]
    recorded = {"schedule": "gpipe", "stages": 4, "micro_batches": 8, "own": own}
    builders = traces(gpipe(4, 8), [heavy(at, 1.3)] * 3, header={"pipeline": recorded})
    run = run_of(tmp_path, *builders)
    (found,) = run.pipelines
    check_sums(found, run)
    assert found.heavy is not None
    assert (found.heavy.stage, found.heavy.rank) == (at, at)
    assert found.heavy.excess == pytest.approx(0.3, abs=1e-6)
    # Equal stages: 11 turns of 322.5 us. Now: 8 of the heavy stage's 390 us, and one of 300 us for each of the others.
    assert found.heavy.gain_ns == pytest.approx(8 * 390_000 + 3 * 300_000 - 11 * 322_500, abs=10)
    assert found.heavy.layer_move is not None
    assert found.heavy.layer_move.to_stage != at
    # A layer is 75 us: 315 us are left, and the stage that takes it needs 375 us, which is then the longest.
    assert found.heavy.layer_move.gain_ns == pytest.approx(7 * (390 - 375) * 1e3, abs=10)


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("heavy_stage", [True, False])
def test_a_slow_micro_batch_neither_hides_a_heavy_stage_nor_makes_one(
    tmp_path: Path, at: int, heavy_stage: bool
) -> None:
    times = heavy(1, 1.3) if heavy_stage else equal
    run = run_of(tmp_path, *traces(one_forward_one_backward(2, 4), [times] * 4, slow={(at, "B", 2): 3000}))
    (found,) = run.pipelines
    check_sums(found, run)
    if not heavy_stage:
        assert found.heavy is None
        return
    assert found.heavy is not None
    assert (found.heavy.stage, found.heavy.also) == (1, [])
    assert found.heavy.excess == pytest.approx(0.3, rel=0.01)


@pytest.mark.parametrize(
    ("stages", "factors", "excess"),
    [
        (4, {1: 1.3, 2: 1.3}, {1: 0.3, 2: 0.3}),
        (4, {1: 1.3, 2: 1.05}, {1: 0.3}),
        (4, {1: 1.3, 3: 1.5}, {1: 0.3, 3: 0.5}),
        (4, {1: 1.3, 2: 1.3, 3: 1.3}, {}),  # the other one is light
        (3, {1: 2.0, 2: 2.0}, {1: 1.0, 2: 1.0}),  # compared with the light one
    ],
)
def test_all_stages_that_are_heavier_than_the_others_are_found(
    tmp_path: Path, stages: int, factors: dict[int, float], excess: dict[int, float]
) -> None:
    found = pipeline_of(tmp_path, *traces(gpipe(stages, 8), [with_factors(factors)] * 3)).heavy
    assert {one.stage: one.excess for one in (found.all if found else ())} == pytest.approx(excess)


def test_stages_that_vary_alike_are_not_called_heavy(tmp_path: Path) -> None:
    def varying(step: int) -> Times:
        return lambda stage, kind: equal(stage, kind) + 60 * ((stage + step) % 3)

    assert pipeline_of(tmp_path, *traces(gpipe(3, 4), [varying(step) for step in range(7)])).heavy is None


def test_annotations_of_torch_are_known_too(tmp_path: Path) -> None:
    builders = traces(one_forward_one_backward(2, 4), [equal] * 2, prefix="PP:")
    for builder in builders:
        builder.header(perfkit=None)
    found = pipeline_of(tmp_path, *builders)
    assert (found.schedule, found.stages, found.micro_batches, found.reason) == ("1f1b", 2, 4, None)
    assert found.bubble_share == pytest.approx(1 / 5)


def test_a_forward_and_a_backward_in_one_action_are_not_counted_as_none(tmp_path: Path) -> None:
    """DualPipeV of torch annotates some as one, `PP:(0F3;3B1)OVERLAP_F_B`."""
    builders = []
    for rank in range(2):
        builder = TraceBuilder(rank, 2, backend="gloo", host_name="a").step(0, 0, 1500)
        for name, begin, length in (("F0", 100, 100), ("F1", 300, 140), ("B1", 900, 200), ("B2", 1100, 60)):
            builder.annotation(f"PP:{rank}{name}", begin, length).op("aten::mm", begin, length)
        builder.annotation(f"PP:({rank}F2;{rank}B0)OVERLAP_F_B", 600, 250).op("aten::mm", 600, 250)
        builders.append(builder.gloo("recv", 1200, 100))
    found = pipeline_of(tmp_path, *builders)
    assert (found.reason, found.heavy) == ("some micro-batches of some stages are not annotated", None)
    assert [(row.forward_ns, row.backward_ns) for row in found.stage_times] == [(120_000, 130_000)] * 2


def test_sends_are_part_of_the_bubble_only_outside_of_the_actions(tmp_path: Path) -> None:
    builders = []
    for rank in range(2):
        builder = TraceBuilder(rank, 2, backend="gloo", host_name="a").step(0, 0, 1000)
        for kind, begin in (("F", 100), ("B", 500)):
            builder.annotation(f"perfkit.pipeline.{rank}{kind}0", begin, 100).op("aten::mm", begin, 100)
        builders.append(builder.gloo("send", 300, 50).gloo("send", 800, 30).gloo("all_reduce", 900, 20))
    found = pipeline_of(tmp_path, *builders)
    # The all_reduce serves no known dimension.
    assert [(rank.bubble_ns, rank.other_communication_ns) for rank in found.ranks] == [(30_000, 70_000)] * 2


def test_what_the_host_does_in_an_action_is_work_though_messages_are_under_way(tmp_path: Path) -> None:
    """Runtimes issue receives ahead, and wait for sends at the end of the step: these delay no action."""
    builders = []
    for rank in range(2):
        builder = TraceBuilder(rank, 2, backend="gloo", host_name="a").step(0, 0, 1000)
        builder.annotation(f"PP:{rank}F0", 100, 200).op("aten::mm", 250, 50)
        builder.annotation(f"PP:{rank}B0", 500, 100).op("aten::mm", 500, 100)
        builder.gloo("recv", 90, 30).gloo("recv", 110, 420).gloo("send", 130, 800)
        builders.append(builder)
    found = pipeline_of(tmp_path, *builders)
    assert [row.forward_ns for row in found.stage_times] == [180_000] * 2
    # Before the first action, in it until its message is there, and between the two.
    assert [row.bubble_ns for row in found.ranks] == [10_000 + 20_000 + 200_000] * 2


@given(
    *(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=8) for _ in range(2)),
)
def test_a_difference_covers_what_only_the_first_spans_cover(
    spans: list[tuple[int, int]], others: list[tuple[int, int]]
) -> None:
    def covered(parts: list[tuple[int, int]]) -> set[int]:
        return {at for begin, length in parts for at in range(begin, begin + length)}

    def union_of(parts: list[tuple[int, int]]) -> Union:
        begin, length = np.array(parts, np.int64).reshape(-1, 2).T
        return union(begin, begin + length)

    found = difference(union_of(spans), union_of(others))
    left = {at for begin, end in zip(*map(np.ndarray.tolist, found), strict=True) for at in range(begin, end)}
    assert left == covered(spans) - covered(others)


def test_on_a_device_the_work_is_that_of_the_kernels(tmp_path: Path) -> None:
    def rank(
        number: int, forward: tuple[int, int], backward: tuple[int, int], receive: tuple[int, int]
    ) -> TraceBuilder:
        builder = TraceBuilder(number, 2, backend="nccl", host_name="a").step(0, 0, 1000)
        # The host is far ahead of the device.
        for place, (kind, (begin, end)) in enumerate((("F", forward), ("B", backward)), 1):
            builder.annotation(f"PP:{number}{kind}0", 20 * place, 10).launch(place, 20 * place + 1, 2)
            builder.kernel("gemm", begin, end - begin, place)
        args = collective_args("recv", 8, 8, "Float", "4", "mesh_pp", (0, 1), None) | {"Src Rank": 1 - number}
        builder.launch(9, 60, 2)
        return builder.kernel("ncclDevKernel_SendRecv", receive[0], receive[1] - receive[0], 9, 20, args=args)

    builders = rank(0, (100, 200), (600, 800), (150, 600)), rank(1, (200, 300), (300, 600), (100, 200))
    run = run_of(tmp_path, *builders)
    (found,) = run.pipelines
    check_sums(found, run)
    assert found.reason is None
    assert [rank.bubble_ns for rank in found.ranks] == [400_000, 100_000]
    # Equal stages: forwards of 100 and backwards of 250, one after the other.
    assert [rank.ideal_ns for rank in found.ranks] == [350_000] * 2
    # In fact all is one after the other in 700, of which the ranks compute 300 and 400.
    assert [rank.imbalance_ns for rank in found.ranks] == [50_000, -50_000]


@pytest.mark.parametrize(("dimension", "work"), [("mesh_dp", 200), ("mesh_tp", 300)])
def test_an_all_reduce_of_gradients_is_no_work_of_a_stage(tmp_path: Path, dimension: str, work: int) -> None:
    builders = []
    for rank in range(2):
        builder = TraceBuilder(rank, 2, backend="nccl", host_name="a").step(0, 0, 1000)
        for place, (kind, begins) in enumerate((("F", [100]), ("B", [500, 700]))):
            builder.annotation(f"PP:{rank}{kind}0", 20 * place, 19)
            for number, begin in enumerate(begins):
                launch = 2 * place + number
                builder.launch(launch, 20 * place + 2 + number, 1).kernel("gemm", begin, 100, launch)
        args = collective_args("allreduce", 8, 8, "Float", "4", dimension, (rank, rank + 2), None)
        builder.launch(9, 30, 2).kernel("ncclDevKernel_AllReduce", 600, 100, 9, 20, args=args)
        builders.append(builder)
    found = pipeline_of(tmp_path, *builders)
    assert [stage.backward_ns for stage in found.stage_times] == [work * 1000] * 2
    assert [(rank.bubble_ns, rank.other_communication_ns) for rank in found.ranks] == [(0, 100_000)] * 2


@pytest.mark.parametrize(("limit", "value"), [("_MOST_ACTIONS", 15), ("_MOST_STAGES", 1), ("_MOST_CELLS", 0)])
def test_more_actions_than_can_be_replayed_leave_the_bubble_unsplit(
    limit: str, value: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bubbles, limit, value)
    found = pipeline_of(tmp_path, *traces(gpipe(2, 4), [equal] * 2))
    assert (found.reason, found.stage_times, found.heavy) == ("too many stages or micro-batches", [], None)
    assert found.bubble_share == pytest.approx(1 / 5)


def test_a_missing_rank_leaves_the_bubble_unsplit(tmp_path: Path) -> None:
    messages = [("send", 1, 0, batch) for batch in range(4)]
    recorded = {"schedule": "gpipe", "stages": 2, "micro_batches": 4, "own": [], "messages": messages}
    first, _ = traces(gpipe(2, 4), [equal] * 2, header={"pipeline": recorded})
    for step in range(2):
        for batch in range(4):
            first.gloo("send", step * 1500 + 100 * (batch + 1), 10)
    found = pipeline_of(tmp_path, first)
    assert (found.stages, found.reason, found.ideal_share) == (2, "traces of 1 of 2 ranks", None)
    assert [rank.ideal_ns for rank in found.ranks] == [None]
    assert found.bubble_share == pytest.approx(1 / 5, abs=0.01)


def test_without_micro_batches_there_is_no_pipeline(tmp_path: Path) -> None:
    builders = [TraceBuilder(rank, 2).step(0, 0, 100).op("aten::mm", 0, 50) for rank in range(2)]
    assert run_of(tmp_path, *builders).pipelines == []


@pytest.mark.parametrize("lost", [Action(0, 0, 0), Action(1, 0, 0), Action(1, 1, 0)])
def test_a_plan_needs_every_action(lost: Action) -> None:
    orders = [[Action(stage, kind, 0) for kind in (0, 1)] for stage in range(2)]
    assert make_plan(orders, 2) is not None
    assert make_plan([[action for action in order if action != lost] for order in orders], 2) is None


def test_an_impossible_order_has_no_plan() -> None:
    orders = [[Action(0, 1, 0), Action(0, 0, 0)], [Action(1, 0, 0), Action(1, 1, 0)]]
    assert make_plan(orders, 2) is None
