"""Pipelines of programs that do not annotate micro-batches: recognised where it is certain, and silent elsewhere."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import perfkit
from perfkit.records.run import RunReport
from perfkit.tools.merge.merge import merge
from tests.support.traces.pipeline_builder import Order, gpipe, looped, one_forward_one_backward, unannotated
from tests.support.traces.trace_builder import TraceBuilder

Schedule = Callable[[int, int], list[Order]]


def equal(stage: int, kind: str) -> int:
    return 10_000 if kind == "F" else 20_000


def write(folder: Path, builders: list[TraceBuilder]) -> None:
    for place, builder in enumerate(builders):
        builder.write(folder / f"trace{place}.json")


def analyzed(folder: Path, builders: list[TraceBuilder]) -> RunReport:
    write(folder, builders)
    (run,) = perfkit.analyze(folder, cache=False).runs
    return run


def dimensions(run: RunReport) -> set[str | None]:
    """Return the dimensions of all collectives, which both tables have."""
    found = {row.dimension for rank in run.ranks for row in rank.collectives}
    assert found == {row.dimension for rank in run.ranks for row in rank.issued_collectives}
    return found


def reversed_backwards(ranks: int, batches: int) -> list[Order]:
    """GPipe as first published: backward begins with the last micro-batch."""
    forwards = [[(rank, "F", batch) for batch in range(batches)] for rank in range(ranks)]
    return [own + [(stage, "B", batch) for stage, _, batch in reversed(own)] for own in forwards]


@pytest.mark.parametrize(
    ("schedule", "name"),
    [(gpipe, "gpipe"), (one_forward_one_backward, "1f1b"), (reversed_backwards, "gpipe")],
)
@pytest.mark.parametrize(("ranks", "batches"), [(2, 4), (4, 4), (4, 2)])
def test_stages_schedule_and_bubble(tmp_path: Path, schedule: Schedule, name: str, ranks: int, batches: int) -> None:
    run = analyzed(tmp_path, unannotated(schedule(ranks, batches), [equal] * 3))
    (found,) = run.pipelines
    assert (found.schedule, found.stages, found.micro_batches, found.steps) == (name, ranks, batches, 2)
    assert [(rank.rank, rank.stages) for rank in found.ranks] == [(rank, [rank]) for rank in range(ranks)]
    assert found.ideal_share == pytest.approx((ranks - 1) / (batches + ranks - 1), abs=0.015)
    assert found.bubble_share == pytest.approx((ranks - 1) / (batches + ranks - 1), abs=0.02)
    assert dimensions(run) == {"pp"}
    assert run.verdict.bound == "bubble"


def test_without_micro_batches_it_is_naive_model_parallelism(tmp_path: Path) -> None:
    (found,) = analyzed(tmp_path, unannotated(gpipe(3, 1), [equal] * 3)).pipelines
    assert (found.schedule, found.stages, found.micro_batches) == ("none", 3, 1)
    assert found.bubble_share == pytest.approx(2 / 3, abs=0.02)


def test_stages_are_in_the_order_of_the_data_not_of_the_ranks(tmp_path: Path) -> None:
    run = analyzed(tmp_path, unannotated(gpipe(3, 4), [equal] * 3, ranks=(2, 0, 1)))
    (found,) = run.pipelines
    assert [(rank.rank, rank.stages) for rank in found.ranks] == [(2, [0]), (0, [1]), (1, [2])]


def test_a_heavy_stage_is_found(tmp_path: Path) -> None:
    times = [lambda stage, kind: round(equal(stage, kind) * (1.3 if stage == 1 else 1))] * 3
    (found,) = analyzed(tmp_path, unannotated(one_forward_one_backward(2, 4), times)).pipelines
    assert found.heavy is not None
    assert (found.heavy.stage, found.heavy.rank) == (1, 1)
    assert found.heavy.excess == pytest.approx(0.3, rel=0.1)


def test_the_timeline_shows_micro_batches_of_recognised_stages(tmp_path: Path) -> None:
    write(tmp_path, unannotated(gpipe(2, 2), [equal] * 2, ranks=(1, 0)))
    output = tmp_path / "merged" / "merged.json"
    merge(tmp_path, output)
    events = json.loads(output.read_text())["traceEvents"]
    assert {"forward 0, stage 0", "backward 1, stage 1", "bubble"} <= {event["name"] for event in events}
    assert "rank 0" in {event["args"].get("name") for event in events if event["ph"] == "M"}


def silent(folder: Path, builders: list[TraceBuilder]) -> bool:
    run = analyzed(folder, builders)
    return not run.pipelines and dimensions(run) == {None}


def test_two_pipelines_whose_messages_name_no_peer_are_not_told_apart(tmp_path: Path) -> None:
    one, other = (unannotated(gpipe(2, 4), [equal] * 3, ranks=ranks, world_size=4) for ranks in ((0, 2), (1, 3)))
    assert silent(tmp_path, one + other)


def two_pipelines(*groups: tuple[str, tuple[int, ...]]) -> list[TraceBuilder]:
    """Return traces of ranks 0 and 2, and of 1 and 3, whose headers list the groups that each rank is in."""
    one, other = (unannotated(gpipe(2, 4), [equal] * 3, ranks=ranks, world_size=4) for ranks in ((0, 2), (1, 3)))
    for rank, builder in zip((0, 2, 1, 3), one + other, strict=True):
        listed = [
            {"pg_name": str(number), "pg_desc": name, "ranks": list(ranks)}
            for number, (name, ranks) in enumerate(groups)
            if rank in ranks
        ]
        info = {"backend": "gloo", "rank": rank, "world_size": 4, "pg_config": listed}
        builder.header(distributedInfo=info)
    return one + other


EVEN, ODD = ("mesh_pp", (0, 2)), ("mesh_pp", (1, 3))


def test_two_pipelines_whose_groups_have_names(tmp_path: Path) -> None:
    run = analyzed(tmp_path, two_pipelines(EVEN, ODD, ("mesh_dp", (0, 1)), ("mesh_dp", (2, 3))))
    assert sorted([rank.rank for rank in found.ranks] for found in run.pipelines) == [[0, 2], [1, 3]]
    assert {(found.schedule, found.stages, found.micro_batches) for found in run.pipelines} == {("gpipe", 2, 4)}
    assert dimensions(run) == {"pp"}


@pytest.mark.parametrize(
    "groups",
    [
        [("mesh_dp", (0, 2)), ("mesh_dp", (1, 3))],
        [EVEN],
        [("mesh_pp", (0, 1)), ("mesh_pp", (2, 3))],  # the data goes another way
        [EVEN, ODD, ("mesh_pp", (0, 1))],
    ],
)
def test_two_pipelines_whose_groups_do_not_tell_them_apart(
    groups: list[tuple[str, tuple[int, ...]]], tmp_path: Path
) -> None:
    assert silent(tmp_path, two_pipelines(*groups))


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_with_several_stages_each_are_not_taken_for_one_stage(ranks: int, tmp_path: Path) -> None:
    """Each part of a rank's layers follows that of the rank before; but the first rank receives from the last, too."""
    assert silent(tmp_path, unannotated(looped(ranks, 4, 2), [equal] * 3))


