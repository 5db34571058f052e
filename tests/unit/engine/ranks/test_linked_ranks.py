"""Ranks of groups that nothing links do not wait for each other: a late one is named, with the ranks that it delays."""

from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
import pytest

import perfkit
from perfkit.engine.communication.collective_metadata import CollectiveKey
from perfkit.engine.ranks.linked_ranks import connected, find_meetings, linked_ranks, steps_together
from perfkit.engine.ranks.matching import MatchedCollectives
from perfkit.records.cross_rank import CrossRankSummary
from tests.support.traces.trace_builder import TraceBuilder

STEPS = 8
USUAL_US, LONGER_US, TRANSFER_US = 300, 200, 50
WORLD = (0, 1, 2, 3)


class Rank:
    """A rank of four on a device; times in microseconds."""

    def __init__(self, number: int) -> None:
        self.trace = TraceBuilder(number, len(WORLD))
        self.now, self.launched = 0, 0

    def kernel(self, name: str, end: int) -> None:
        """Run a kernel until `end`."""
        self.launched += 1
        self.trace.launch(self.launched, self.now, 1).kernel(name, self.now, end - self.now, self.launched, stream=7)
        self.now = end

    def all_reduce(self, members: Collection[int], end: int) -> None:
        self.trace.record_param_comms(
            "allreduce", self.now, 2, in_elements=10, out_elements=10, group=str(members), ranks=tuple(members)
        )
        self.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", end)


def compared(
    folder: Path, longer: Collection[int], world_steps: Collection[int] = (), ranks: Collection[int] = WORLD
) -> CrossRankSummary:
    """Train two pairs of ranks, each with its own collective.

    Args:
        folder: where the traces go.
        longer: ranks that compute longer.
        world_steps: steps with a collective of all ranks.
        ranks: those with a trace.
    """
    every = [Rank(number) for number in WORLD]
    draw = np.random.default_rng(1)
    for step in range(STEPS):
        begun = [rank.now for rank in every]
        for number, rank in enumerate(every):
            rank.kernel("gemm", rank.now + USUAL_US + LONGER_US * (number in longer) + int(draw.integers(10)))
        groups = [(0, 1), (2, 3), *([WORLD] if step in world_steps else [])]
        for members in groups:
            end = max(every[member].now for member in members) + TRANSFER_US
            for member in members:
                every[member].all_reduce(members, end)
        for start, rank in zip(begun, every, strict=True):
            rank.trace.step(step, start, rank.now - start)
    for number in ranks:
        every[number].trace.write(folder / f"rank{number}.json")
    (run,) = perfkit.analyze(folder).runs
    assert run.cross_rank is not None
    return run.cross_rank


@pytest.mark.parametrize("world_steps", [(), (4,)], ids=["never", "for a log now and then"])
def test_a_late_rank_is_named_with_those_that_wait_for_it(tmp_path: Path, world_steps: tuple[int, ...]) -> None:
    (row,) = compared(tmp_path, [2], world_steps).stragglers
    assert (row.rank, row.category, row.delays) == (2, "compute", [3])
    assert row.lag_ns == pytest.approx(LONGER_US * 1000, rel=0.1)
    report = perfkit.analyze(tmp_path).runs[0]
    assert "rank 2 takes 198 µs per step longer than rank 3" in next(
        one.message for one in report.findings if one.code == "straggler"
    )


def test_a_group_with_more_work_is_not_late(tmp_path: Path) -> None:
    assert compared(tmp_path, [0, 1]).stragglers == []


def test_a_late_rank_of_the_lighter_group_is_named(tmp_path: Path) -> None:
    assert [(row.rank, row.delays) for row in compared(tmp_path, [0, 1, 3]).stragglers] == [(3, [2])]


def test_late_ranks_of_two_groups_are_not_compared_with_all_others(tmp_path: Path) -> None:
    assert [(row.rank, row.delays) for row in compared(tmp_path, [0, 2]).stragglers] == [(0, [1]), (2, [3])]


def test_where_all_meet_in_each_step_all_wait(tmp_path: Path) -> None:
    (row,) = compared(tmp_path, [2], range(STEPS)).stragglers
    assert (row.rank, row.delays) == (2, [])


def test_late_ranks_of_a_group_are_named_where_all_meet_every_few_steps(tmp_path: Path) -> None:
    assert [(row.rank, row.delays) for row in compared(tmp_path, [2, 3], (1, 4, 7)).stragglers] == [(3, []), (2, [])]


def test_a_rank_without_a_trace_may_link_the_others(tmp_path: Path) -> None:
    across = compared(tmp_path, [2], ranks=[0, 2, 3])
    assert all(row.delays == [] for row in across.stragglers)


def matched_of(*collectives: tuple[int, Sequence[int]]) -> MatchedCollectives:
    """Return the collectives of these steps and ranks; one with a single rank has lost its counterpart."""
    rows = [(number, step, rank) for number, (step, ranks) in enumerate(collectives) for rank in ranks]
    number, step, rank = np.array(rows, np.int64).reshape(-1, 3).T
    lost = np.array([len(collectives[one][1]) == 1 for one in number], np.bool_)
    zeros = np.zeros(len(rows), np.int64)
    return MatchedCollectives(
        kinds=[CollectiveKey("all_reduce")],
        rank=rank,
        kind=zeros,
        step=step,
        duration_ns=zeros,
        exposed_ns=zeros,
        joined_ns=zeros,
        blocked_ns=zeros,
        ended_ns=zeros,
        collective=np.where(lost, -1, number),
        order=zeros,
        splits=zeros > 0,
        transfer_ns=zeros,
        wait_known=zeros > 0,
    )


def test_ranks_that_meet_with_those_of_other_groups_are_together() -> None:
    steps = range(10, 20)
    pairs = [(step, pair) for step in steps if step != 14 for pair in ((0, 1), (2, 3))]
    matched = matched_of(*pairs, (14, WORLD), (17, (3,)))
    meetings = find_meetings(matched, WORLD, steps)
    groups = linked_ranks(matched, meetings, len(WORLD))
    assert groups == [[0, 1], [2, 3]]
    for together in steps_together(meetings, groups):
        assert together.all()


def test_ranks_may_be_together_where_a_collective_has_lost_its_counterpart() -> None:
    collectives = [(10, (0, 1)), (11, (1, 2)), (11, (2, 3)), (12, (3,))]
    meetings = find_meetings(matched_of(*collectives), WORLD, range(10, 14))
    first, second = steps_together(meetings, [[0, 1], [2, 3]])
    assert (first.tolist(), second.tolist()) == ([True, False, True, False], [False, True, True, False])


def test_ranks_are_together_where_pairs_of_all_ranks_connect_them() -> None:
    draw = np.random.default_rng(3)
    ranks, steps = [2, 3, 5, 7, 11, 13, 17, 19, 40, 41], [3, 4, 5, 9, 10]
    for _ in range(200):
        collectives = [
            (int(draw.choice(steps)), sorted(draw.choice(ranks, draw.integers(2, 4), replace=False).tolist()))
            for _ in range(draw.integers(0, 25))
        ]
        meetings = find_meetings(matched_of(*collectives), ranks, steps)
        groups = [ranks, ranks[:2], ranks[2:5], ranks[7:]]
        for group, together in zip(groups, steps_together(meetings, groups), strict=True):
            for step, is_together in zip(steps, together.tolist(), strict=True):
                met = [
                    (one, other) for at, members in collectives if at == step for one in members for other in members
                ]
                lines = connected(ranks, met)
                assert is_together is any(set(group) <= set(line) for line in lines)
