"""Sends and receives: paired, and their waiting for each other told from transfer where the clocks allow it."""

from pathlib import Path

import pytest

import perfkit
from perfkit.engine.pipelines.groups import name_pipeline_groups
from perfkit.engine.ranks.matching import match
from perfkit.engine.runs.rank_reports import NamedSummary, group_by_rank
from perfkit.pipeline.summarize import summarize_trace
from perfkit.records.cross_rank import CrossRankSummary, MatchedCollectiveStat
from perfkit.records.manifest import MeshDimension
from perfkit.records.run import RunReport
from perfkit.report.content.run_facts import _ranks, _waiting
from perfkit.trace.reader import read_trace
from tests.support.traces.trace_builder import TraceBuilder, collective_args

Message = tuple[str, int, int, int]


def trace(rank: int, world: int = 2, *, host: str | None = "a", steps: int = 2, length: int = 1000) -> TraceBuilder:
    builder = TraceBuilder(rank, world, backend="gloo", host_name=host)
    for step in range(steps):
        builder.step(step, step * length, length).op("aten::mm", step * length, 10)
    return builder


def run_of(folder: Path, *builders: TraceBuilder) -> RunReport:
    for rank, builder in enumerate(builders):
        builder.write(folder / f"rank{rank}.json")
    (run,) = perfkit.analyze(folder).runs
    return run


def across(run: RunReport) -> CrossRankSummary:
    assert run.cross_rank is not None
    return run.cross_rank


def row(run: RunReport, operator: str = "send_recv") -> MatchedCollectiveStat:
    (found,) = [one for one in across(run).collectives if one.operator == operator]
    return found


def messages(run: RunReport, code: str) -> list[str]:
    return [finding.message for finding in run.findings if finding.code == code]


def test_a_receive_waits_for_its_send(tmp_path: Path) -> None:
    sender = trace(0).gloo("send", 300, 20).gloo("send", 1100, 30)
    receiver = trace(1).gloo("recv", 100, 240).gloo("recv", 1150, 20)
    run = run_of(tmp_path, sender, receiver)
    found = row(run)
    # It waits 200 and transfers 40; the second send began before its receive, which transfers for all of its 20.
    assert (found.count, found.wait_ns, found.transfer_ns, found.group_size) == (2, 100_000, 30_000, 2)
    assert [wait.wait_ns for wait in across(run).rank_waits] == [0, 200_000]
    assert (across(run).matched, across(run).unmatched) == (4, 0)
    assert not messages(run, "collectives_unmatched")
    assert run.efficiency is not None
    assert (run.efficiency.wait_ns, run.efficiency.unmatched_ns) == (200_000, 0)  # the sends waited for nothing


@pytest.mark.parametrize("late", [0, 1])
def test_whoever_comes_first_waits_for_the_other(tmp_path: Path, late: int) -> None:
    """A rank computes for 400 us longer in each of 12 steps; one sends, the other receives."""
    builders = []
    for rank, operator in enumerate(("send", "recv")):
        builder = TraceBuilder(rank, 2, backend="gloo", host_name="a")
        for step in range(12):
            begin, own = step * 1000, 500 if rank == late else 100
            builder.step(step, begin, 1000).op("aten::mm", begin, own).gloo(operator, begin + own, 540 - own)
            builder.op("aten::add", begin + 545, 455)
        builders.append(builder)
    run = run_of(tmp_path, *builders)
    assert [wait.wait_ns for wait in across(run).rank_waits] == [12 * 400_000 * (late != rank) for rank in (0, 1)]
    assert (row(run).wait_ns, row(run).transfer_ns) == (400_000, 40_000)
    assert run.efficiency is not None
    assert run.efficiency.unmatched_ns == 0
    assert [one.rank for one in across(run).stragglers] == [late]
    assert [insight.rule for insight in perfkit.analyze(tmp_path).insights][:1] == ["waiting"]


def test_a_send_that_ends_before_its_receive_begins_did_not_wait(tmp_path: Path) -> None:
    run = run_of(tmp_path, trace(0).gloo("send", 100, 50), trace(1).gloo("recv", 400, 30))
    assert [wait.wait_ns for wait in across(run).rank_waits] == [0, 0]
    assert [wait.transfer_ns for wait in across(run).rank_waits] == [50_000, 30_000]