def test_a_rank_without_a_trace(tmp_path: Path) -> None:
    assert silent(tmp_path, unannotated(gpipe(3, 4), [equal] * 3)[:2])


def test_ranks_of_unknown_hosts_have_a_common_clock_by_their_messages(tmp_path: Path) -> None:
    assert not silent(tmp_path, unannotated(gpipe(2, 4), [equal] * 3, host=None))


def test_ranks_that_compute_at_the_same_time(tmp_path: Path) -> None:
    """Two ranks that only exchange something with each other, such as a ring of gradients."""
    builders = [TraceBuilder(rank, 2, backend="gloo", host_name="a") for rank in range(2)]
    for builder in builders:
        for number in range(3):
            at = 1000 * number
            builder.step(number, at, 1000).op("c10d::recv_", at + 1, 1).gloo("recv", at + 1, 20)
            builder.op("aten::mm", at + 50, 200, args={"Sequence number": number, "Fwd thread id": 0})
            backward = "autograd::engine::evaluate_function: MmBackward0"
            builder.op(backward, at + 300, 400, args={"Sequence number": number, "Fwd thread id": 1})
            builder.op("c10d::send", at + 800, 1).gloo("send", at + 800, 20)
    assert silent(tmp_path, builders)


def test_messages_within_a_forward(tmp_path: Path) -> None:
    """Ring attention: one backward belongs to what lies between several messages."""
    builders = [TraceBuilder(rank, 2, backend="gloo", host_name="a") for rank in range(2)]
    for rank, builder in enumerate(builders):
        for number in range(3):
            at, shift = 4000 * number, 300 * rank
            builder.step(number, at, 4000)
            for part in range(2):
                begin, sequence = at + shift + 600 * part, 10 * number + part
                builder.op("c10d::recv_", begin, 1).gloo("recv", begin, 20).op("c10d::send", begin + 2, 1)
                builder.op("aten::mm", begin + 50, 200, args={"Sequence number": sequence, "Fwd thread id": 0})
            for part in reversed(range(4)):  # both parts have two nodes of one graph, which are mixed
                begin, sequence = at + 1800 - shift + 300 * part, 10 * number + part % 2
                backward = "autograd::engine::evaluate_function: MmBackward0"
                builder.op(backward, begin, 200, args={"Sequence number": sequence, "Fwd thread id": 1})
            builder.gloo("send", at + 3900, 20)
    assert silent(tmp_path, builders)
