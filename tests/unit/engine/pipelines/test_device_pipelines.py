"""Pipelines on devices of programs that annotate nothing, with messages issued alone and in batches."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import perfkit
from perfkit.records.run import RunReport
from tests.support.traces.device_pipeline import DevicePipeline
from tests.support.traces.pipeline_builder import Order, gpipe, one_forward_one_backward

Schedule = Callable[[int, int], list[Order]]


def equal(stage: int, kind: str) -> int:
    return 10_000 if kind == "F" else 20_000


def heavy(stage: int, kind: str) -> int:
    return round(equal(stage, kind) * (1.3 if stage == 1 else 1))


def analyzed(
    folder: Path,
    orders: Sequence[Order],
    *lines: DevicePipeline,
    time: Callable[[int, str], int] = equal,
) -> RunReport:
    for line in lines:
        at = 0
        for number in range(3):
            at = line.step(number, at, orders, time)
        for rank, builder in zip(line.ranks, line.builders, strict=True):
            builder.write(folder / f"trace{rank}.json")
    (run,) = perfkit.analyze(folder, cache=False).runs
    return run


def dimensions(run: RunReport) -> set[str | None]:
    """Return the dimensions of all messages, which both tables have."""
    found = {row.dimension for rank in run.ranks for row in rank.collectives if row.operator != "all_reduce"}
    issued = [row for rank in run.ranks for row in rank.issued_collectives if row.operator != "all_reduce"]
    assert found == {row.dimension for row in issued}
    return found


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize(("schedule", "name"), [(gpipe, "gpipe"), (one_forward_one_backward, "1f1b")])
def test_stages_schedule_and_bubble(
    tmp_path: Path, schedule: Schedule, name: str, *, named: bool, batched: bool
) -> None:
    run = analyzed(tmp_path, schedule(4, 8), DevicePipeline((0, 1, 2, 3), 4, batched=batched, named=named))
    (found,) = run.pipelines
    assert (found.schedule, found.stages, found.micro_batches, found.reason) == (name, 4, 8, None)
    assert [(rank.rank, rank.stages) for rank in found.ranks] == [(rank, [rank]) for rank in range(4)]
    assert found.bubble_share == pytest.approx(3 / 11, abs=0.01)
    assert found.ideal_share == pytest.approx(3 / 11, abs=0.01)
    assert found.heavy is None
    assert dimensions(run) == {"pp"}
    assert run.verdict.bound == "bubble"


@pytest.mark.parametrize("batched", [False, True])
def test_a_heavy_stage(tmp_path: Path, *, batched: bool) -> None:
    line = DevicePipeline((0, 1, 2, 3), 4, batched=batched)
    (found,) = analyzed(tmp_path, one_forward_one_backward(4, 8), line, time=heavy).pipelines
    assert found.heavy is not None
    assert found.heavy.stage == 1
    assert found.heavy.excess == pytest.approx(0.3, rel=0.1)


@pytest.mark.parametrize("named", [False, True])
def test_replicas_are_told_apart_by_their_peers(tmp_path: Path, *, named: bool) -> None:
    lines = [DevicePipeline(ranks, 4, batched=True, named=named) for ranks in ((0, 2), (3, 1))]
    run = analyzed(tmp_path, one_forward_one_backward(2, 4), *lines)
    assert sorted([rank.rank for rank in found.ranks] for found in run.pipelines) == [[0, 2], [3, 1]]
    assert dimensions(run) == {"pp"}


def test_an_order_that_is_none_of_the_known_has_no_name(tmp_path: Path) -> None:
    """Every rank computes the first backward as soon as it can, and then the rest of the forwards."""
    first, *others = gpipe(2, 4)
    second = [action for batch in range(4) for action in ((1, "F", batch), (1, "B", batch))]
    order: Order = [first[0], first[1], first[4], first[2], first[3], *first[5:]]
    (found,) = analyzed(tmp_path, [order, second], DevicePipeline((0, 1), 2, batched=True)).pipelines
    assert len(others) == 1
    assert (found.schedule, found.stages, found.micro_batches) == (None, 2, 4)


def test_exchanges_are_matched_with_nothing(tmp_path: Path) -> None:
    """A kernel that sends and receives is part of two pairs; what it waits for is not known."""
    run = analyzed(tmp_path, one_forward_one_backward(2, 4), DevicePipeline((0, 1), 2, batched=True))
    assert {row.operator for rank in run.ranks for row in rank.collectives} == {
        "send",
        "recv",
        "send_recv",
        "all_reduce",
    }
    assert run.cross_rank is not None
    # Three steps of the all-reduce; none of the 3 x (3 + 2) messages of each rank.
    assert (run.cross_rank.matched, run.cross_rank.unmatched) == (6, 30)
    (finding,) = (finding for finding in run.findings if finding.code == "collectives_unmatched")
    assert "a kernel runs several" in finding.message