def test_both_directions_of_an_exchange_are_kept_apart(tmp_path: Path) -> None:
    first = trace(0).gloo("send", 300, 10).gloo("recv", 320, 100)
    second = trace(1).gloo("recv", 100, 210).gloo("send", 400, 20)
    run = run_of(tmp_path, first, second)
    assert [wait.wait_ns for wait in across(run).rank_waits] == [80_000, 200_000]


def test_sends_are_not_matched_with_sends(tmp_path: Path) -> None:
    run = run_of(tmp_path, trace(0).gloo("send", 300, 10), trace(1).gloo("send", 300, 10))
    assert (across(run).matched, across(run).unmatched) == (0, 2)
    (message,) = messages(run, "collectives_unmatched")
    assert message.startswith("2 of 2 sends and receives are not matched with each other")
    assert _waiting(run) is None


def test_a_missing_one_leaves_its_step_unmatched(tmp_path: Path) -> None:
    sender = trace(0).gloo("send", 300, 20).gloo("send", 400, 20).gloo("send", 1300, 20)
    receiver = trace(1).gloo("recv", 300, 140).gloo("recv", 1300, 140)
    run = run_of(tmp_path, sender, receiver)
    assert (across(run).matched, across(run).unmatched) == (2, 3)


def test_peers_are_unknown_among_more_than_two(tmp_path: Path) -> None:
    ranks = trace(0, 3).gloo("send", 300, 20), trace(1, 3).gloo("recv", 300, 40), trace(2, 3)
    run = run_of(tmp_path, *ranks)
    assert (across(run).matched, across(run).unmatched) == (0, 2)


@pytest.mark.parametrize(("late", "known"), [(300, True), (3, False)])
def test_a_wait_within_the_clocks_residual_is_not_known(tmp_path: Path, late: int, *, known: bool) -> None:
    def rank(number: int) -> TraceBuilder:
        builder = trace(number, host="ab"[number], steps=4)
        for step in range(4):  # the ends differ by -10 or 10 us: a residual of 10
            builder.gloo("all_reduce", step * 1000 + 700, 100 + number * (20 * (step % 2) - 10))
        return builder

    sender, receiver = rank(0).gloo("send", 100 + late, 5), rank(1).gloo("recv", 100, 400)
    found = row(run_of(tmp_path, sender, receiver))
    assert (found.wait_ns is not None) == known
    assert found.wait_ns is None or found.wait_ns == pytest.approx(late * 1000, abs=20_000)


@pytest.mark.parametrize(("lasts", "known_ns"), [(500, 300_000), (303, None), (100, 0)])
def test_a_send_that_ends_as_its_receive_begins_by_clocks_that_differ_waits_for_an_unknown_time(
    tmp_path: Path, lasts: int, known_ns: int | None
) -> None:
    def rank(number: int) -> TraceBuilder:
        builder = trace(number, host="ab"[number], steps=4)
        for step in range(4):
            builder.gloo("all_reduce", step * 1000 + 700, 100 + number * (20 * (step % 2) - 10))
        return builder

    run = run_of(tmp_path, rank(0).gloo("send", 100, lasts), rank(1).gloo("recv", 400, 150))
    assert run.efficiency is not None
    assert run.efficiency.unmatched_ns == (lasts * 1000 if known_ns is None else 0)
    wait_ns = row(run).wait_ns
    assert wait_ns is not None
    assert wait_ns == pytest.approx(known_ns or 0, abs=20_000)


def test_without_a_common_clock_the_wait_is_not_known(tmp_path: Path) -> None:
    sender, receiver = trace(0, host="a").gloo("send", 300, 20), trace(1, host="b").gloo("recv", 100, 240)
    run = run_of(tmp_path, sender, receiver)
    assert (row(run).count, row(run).wait_ns, row(run).transfer_ns) == (1, None, None)
    assert _waiting(run) is None


def test_a_world_in_which_all_take_part_is_the_group(tmp_path: Path) -> None:
    ranks = [trace(rank).op("c10d::allreduce_", 99, 1) for rank in range(2)]
    run = run_of(tmp_path, *(builder.gloo("all_reduce", 100, 50) for builder in ranks))
    assert row(run, "all_reduce").group_size == 2


