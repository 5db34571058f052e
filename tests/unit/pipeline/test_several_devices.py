"""One process with several devices: what is said of it, in figures (metrics.md sections 2, 4, 10 and 14)."""

from pathlib import Path

import pytest

from perfkit.errors import TraceError
from perfkit.pipeline.analyze import analyze
from perfkit.records.report import Report
from perfkit.records.run import RunReport
from perfkit.report.wording.ledger import headline
from tests.support.traces.several_devices import (
    GEMM,
    NCCL,
    STEP_US,
    Kernel,
    SeveralDevices,
    at_once,
    in_turns,
)
from tests.support.traces.trace_builder import TraceBuilder


def process(**header: object) -> SeveralDevices:
    return SeveralDevices(rank=None, world_size=None, backend=None, **header)  # type: ignore[arg-type]


def report_of(builder: TraceBuilder, folder: Path) -> Report:
    return analyze([builder.write(folder / "trace.json")])


def analyzed(builder: TraceBuilder, folder: Path) -> RunReport:
    (run,) = report_of(builder, folder).runs
    return run


def shares(run: RunReport) -> dict[str, float]:
    """Return the rows of the ledger in percent of the step."""
    assert run.ledger is not None
    return {row.cause: round(100 * row.share, 1) for row in run.ledger.rows if row.share >= 0.0005}


def advice(report: Report) -> list[str]:
    return [f"{insight.sentence} {insight.recommendation}" for insight in report.insights]


@pytest.mark.parametrize(
    ("kernels", "compute", "beside"),
    [
        (in_turns([0.5, 0.5]), 50, 50),
        (in_turns([0.25] * 4), 25, 75),
        (in_turns([0.7, 0.2, 0.1]), 33.3, 66.7),
        (at_once([1.0, 1.0]), 100, 0),
        (at_once([1.0, 0.4, 0.4, 0.4]), 55, 45),
        (at_once([1.0, 0.0001]), 50, 50),
    ],
)
def test_a_step_is_the_mean_over_devices(kernels: list[Kernel], compute: float, beside: float, tmp_path: Path) -> None:
    run = analyzed(process().steps(kernels), tmp_path)
    found = shares(run)
    assert found["compute"] == pytest.approx(compute, abs=0.1)
    assert found.get("other_device", 0.0) == pytest.approx(beside, abs=0.1)
    for step in run.ranks[0].steps:
        exposed = step.exposed_ns
        assert exposed.compute == pytest.approx(compute * STEP_US * 10, rel=0.01)
        assert step.idle_ns.other_device == pytest.approx(beside * STEP_US * 10, rel=0.01, abs=STEP_US)
        assert exposed.compute + exposed.memcpy + exposed.communication + exposed.overhead == step.wall_ns


def test_devices_in_turns_and_unequal_ones_are_told_by_name(tmp_path: Path) -> None:
    turns = report_of(process().steps(in_turns([0.25] * 4)), tmp_path)
    assert turns.runs[0].verdict.sentence == "Devices idle 75 % of the time while others work."
    (told,) = advice(turns)
    assert "4 devices take turns" in told
    assert "micro-batches" in told
    unequal = report_of(process().steps(at_once([1.0, 0.4, 0.4, 0.4])), tmp_path)
    (told,) = advice(unequal)
    assert "device 0 works 1.8 times as long as the mean" in told
    assert "DistributedDataParallel" in told
    # Stages of unequal length that take turns lose more by turns than by their difference.
    (told,) = advice(report_of(process().steps(in_turns([0.6, 0.4])), tmp_path))
    assert "2 devices take turns" in told


def test_the_headline_has_at_most_fifteen_words(tmp_path: Path) -> None:
    run = analyzed(process().steps(in_turns([0.25] * 4)), tmp_path)
    assert run.ledger is not None
    row = run.ledger.of("other_device")
    assert row is not None
    assert len(headline(row, "host").split()) <= 15


def test_the_devices_are_listed_where_there_are_several(tmp_path: Path) -> None:
    devices = analyzed(process().steps(at_once([1.0, 0.4])), tmp_path).ranks[0].devices
    wall_ns = 3 * STEP_US * 1000
    assert [one.device for one in devices] == ["0", "1"]
    assert [round(one.exposed_ns.compute / wall_ns, 2) for one in devices] == [1.0, 0.4]
    assert [round(one.beside_ns / wall_ns, 2) for one in devices] == [0.0, 0.6]
    assert analyzed(process().steps(at_once([1.0])), tmp_path).ranks[0].devices == []


