"""Matched collectives and the efficiency of a run, on cases worked out by hand."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perfkit
from perfkit.engine.ranks.efficiency import Join, replay
from perfkit.records.cross_rank import CrossRankSummary
from perfkit.records.run import Efficiency, RunReport
from perfkit.report.content.run_facts import described_ranks
from tests.support.traces.device_training import Beside, Device, Part, train
from tests.support.traces.trace_builder import TraceBuilder

MS = 1_000_000
FACTORS = ("load_balance", "host", "input", "serialisation", "transfer")


def join(joined: list[int], blocked: list[int]) -> Join:
    return Join(*(np.array(column, np.int64) for column in (range(len(joined)), joined, blocked)))


@pytest.mark.parametrize(
    ("joins", "progress", "ideal"),
    [
        # Nothing to wait for: the slowest rank's own time.
        ([], [100, 130], 130),
        # Rank 1 joins at 60 and 0 at 40: rank 0 waits 20, then both have 60 to go: 120.
        ([join([40, 60], [40, 60])], [100, 120], 120),
        # They take turns in being late: rank 0 waits until 60, goes on until 120, until when rank 1 waits from 80 on.
        ([join([40, 60], [40, 60]), join([100, 80], [100, 80])], [120, 120], 160),
        # Hidden on both: nobody waits, whoever is late.
        ([join([40, 90], [-1, -1])], [100, 100], 100),
        # Rank 0 computes 30 on until the collective blocks it: of 50 it waits 20.
        ([join([40, 90], [70, 90])], [100, 120], 120),
    ],
)
def test_the_replay_by_hand(joins: list[Join], progress: list[int], ideal: int) -> None:
    assert replay(joins, np.array(progress, np.int64)) == ideal


def run_of(tmp_path: Path, *builders: TraceBuilder) -> RunReport:
    for rank, builder in enumerate(builders):
        builder.write(tmp_path / f"rank{rank}.json")
    (run,) = perfkit.analyze(tmp_path).runs
    return run


def known(run: RunReport) -> tuple[Efficiency, CrossRankSummary]:
    assert run.efficiency is not None
    assert run.cross_rank is not None
    return run.efficiency, run.cross_rank


def cpu_rank(rank: int, computes: list[int], ends: list[int], skew_us: int = 0, from_us: int = 0) -> TraceBuilder:
    """A rank that computes, then reduces until `ends`, each in a step of its own; microseconds."""
    builder = TraceBuilder(rank, 2, backend="gloo")
    begin = skew_us + from_us
    for number, (compute, end) in enumerate(zip(computes, ends, strict=True)):
        builder.step(number, begin, end + skew_us - begin).op("aten::mm", begin, compute)
        builder.gloo("all_reduce", begin + compute, end + skew_us - begin - compute)
        begin = end + skew_us
    return builder


def test_waiting_and_transfer_without_a_common_clock(tmp_path: Path) -> None:
    # Transfers take 10 us and begin when the slower rank joins; rank 1's clock is 5 s ahead.
    slow, fast = [100, 40, 100, 100], [40, 100, 100, 50]
    ends = [110, 220, 330, 440]
    run = run_of(tmp_path, cpu_rank(0, slow, ends), cpu_rank(1, fast, ends, skew_us=5_000_000))
    found, across = known(run)
    assert [(wait.rank, wait.wait_ns) for wait in across.rank_waits] == [(0, 60_000), (1, 110_000)]
    assert (across.matched, across.unmatched) == (8, 0)
    (row,) = across.collectives
    assert (row.operator, row.count, row.transfer_ns, row.wait_ns) == ("all_reduce", 4, 10_000, 170_000 / 8)
    assert (found.wait_ns, found.transfer_ns, found.unmatched_ns) == (170_000, 80_000, 0)
    # Without transfers each step takes what its slower rank computes.
    assert (found.t_ns, found.t_ideal_ns) == (440_000, 400_000)
    assert found.transfer == 400 / 440
    assert found.serialisation == 340 / 400
    assert found.load_balance == 315 / 340
    assert (found.host, found.input) == (1, 1)
    assert found.parallel == 315 / 440
    assert found.au == ((240 + 250) / 2) / 330


def test_a_device_run_with_hidden_communication(tmp_path: Path) -> None:
    def rank(number: int, late: int) -> TraceBuilder:
        builder = TraceBuilder(number, 2).step(0, 0, 400)
        builder.record_param_comms("allreduce", 10, 20, in_elements=250, out_elements=250, dtype="Float")
        builder.launch(1, 12, 2).kernel(
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 100 + late, 100 - late, 1, stream=20
        )
        return builder.launch(2, 40, 2).kernel("gemm", 50, 100, 2, stream=7)

    found, across = known(run_of(tmp_path, rank(0, 0), rank(1, 60)))
    (row,) = across.collectives
    # 100 and 40 us long: 40 of transfer, 60 of waiting on rank 0; from 150 us on nothing hides it.
    assert (row.bytes, row.transfer_ns, row.wait_ns) == (1000, 40_000, 30_000)
    assert row.algbw == pytest.approx(1000 / 40e-6)
    assert row.busbw == row.algbw  # 2 (n - 1) / n of two ranks
    assert found.wait_ns == round(50_000 * 60 / 100)
    assert found.transfer_ns == 50_000 + 40_000 - 30_000


@pytest.mark.parametrize("gap", [0, 15])
def test_gaps_between_kernels_are_no_waiting_for_the_collective_behind_which_a_rank_computes(
    tmp_path: Path, gap: int
) -> None:
    """Ranks compute as much per step, in turns more, behind reductions; only the last one is waited for."""

    def compute(short: int | None) -> Part:
        def part(one: Device, _step: int) -> None:
            for _ in range(4 if one.rank == short else 10):
                one.kernels("gemm", 500)
                one.now = max(one.now, one.busy + gap)  # then the device is idle for as long

        return part

    def finish(one: Device, _step: int) -> None:
        one.busy = max(one.busy, one.network)
        one.kernels("adam", 200)
        one.item()

    parts = [part for number in range(4) for part in (compute(number % 2), Beside(500))]
    whole = [*parts, compute(None), Beside(6000), finish]
    found, _ = known(perfkit.analyze(train(tmp_path, 2, 8, whole)).runs[0])
    assert found.replayed_ns <= found.t_ns
    assert found.serialisation == pytest.approx(1, abs=0.01)
    assert found.transfer == pytest.approx(1 - 8 * 6 * MS / found.t_ns, abs=0.01)


def nccl_rank(
    rank: int,
    group: str,
    calls: list[tuple[int, int, int]],
    *,
    numbered: bool = True,
    size: int = 2,
    members: Sequence[int] | None = None,
) -> TraceBuilder:
    """A rank of four whose collectives are (sequence number, start, end), one after the other; microseconds."""
    builder = TraceBuilder(rank, 4).step(0, 0, 1000).op("aten::mm", 0, 1)
    for place, (sequence, start, end) in enumerate(calls):
        builder.record_param_comms(
            "allreduce",
            10 * place + 1,
            8,
            in_elements=10,
            out_elements=10,
            group=group,
            ranks=members or range(size),
            sequence=sequence if numbered else None,
        )
        builder.launch(place, 10 * place + 2, 1)
        builder.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", start, end - start, place, stream=20)
    return builder


def test_groups_and_sequence_numbers_identify_collectives(tmp_path: Path) -> None:
    run = run_of(
        tmp_path,
        nccl_rank(0, "tp0", [(5, 100, 200), (6, 300, 310)]),
        # Its trace lost the first one.
        nccl_rank(1, "tp0", [(6, 250, 310)]),
        nccl_rank(2, "tp1", [(5, 100, 150), (6, 300, 340)]),
        nccl_rank(3, "tp1", [(5, 140, 150), (6, 310, 340)]),
    )
    _, across = known(run)
    assert (across.matched, across.unmatched) == (6, 1)
    assert {wait.rank: wait.wait_ns for wait in across.rank_waits} == {0: 0, 1: 50_000, 2: 50_000, 3: 0}


def test_sibling_groups_of_one_name_are_two(tmp_path: Path) -> None:
    ranks = [nccl_rank(rank, "1", [(1, 100, 200 if rank < 2 else 700)], members=m) for rank, m in enumerate(MESH)]
    _, across = known(run_of(tmp_path, *ranks))
    assert (across.matched, across.unmatched) == (4, 0)
    assert [wait.wait_ns for wait in across.rank_waits] == [0, 0, 0, 0]
    (row,) = across.collectives
    assert (row.group, row.count) == ("1", 2)


MESH = ([0, 1], [0, 1], [2, 3], [2, 3])


def test_more_ranks_than_the_group_has_are_no_match(tmp_path: Path) -> None:
    ranks = [nccl_rank(rank, "1", [(1, 100, 200 + rank)], members=[0, 1]) for rank in range(4)]
    _, across = known(run_of(tmp_path, *ranks))
    assert (across.matched, across.unmatched) == (0, 4)


def test_a_group_of_one_rank_is_not_unmatched(tmp_path: Path) -> None:
    ranks = [nccl_rank(rank, "1", [(1, 100, 200)], members=[rank]) for rank in range(2)]
    run = run_of(tmp_path, *ranks)
    assert known(run)[1].unmatched == 0
    assert not messages(run, "collectives_unmatched")


def test_collectives_of_no_length_are_collectives(tmp_path: Path) -> None:
    run = run_of(tmp_path, *(nccl_rank(rank, "1", [(1, 100, 100)]) for rank in range(2)))
    assert not messages(run, "no_collectives")


def test_a_missing_collective_does_not_shift_the_others(tmp_path: Path) -> None:
    def rank(number: int, sizes: list[int]) -> TraceBuilder:
        builder = TraceBuilder(number, 2).step(0, 0, 1000).op("aten::mm", 0, 1)
        for place, size in enumerate(sizes):
            builder.record_param_comms("allreduce", 10 * place + 1, 8, in_elements=size, out_elements=size)
            builder.launch(place, 10 * place + 2, 1)
            builder.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 100 * place + 100, size, place, stream=20)
        return builder

    _, across = known(run_of(tmp_path, rank(0, [10, 20, 30]), rank(1, [20, 30])))
    assert (across.matched, across.unmatched) == (4, 1)
    assert {row.bytes: row.transfer_ns for row in across.collectives} == {80: 20_000, 120: 30_000}


def test_coalesced_collectives_share_a_number(tmp_path: Path) -> None:
    calls = [[(5, 100, 200), (5, 300, 310)], [(5, 150, 200), (5, 250, 310)]]
    _, across = known(run_of(tmp_path, *(nccl_rank(rank, "0", own) for rank, own in enumerate(calls))))
    assert (across.matched, across.unmatched) == (4, 0)
    assert [wait.wait_ns for wait in across.rank_waits] == [50_000, 50_000]


def test_unmatched_collectives_are_counted_and_are_transfer(tmp_path: Path) -> None:
    ends = [110, 220, 330]
    odd = cpu_rank(1, [100, 100, 100], ends).gloo("broadcast", 150, 1)
    run = run_of(tmp_path, cpu_rank(0, [100, 100], ends[:2]), odd)
    found, across = known(run)
    assert (across.matched, across.unmatched) == (4, 2)
    assert found.unmatched_ns == 10_000 + 0  # the third all_reduce; the broadcast was hidden
    assert "collectives_unmatched" in {finding.code for finding in run.findings}


def test_start_skew_is_a_finding(tmp_path: Path) -> None:
    ends = [5_010, 5_120, 5_230, 5_340]
    run = run_of(tmp_path, cpu_rank(0, [100] * 4, ends), cpu_rank(1, [100] * 4, ends, from_us=4_900))
    (message,) = messages(run, "start_skew")
    assert "4.90 ms" in message


def test_a_longer_first_step_is_no_start_skew(tmp_path: Path) -> None:
    ends = [5_010, 5_120, 5_230, 5_340]
    run = run_of(tmp_path, cpu_rank(0, [100] * 4, ends), cpu_rank(1, [5_000, 100, 100, 100], ends))
    assert not messages(run, "start_skew")


def messages(run: RunReport, code: str) -> list[str]:
    return [finding.message for finding in run.findings if finding.code == code]


def test_groups_with_missing_ranks_are_a_finding(tmp_path: Path) -> None:
    run = run_of(tmp_path, *(nccl_rank(rank, "0", [(5, 100, 200 - rank)], size=128) for rank in range(2)))
    (message,) = messages(run, "groups_incomplete")
    assert "to groups of up to 128 ranks, of which at most 2 have a trace" in message


def test_times_of_groups_with_missing_ranks_are_fitted_by_nothing(tmp_path: Path) -> None:
    ranks = [nccl_rank(rank, "0", [(5, 100, 200 - rank)], size=128) for rank in range(2)]
    (fit,) = known(run_of(tmp_path, *ranks))[1].bandwidth_fits
    assert (fit.alpha_ns, fit.beta) == (None, None)
    assert "no trace" in (fit.reason or "")


def ddp_rank(rank: int, world_size: int) -> TraceBuilder:
    """A rank whose all_reduce, of a group of unknown size, takes 50 us on rank 0 and 20 us on rank 1."""
    builder = TraceBuilder(rank, world_size, backend="gloo").step(0, 0, 200).op("aten::mm", 0, 100)
    return builder.gloo("all_reduce", 110 + 30 * rank, 50 - 30 * rank)


@pytest.mark.parametrize(("world_size", "codes"), [(2, 0), (3, 1)])
def test_ranks_without_a_trace_may_belong_to_groups_of_unknown_size(
    tmp_path: Path, world_size: int, codes: int
) -> None:
    run = run_of(tmp_path, *(ddp_rank(rank, world_size) for rank in range(2)))
    found = messages(run, "groups_incomplete")
    assert len(found) == codes
    assert all("1 of 1 matched collectives belong to groups of unknown size" in message for message in found)
    assert run.dimensions is not None
    (row,) = run.dimensions.rows
    assert row.exposed_transfer_ns == 40_000
    assert row.wait_unknown_ns == 40_000 * codes


def test_traces_with_collectives_and_no_world_size_may_be_a_part(tmp_path: Path) -> None:
    def rank(number: int) -> TraceBuilder:
        builder = TraceBuilder(number, None, backend=None).step(0, 0, 300).op("aten::mm", 0, 100)
        return builder.gloo("all_reduce", 110 + 30 * number, 150 - 30 * number)

    run = run_of(tmp_path, rank(0), rank(1))
    insights = perfkit.analyze(tmp_path).insights
    assert run.is_partial
    assert run.efficiency is not None
    assert (run.efficiency.load_balance, run.efficiency.parallel) == (None, None)
    assert [one for one in insights if one.row == "communication"] == []
    assert [one.remedy for one in run.trust][:1] == ["analyse the traces of all ranks"]
    assert described_ranks(run) == "traces of 2 ranks, cpu"


def test_a_whole_group_is_not_called_incomplete(tmp_path: Path) -> None:
    run = run_of(tmp_path, *(nccl_rank(rank, "0", [(5, 100, 200)]) for rank in range(2)))
    assert not messages(run, "groups_incomplete")


def test_matches_that_contradict_the_clocks_are_a_finding(tmp_path: Path) -> None:
    # Rank 1's 5th to 7th are other collectives than rank 0's.
    times = [(100 + 50_000 * k, 200 + 50_000 * k) for k in range(8)]
    calls = [(0, *span) for span in times]
    odd = [*calls[:4], *((0, start + 20_000, end + 20_000) for _, start, end in calls[4:7]), calls[7]]
    run = run_of(tmp_path, nccl_rank(0, "0", calls, numbered=False), nccl_rank(1, "0", odd, numbered=False))
    (message,) = messages(run, "suspect_matches")
    assert message.startswith("3 of 8 matched collectives completed on one rank before another rank started them")


def test_distant_clocks_are_a_finding(tmp_path: Path) -> None:
    ends = [110, 220, 330]
    run = run_of(tmp_path, cpu_rank(0, [50] * 3, ends), cpu_rank(1, [60] * 3, ends, skew_us=5_000_000))
    (message,) = messages(run, "clocks_differ")
    assert "the clock of rank 1 is 5.00 s ahead of it (± 0 s)" in message.replace("± 0)", "± 0 s)")


def test_one_rank_has_an_efficiency_and_nobody_to_wait_for(tmp_path: Path) -> None:
    run = run_of(tmp_path, cpu_rank(0, [60, 60], [100, 200]))
    assert run.cross_rank is None
    assert run.efficiency is not None
    assert run.efficiency.transfer == pytest.approx(0.6)
    # What the other of the two ranks computed is unknown.
    assert (run.efficiency.parallel, run.efficiency.load_balance) == (None, None)
    assert run.efficiency.reason == "traces of 1 of 2 ranks: load balance and parallel efficiency are not known"


@pytest.mark.parametrize("began_us", [0, 700])
def test_the_skew_with_which_ranks_begin_to_record_is_no_loss(tmp_path: Path, began_us: int) -> None:
    # Rank 1 begins later, and so rank 0 waits that much longer in the first all-reduce; transfers take 10 us.
    ends = [began_us + end for end in (110, 220, 330)]
    early = cpu_rank(0, [100] * 3, ends)
    late = cpu_rank(1, [100] * 3, [110, 220, 330], skew_us=began_us)
    found, _ = known(run_of(tmp_path, early, late))
    assert (found.t_ns, found.t_ideal_ns) == (330_000, 300_000)
    assert found.transfer == pytest.approx(300 / 330)
    assert found.serialisation == 1


def test_ranks_that_began_apart_on_a_public_run_lose_nothing_to_transfer(real_traces: Path) -> None:
    (run,) = perfkit.analyze(real_traces / "gpu-dlrm-8of8").runs
    found, _ = known(run)
    # They began up to 7.4 ms apart; all transfers together take 0.2 ms.
    assert found.transfer is not None
    assert found.transfer > 0.98
    assert found.t_ns < 14 * MS
    assert found.replayed_ns <= found.t_ns
    assert found.parallel == pytest.approx(np.prod([getattr(found, name) for name in FACTORS]), rel=1e-12)


@settings(deadline=None)
@given(st.data())
def test_factors_multiply_and_parts_add_up(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    steps = data.draw(st.integers(1, 5))
    times = st.lists(st.integers(1, 200), min_size=steps, max_size=steps)
    computes = [data.draw(times) for _ in range(3)]
    transfer = data.draw(st.integers(1, 50))
    ends = np.cumsum(np.max(computes, axis=0) + transfer).tolist()
    skews = data.draw(st.lists(st.integers(0, 10**9), min_size=3, max_size=3))
    ranks = [cpu_rank(rank, computes[rank], ends, skews[rank]) for rank in range(3)]
    run = run_of(tmp_path_factory.mktemp("run"), *ranks)
    found, across = known(run)
    product = np.prod([getattr(found, name) for name in FACTORS])
    assert found.parallel == pytest.approx(product, rel=1e-12)
    assert all(0 < getattr(found, name) <= 1 for name in FACTORS)
    exposed = sum(step.exposed_ns.communication for rank in run.ranks for step in rank.steps)
    assert found.wait_ns + found.transfer_ns == exposed
    # A step's slowest rank never waits: without transfers the run takes the sum of the slowest.
    assert found.t_ideal_ns == np.max(computes, axis=0).sum() * 1000
    waits = np.max(computes, axis=0) - np.array(computes)
    assert [wait.wait_ns for wait in across.rank_waits] == (waits.sum(axis=1) * 1000).tolist()


def test_the_ranks_of_a_public_gpu_run_are_matched(real_traces: Path) -> None:
    (run,) = perfkit.analyze(real_traces / "gpu-dlrm-2of128").runs
    found, across = known(run)
    split = {row.operator for row in across.collectives if row.transfer_ns is not None}
    assert {"all_to_all", "all_reduce", "all_gather"} <= split
    # The other eight differ in type or size from all of the other rank's in their step.
    assert (across.matched, across.unmatched) == (12, 8)
    assert [row.count for row in across.collectives if row.operator == "all_to_all"] == [2]
    # All but one of the pairs end together, by clocks that nothing here was matched by.
    assert across.clocks[1].residual_ns is not None
    assert across.clocks[1].residual_ns < 1_000_000
    assert [message[:6] for message in messages(run, "suspect_matches")] == ["1 of 6"]
    exposed = sum(step.exposed_ns.communication for rank in run.ranks for step in rank.steps)
    assert found.wait_ns + found.transfer_ns == exposed
    assert found.unmatched_ns > 0