def test_a_part_of_a_world_is_not(tmp_path: Path) -> None:
    run = run_of(tmp_path, *(trace(rank, 4).gloo("all_reduce", 100, 50) for rank in range(2)))
    assert row(run, "all_reduce").group_size is None


def test_a_backend_without_a_world_size_leaves_the_number_of_ranks_open(tmp_path: Path) -> None:
    builder = TraceBuilder(0, None, backend="nccl").step(0, 0, 100).kernel("gemm", 0, 50)
    run = run_of(tmp_path, builder)
    assert messages(run, "world_size_unknown")
    assert _ranks(run).value.startswith("1 of unknown")
    assert run.efficiency is not None
    assert (run.efficiency.load_balance, run.efficiency.parallel) == (None, None)
    assert run.efficiency.reason is not None
    assert run.efficiency.reason.startswith("traces of 1 of an unknown number of ranks: load balance")
    alone = TraceBuilder(0, None, backend=None).step(0, 0, 100).kernel("gemm", 0, 50)
    assert not messages(run_of(tmp_path, alone), "world_size_unknown")


@pytest.mark.parametrize("name", ["pp", "cp"])
def test_the_mesh_tells_the_groups_of_sends_in_pipelines_and_rings(name: str, tmp_path: Path) -> None:
    # Two pipelines of two stages: 0 sends to 2, 1 to 3.
    builders = [trace(0, 4).gloo("send", 300, 20), trace(1, 4).gloo("send", 500, 20)]
    builders += [trace(2, 4).gloo("recv", 100, 240), trace(3, 4).gloo("recv", 100, 440)]
    for rank, builder in enumerate(builders):
        builder.write(tmp_path / f"rank{rank}.json")
    files = sorted(tmp_path.iterdir())
    calls = group_by_rank([NamedSummary(one.name, summarize_trace(read_trace(one), one.name)) for one in files]).calls
    assert (match(calls, 4).collective < 0).all()
    mesh = [MeshDimension(name=name, size=2, groups=[[0, 2], [1, 3]])]
    matched = match(name_pipeline_groups(calls, mesh), 4)
    assert [sorted(matched.rank[matched.collective == one].tolist()) for one in (0, 1)] == [[0, 2], [1, 3]]
    deeper = [MeshDimension(name=name, size=4, groups=[[0, 1, 2, 3]])]
    assert (match(name_pipeline_groups(calls, deeper), 4).collective < 0).all()


def pipelined(rank: int, *messages: Message) -> TraceBuilder:
    """Return a trace of a pipeline of three ranks whose header lists the messages of a step."""
    own = [{"index": rank, "layers": 1}]
    pipeline = {"schedule": "gpipe", "stages": 3, "micro_batches": 1, "own": own, "messages": messages}
    return trace(rank, 3).header(perfkit={"mesh": {"pp": 3}, "pipeline": pipeline})


def test_the_header_of_a_pipeline_names_the_peers(tmp_path: Path) -> None:
    # Each step: 0 -> 1 -> 2 -> 1 -> 0; in both directions rank 1 is on both ends.
    ranks = [pipelined(0, ("send", 1, 0, 0), ("recv", 1, 0, 0))]
    ranks += [pipelined(1, ("recv", 0, 1, 0), ("send", 2, 1, 0), ("recv", 2, 1, 0), ("send", 0, 1, 0))]
    ranks += [pipelined(2, ("recv", 1, 2, 0), ("send", 1, 2, 0))]
    for at in (0, 1000):
        ranks[0].gloo("send", at + 200, 10).gloo("recv", at + 210, 700)
        ranks[1].gloo("recv", at + 100, 120).gloo("send", at + 300, 10).gloo("recv", at + 310, 300)
        ranks[1].gloo("send", at + 800, 10)
        ranks[2].gloo("recv", at + 100, 220).gloo("send", at + 500, 10)
    run = run_of(tmp_path, *ranks)
    assert (across(run).matched, across(run).unmatched, row(run).count) == (16, 0, 8)
    assert [wait.wait_ns for wait in across(run).rank_waits] == [2 * 590_000, 2 * (100_000 + 190_000), 2 * 200_000]