def test_time_in_which_no_device_works_is_the_host_s(tmp_path: Path) -> None:
    builder = process().steps([Kernel(device, 50_000, 50_000, launched_us=49_990) for device in range(2)])
    for number in range(3):
        builder.op("aten::nonzero", number * STEP_US + 1_000, 48_000)
    run = analyzed(builder, tmp_path)
    found = shares(run)
    assert found["compute"] == pytest.approx(50, abs=0.1)
    assert found["host_work"] == pytest.approx(48.5, abs=0.6)
    assert "other_device" not in found


def test_a_device_is_what_args_say_where_all_have_one_process(tmp_path: Path) -> None:
    found = shares(analyzed(process().steps(in_turns([0.5, 0.5]), pid=0), tmp_path))
    assert found["compute"] == pytest.approx(50, abs=0.1)


@pytest.mark.parametrize("name", ["Memcpy PtoP (Device -> Device)", "Memset (Device)"])
def test_a_device_that_computes_nothing_is_none_of_the_process(name: str, tmp_path: Path) -> None:
    stray = Kernel(1, 10, 20, name, cat="gpu_memcpy")
    run = analyzed(process().steps([*at_once([1.0]), stray]), tmp_path)
    assert run.ranks[0].devices == []
    assert shares(run)["compute"] == pytest.approx(100, abs=0.1)


def test_a_device_that_computes_only_before_the_steps_is_none_of_them(tmp_path: Path) -> None:
    builder = process().event("kernel", GEMM, -5_000, 50, pid=0, tid=7, args={"device": 0})
    run = analyzed(builder.steps([Kernel(1, 0, STEP_US)]), tmp_path)
    assert run.ranks[0].devices == []
    assert shares(run)["compute"] == pytest.approx(100, abs=0.1)


def test_communication_between_own_devices_misses_no_rank(tmp_path: Path) -> None:
    broadcast = [Kernel(device, 90_000, 10_000, NCCL, 20) for device in range(4)]
    run = analyzed(process().steps([*at_once([0.9] * 4), *broadcast]), tmp_path)
    assert shares(run) == {"compute": 90.0, "communication": 10.0}
    assert not {"world_size_unknown", "ranks_missing"} & {finding.code for finding in run.findings}
    (row,) = run.ranks[0].collectives
    assert row.exposed_ns == sum(step.exposed_ns.communication for step in run.ranks[0].steps)


def test_other_ranks_do_not_see_how_many_devices_one_has(tmp_path: Path) -> None:
    def run(name: str, kernels: list[Kernel]) -> RunReport:
        folder = tmp_path / name
        folder.mkdir()
        for rank, own in enumerate((kernels, at_once([0.6]))):
            reduce = Kernel(0, 60_000, 40_000, NCCL, 20)
            SeveralDevices(rank, 2).steps([*own, reduce]).write(folder / f"rank{rank}.json")
        (found,) = analyze([folder]).runs
        return found

    one, several = run("one", at_once([0.6])), run("several", at_once([0.6, 0.3]))
    assert one.ranks[1] == several.ranks[1]
    assert shares(one) == {"compute": 60.0, "communication": 40.0}


@pytest.mark.parametrize("shows", ["operators", "launches", "steps"])
def test_several_processes_in_one_file_are_refused_by_name(shows: str, tmp_path: Path) -> None:
    builder = TraceBuilder()
    for rank in range(4):
        pid = 1000 + 100_000 * rank
        if shows == "operators":
            builder.event("cpu_op", "aten::mm", 10, 50, pid=pid, tid=pid)
        if shows == "launches":
            builder.event("cuda_runtime", "cudaLaunchKernel", 10, 5, pid=pid, tid=pid, args={"correlation": rank})
        if shows == "steps" or not rank:
            builder.event("user_annotation", "ProfilerStep#1", 0, 100, pid=pid, tid=pid)
        builder.event("kernel", GEMM, 20, 70, pid=100_000 * rank, tid=7, args={"device": rank, "correlation": rank})
    path = builder.write(tmp_path / "merged.json")
    with pytest.raises(
        TraceError, match=r"merged\.json: has the events of 4 processes \(1000, 101000, 201000, 301000\)"
    ):
        analyze([path])


def test_a_merged_file_beside_those_of_the_ranks_is_left_out(tmp_path: Path) -> None:
    process().steps(at_once([1.0])).write(tmp_path / "rank0.json")
    merged = process().steps(at_once([1.0]))
    merged.event("cpu_op", "aten::mm", 10, 50, pid=77, tid=77).write(tmp_path / "merged.json")
    (run,) = analyze([tmp_path]).runs
    assert [rank.traces for rank in run.ranks] == [["rank0.json"]]
    assert "2 processes" in next(one.message for one in run.findings if one.code == "unreadable_trace")
