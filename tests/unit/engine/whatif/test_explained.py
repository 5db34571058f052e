"""A replay promises nothing about communication where the graph does not have the waits that this consists of."""

from pathlib import Path

import pytest

import perfkit
from perfkit.pipeline.whatif import predict
from perfkit.records.report import Insight
from tests.support.traces.trace_builder import TraceBuilder, collective_args

CYCLE = 1000


def reducing_rank(
    rank: int, wait: int, recorded: int, own: int = 100, ranks: int = 2, cycle: int = CYCLE
) -> TraceBuilder:
    """A rank that computes for `own` us in each step, and waits `wait` us for a collective recorded as so long."""
    builder = TraceBuilder(rank, ranks, backend="gloo", host_name="one")
    for step in range(4):
        begin = cycle * step
        builder.step(step, begin, cycle).op("aten::mm", begin, own).op("c10d::allreduce_", begin + own, 4)
        builder.gloo("all_reduce", begin + own + 5, recorded)
        builder.op("aten::add", begin + own + 5 + wait, cycle - own - 5 - wait)
    return builder


def write(folder: Path, *recorded: int, wait: int = 500) -> Path:
    for rank, length in enumerate(recorded):
        reducing_rank(rank, wait, length).write(folder / f"rank{rank}.json")
    return folder


def the_transfer(folder: Path) -> Insight:
    (run,) = perfkit.analyze(folder).runs
    assert run.ranks[0].steps[0].exposed_ns.communication >= 400_000
    (one,) = [insight for insight in perfkit.analyze(folder).insights if insight.rule == "transfer"]
    return one


def codes(folder: Path) -> list[str]:
    return [finding.code for finding in predict(folder).findings]


def test_a_saving_is_predicted_where_the_threads_are_known_to_wait(tmp_path: Path) -> None:
    one = the_transfer(write(tmp_path, 502, 520))
    assert one.predicted_for is not None
    assert one.potential_saving_ns is not None
    assert one.potential_saving_ns > 450_000
    assert "waits_unknown" not in codes(tmp_path)


def test_nothing_is_predicted_where_a_thread_goes_on_long_before_the_end_that_was_recorded(tmp_path: Path) -> None:
    """A busy machine lets the backend record the end late: then no pause is known to be a wait."""
    one = the_transfer(write(tmp_path, 502, 700))
    assert (one.predicted_for, one.potential_saving_ns) == (None, None)
    (finding,) = [finding for finding in predict(tmp_path).findings if finding.code == "waits_unknown"]
    assert "what rank 1 waits for is not known for 504 µs per step of its exposed communication" in finding.message


def test_a_late_rank_whose_own_short_waits_are_unknown_still_has_a_prediction(tmp_path: Path) -> None:
    reducing_rank(0, 500, 502).write(tmp_path / "rank0.json")
    reducing_rank(1, 60, 160, own=540).write(tmp_path / "rank1.json")
    assert "waits_unknown" in codes(tmp_path)
    (one,) = [insight for insight in perfkit.analyze(tmp_path).insights if insight.rule == "waiting"]
    assert one.predicted_for == "rank1=healthy"
    assert one.potential_saving_ns is not None
    assert 400_000 < one.potential_saving_ns < 460_000


def test_what_a_late_rank_costs_has_one_size(tmp_path: Path) -> None:
    reducing_rank(0, 500, 502).write(tmp_path / "rank0.json")
    reducing_rank(1, 60, 62, own=540).write(tmp_path / "rank1.json")
    report = perfkit.analyze(tmp_path)
    across, predicted = report.runs[0].cross_rank, predict(tmp_path, ["rank1=healthy"]).prediction
    assert across is not None
    assert predicted is not None
    assert across.stragglers_gain_ns == round(predicted.saving_ns)
    assert [row.gain_ns for row in across.stragglers] == [across.stragglers_gain_ns]
    assert report.runs[0].predicted_savings[0].saving_ns == across.stragglers_gain_ns
    (one,) = [insight for insight in report.insights if insight.rule == "waiting"]
    assert one.potential_saving_ns == across.stragglers_gain_ns


def test_the_cost_of_a_late_rank_is_unknown_where_the_graph_does_not_tell(tmp_path: Path) -> None:
    for rank in range(3):
        ring_rank(rank, late=600).write(tmp_path / f"rank{rank}.json")
    (run,) = perfkit.analyze(tmp_path).runs
    assert run.cross_rank is not None
    assert [row.rank for row in run.cross_rank.stragglers] == [1]
    assert run.cross_rank.stragglers_gain_ns is None
    assert run.ledger is not None
    assert run.ledger.of("late_ranks") is None