def test_a_step_with_other_messages_than_the_header_lists_has_no_peers(tmp_path: Path) -> None:
    ranks = [pipelined(0, ("send", 1, 0, 0)), pipelined(1, ("recv", 0, 1, 0)), pipelined(2)]
    for at in (0, 1000):
        ranks[0].gloo("send", at + 200, 10)
        ranks[1].gloo("recv", at + 100, 120)
    ranks[0].gloo("send", 1300, 10)
    assert (across(run_of(tmp_path, *ranks)).matched, across(run_of(tmp_path, *ranks)).unmatched) == (2, 3)


@pytest.mark.parametrize("peer", [-1, 2**40, 7])
def test_a_header_with_impossible_peers_matches_nothing(tmp_path: Path, peer: int) -> None:
    ranks = [pipelined(0, ("send", peer, 0, 0)), pipelined(1, ("recv", peer, 1, 0)), pipelined(2)]
    ranks[0].gloo("send", 200, 10)
    ranks[1].gloo("recv", 100, 120)
    assert across(run_of(tmp_path, *ranks)).matched == 0


@pytest.mark.parametrize(
    ("sent", "received", "waits"),
    [((300, 20), (100, 240), [0, 0, 200_000]), ((100, 240), (300, 40), [200_000, 0, 0])],
)
def test_metadata_of_nccl_name_the_peers(
    tmp_path: Path, sent: tuple[int, int], received: tuple[int, int], waits: list[int]
) -> None:
    def nccl(rank: int, operator: str, start: int, duration: int, peer: int) -> TraceBuilder:
        side = "Dst Rank" if operator == "send" else "Src Rank"
        builder = TraceBuilder(rank, 3, backend="nccl", host_name="a").step(0, 0, 1000)
        args = collective_args(operator, 8, 8, "Float", "4", "mesh_pp", (0, 1, 2), None) | {side: peer}
        return builder.launch(5, 2, 1).kernel("ncclDevKernel_SendRecv", start, duration, 5, args=args)

    run = run_of(tmp_path, nccl(0, "send", *sent, 2), nccl(1, "send", 500, 10, 0), nccl(2, "recv", *received, 0))
    assert (across(run).matched, across(run).unmatched) == (2, 1)
    assert [wait.wait_ns for wait in across(run).rank_waits] == waits


@pytest.mark.parametrize(("lag", "late"), [(70, []), (140, [0])])
def test_a_message_that_one_end_hides_behind_its_computation_is_no_waiting(
    tmp_path: Path, lag: int, late: list[int]
) -> None:
    """The receiver does nothing else for 80 us; it waits for the sender, if at all, in the reduction at the end."""
    ranks = [TraceBuilder(rank, 2, backend="gloo", host_name="a") for rank in range(2)]
    own = 1000 + (lag if late else 0)
    for step in range(12):
        at = 1200 * step
        sender, receiver = (one.step(step, at, 1200) for one in ranks)
        sender.op("aten::mm", at, own).gloo("send", at + 400, 80)
        receiver.op("aten::mm", at, 400).gloo("recv", at + 400, 80).op("aten::mm", at + 480, 930 - 400)
        meet = max(own, 1010) + 20
        sender.gloo("all_reduce", at + own, meet - own)
        receiver.gloo("all_reduce", at + 1010, meet - 1010)
    run = run_of(tmp_path, *ranks)
    assert [wait.wait_ns // 12 for wait in across(run).rank_waits] == ([0, 130_000] if late else [10_000, 0])
    assert [row.rank for row in across(run).stragglers] == late


def test_a_send_that_stays_open_hides_no_waiting_for_a_late_rank(tmp_path: Path) -> None:
    ranks = [TraceBuilder(rank, 2, backend="gloo", host_name="a") for rank in range(2)]
    for step in range(12):
        at = 1200 * step
        for one, own in zip(ranks, (500, 1000), strict=True):
            one.step(step, at, 1200).op("aten::mm", at, own).gloo("send", at + 50, 1140).gloo("recv", at + 60, 30)
            one.gloo("all_reduce", at + own, 1020 - own)
    assert [row.rank for row in across(run_of(tmp_path, *ranks)).stragglers] == [1]