def test_collectives_beside_computation_need_no_explanation(tmp_path: Path) -> None:
    assert "waits_unknown" not in codes(write(tmp_path, 700, 700, wait=10))


def ring_rank(rank: int, late: int) -> TraceBuilder:
    """One of three ranks that send to the next: whose messages it receives, a group of three does not tell."""
    builder = TraceBuilder(rank, 3, backend="gloo", host_name="one")
    for step in range(4):
        begin, meets = CYCLE * step, CYCLE * step + late
        own = late if rank == 1 else 100
        builder.step(step, begin, CYCLE).op("aten::mm", begin, own)
        builder.op("c10d::send", begin + own, 4).gloo("send", begin + own + 5, 10)
        builder.op("c10d::recv_", begin + own + 16, 4).gloo("recv", begin + own + 21, meets + 40 - begin - own - 21)
        builder.op("aten::add", meets + 42, CYCLE - late - 42)
    return builder


def test_waits_for_messages_of_unknown_ranks_are_not_taken_for_transfers(tmp_path: Path) -> None:
    for rank in range(3):
        ring_rank(rank, late=600).write(tmp_path / f"rank{rank}.json")
    (run,) = perfkit.analyze(tmp_path).runs
    assert run.cross_rank is not None
    assert [row.rank for row in run.cross_rank.stragglers] == [1]
    assert not any(row.change == "rank1=healthy" for row in run.predicted_savings)
    (finding,) = [finding for finding in predict(tmp_path).findings if finding.code == "waits_unknown"]
    assert "a late rank may cost more" in finding.message


def test_nothing_is_predicted_where_collectives_of_two_groups_pass_for_one(tmp_path: Path) -> None:
    for rank in range(4):
        times = (6_000, 6_002, 2_000) if rank < 2 else (1_000, 1_002, 12_000)
        reducing_rank(rank, *times, ranks=4, cycle=20_000).write(tmp_path / f"rank{rank}.json")
    (run,) = perfkit.analyze(tmp_path).runs
    assert "suspect_matches" in {finding.code for finding in run.findings}
    assert run.cross_rank is not None
    assert run.cross_rank.stragglers_gain_ns is None
    assert run.predicted_savings == []
    assert "suspect_matches" in codes(tmp_path)


def test_a_replay_of_a_damaged_trace_says_so(tmp_path: Path) -> None:
    """Its missing events count as idle time, and whose they were is not known."""
    file = write(tmp_path, 510, 510) / "rank1.json"
    assert "damaged_trace" not in codes(tmp_path)
    text = file.read_text()
    file.write_text(text[: text.rindex("aten::add")])
    assert "damaged_trace" in codes(tmp_path)


@pytest.mark.parametrize(("call", "known"), [("cudaStreamWaitEvent", True), ("cudaEventRecord", False)])
def test_on_a_device_nothing_is_predicted_where_work_begins_late_for_an_unknown_reason(
    tmp_path: Path, call: str, known: bool
) -> None:
    """A stream waits for a collective after a call that makes it wait; without one, nobody knows why it began late."""
    for rank in range(2):
        builder = TraceBuilder(rank, 2, host_name="one")
        builder.launch(90, 0, 2, name="cudaStreamWaitEvent")
        for step in range(3):
            host, device, number = 40 * step + 5, CYCLE * step + 20, 10 * step + 1
            builder.step(step, host, 38).launch(number, host, 5).kernel("gemm", device, 300, number)
            builder.launch(number + 1, host + 10, 2, name="cudaStreamWaitEvent")
            builder.record_param_comms("allreduce", host + 12, 8, group_description="mesh_dp")
            builder.launch(number + 2, host + 14, 4)
            args = collective_args("allreduce", 1, 1, "Float", "0", "mesh_dp", [0, 1], None)
            builder.kernel("ncclDevKernel_AllReduce_Sum", device + 302, 500, number + 2, 20, args=args)
            builder.launch(number + 3, host + 24, 2, name=call)
            builder.launch(number + 4, host + 28, 5).kernel("adam", device + 804, 194, number + 4)
        builder.write(tmp_path / f"rank{rank}.json")
    one = the_transfer(tmp_path)
    assert one.row is not None
    assert ("waits_unknown" in codes(tmp_path)) != known
    assert (one.predicted_for == "collective[dp]=0") == known
    assert (one.potential_saving_ns is not None) == known
