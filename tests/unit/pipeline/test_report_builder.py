"""Whole runs: rank assignment, verdict and findings."""

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from perfkit.errors import TraceError, UsageError
from perfkit.pipeline import analyze as pipeline
from perfkit.pipeline.compare import compare
from perfkit.records.common import Finding
from perfkit.records.per_run.ledger import LedgerCause, LedgerRow
from perfkit.records.report import Report
from perfkit.records.run import RunReport
from tests.support.traces.hostile import harmless, make_runs
from tests.support.traces.trace_builder import BASE_NS, TraceBuilder


def rank_trace(
    rank: int | None = 0, world_size: int | None = 2, *, compute: int = 50, wait: int = 10, load: int = 5, at: int = 0
) -> TraceBuilder:
    """Three steps of 100 us: load, compute, communication; the rest is overhead."""
    builder = TraceBuilder(rank, world_size, backend="gloo")
    for number in range(3):
        start = at + number * 100
        builder.step(number, start, 100).data_loading(start, load).op("aten::mm", start + load, compute)
        builder.gloo("all_reduce", start + load + compute, wait)
    return builder


def analyse(folder: Path, **traces: TraceBuilder) -> RunReport:
    (run,) = analyse_all(folder, **traces).runs
    return run


def analyse_all(folder: Path, **traces: TraceBuilder) -> Report:
    for name, builder in traces.items():
        builder.write(folder / f"{name}.json")
    return pipeline.analyze(folder)


def codes(run: RunReport) -> set[str]:
    return {finding.code for finding in run.findings}


def test_ranks_from_header_file_name_and_option(tmp_path: Path) -> None:
    run = analyse(tmp_path, a=rank_trace(0), rank1=rank_trace(None, None))
    assert [rank.rank for rank in run.ranks] == [0, 1]
    assert run.world_size == 2
    assert codes(run) == set()


def test_a_rank_may_be_any_number(tmp_path: Path) -> None:
    # Predictions sum times by rank: an array with a place for each number up to it has no room in any memory.
    (folder,) = make_runs(tmp_path, harmless, runs=1)
    first, _ = sorted(folder.glob("*.json.gz"))
    text = gzip.decompress(first.read_bytes()).replace(b'"rank":0', b'"rank":%d' % 2**60)
    first.write_bytes(gzip.compress(text))
    (run,) = pipeline.analyze(folder).runs
    assert [rank.rank for rank in run.ranks] == [1, 2**60]


def numbered_steps(rank: int, numbers: list[int]) -> TraceBuilder:
    builder = TraceBuilder(rank, 2, backend="gloo")
    for place, number in enumerate(numbers):
        builder.step(number, place * 100, 100).op("aten::mm", place * 100, 50).gloo("all_reduce", place * 100 + 50, 10)
    return builder


@pytest.mark.parametrize(
    ("numbers", "common"),
    [
        ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4]),
        ([0, 2, 3, 4], [2, 3, 4]),
        ([0, 1, 3, 4], [0, 1]),
        ([0, 2, 3, 4, 1], [2, 3, 4]),
        ([4, 3, 2, 1, 0], [4]),
    ],
)
def test_only_steps_that_follow_each_other_on_all_ranks_are_joined(
    tmp_path: Path, numbers: list[int], common: list[int]
) -> None:
    run = analyse(tmp_path, a=numbered_steps(0, [0, 1, 2, 3, 4]), b=numbered_steps(1, numbers))
    assert run.critical_path is not None
    assert run.critical_path.steps == common


def test_a_trace_without_a_rank_uses_the_given_rank(tmp_path: Path) -> None:
    path = rank_trace(None, None).write(tmp_path / "x.json")
    (unknown,) = pipeline.analyze(path).runs
    assert [rank.rank for rank in unknown.ranks] == [None]
    assert "rank_unknown" in codes(unknown)
    (told,) = pipeline.analyze(path, rank=5).runs
    assert [rank.rank for rank in told.ranks] == [5]
    assert told.world_size == 6


def test_gaps_are_findings(tmp_path: Path) -> None:
    run = analyse(tmp_path, rank0=rank_trace(0, 4), rank3=rank_trace(3, 4))
    (missing,) = [finding for finding in run.findings if finding.code == "ranks_missing"]
    assert missing.message.startswith("trace missing for 2 of 4 ranks (ranks 1-2)")


def test_two_traces_of_one_rank_at_one_time_are_an_error_and_the_first_counts(tmp_path: Path) -> None:
    run = analyse(tmp_path, a=rank_trace(0, 1), b=rank_trace(0, 1, compute=70))
    assert [len(rank.steps) for rank in run.ranks] == [3]
    assert run.ranks[0].traces == ["a.json"]
    (clash,) = [finding for finding in run.findings if finding.code == "duplicate_rank"]
    assert (clash.severity, clash.file) == ("error", "b.json")
    assert (run.verdict.bound, run.verdict.sentence.split(":")[0]) == ("unknown", "no verdict")


def test_two_traces_of_one_rank_after_another_are_its_cycles(tmp_path: Path) -> None:
    run = analyse(tmp_path, a=rank_trace(0, 1, at=1000), b=rank_trace(0, 1))
    assert run.ranks[0].traces == ["b.json", "a.json"]
    assert len(run.ranks[0].steps) == 6
    assert codes(run) == {"multiple_traces_per_rank", "repeated_steps"}
    assert run.ranks[0].collectives[0].count == 6
    assert run.ranks[0].events["operator"] == 6


def traces_of(run: RunReport) -> list[tuple[int | None, list[str]]]:
    return [(rank.rank, rank.traces) for rank in run.ranks]


def found(run: RunReport, code: str) -> Finding:
    (finding,) = [finding for finding in run.findings if finding.code == code]
    return finding


def test_header_rank_counts_before_file_name(tmp_path: Path) -> None:
    run = analyse(tmp_path, rank0=rank_trace(1), rank1=rank_trace(0))
    assert traces_of(run) == [(0, ["rank1.json"]), (1, ["rank0.json"])]
    assert codes(run) == {"rank_name_mismatch"}
    differ = found(run, "rank_name_mismatch")
    assert differ.severity == "warning"
    assert differ.message.endswith("counts: rank0.json has rank 1 in its header, rank1.json has rank 0 in its header")


def test_file_names_count_if_all_headers_have_one_rank(tmp_path: Path) -> None:
    run = analyse(tmp_path, **{f"rank{rank}": rank_trace(0, 5) for rank in range(5)})
    assert traces_of(run) == [(rank, [f"rank{rank}.json"]) for rank in range(5)]
    assert codes(run) == {"header_ranks_ignored"}
    by_name = found(run, "header_ranks_ignored")
    assert by_name.severity == "warning"
    assert "have rank 0 in their headers" in by_name.message
    assert "(rank0.json, rank1.json, rank2.json, …)" in by_name.message


def test_headers_with_local_ranks_do_not_count(tmp_path: Path) -> None:
    traces = {f"rank{rank}": rank_trace(rank % 2, 5) for rank in range(4)}
    # Nobody else says 2: among headers that know no better, its name counts too.
    run = analyse(tmp_path, **traces, rank4=rank_trace(2, 5))
    assert traces_of(run) == [(rank, [f"rank{rank}.json"]) for rank in range(5)]
    assert codes(run) == {"header_ranks_ignored"}


def test_if_file_names_count_all_ignored_headers_are_listed(tmp_path: Path) -> None:
    headers = {"rank0": 0, "rank1": 0, "rank7": 5, "x": 1}
    run = analyse(tmp_path, **{name: rank_trace(rank, 8) for name, rank in headers.items()})
    assert traces_of(run) == [(0, ["rank0.json"]), (1, ["rank1.json"]), (7, ["rank7.json"]), (None, ["x.json"])]
    assert "rank1.json: rank 0, rank7.json: rank 5" in found(run, "header_ranks_ignored").message
    assert found(run, "rank_unknown").file == "x.json"


def test_ranks_from_file_names_group_their_cycles(tmp_path: Path) -> None:
    traces = {f"rank{rank}.cycle{cycle}": rank_trace(0, 2, at=1000 * cycle) for rank in range(2) for cycle in range(2)}
    run = analyse(tmp_path, **traces)
    assert traces_of(run) == [(rank, [f"rank{rank}.cycle{cycle}.json" for cycle in range(2)]) for rank in range(2)]
    assert codes(run) == {"header_ranks_ignored", "multiple_traces_per_rank", "repeated_steps"}


@pytest.mark.parametrize("names", [("rank0", "x"), ("rank0", "rank0.b"), ("rank7", "rank7.b")])
def test_file_names_without_distinct_ranks_do_not_count(tmp_path: Path, names: tuple[str, str]) -> None:
    first, second = names
    run = analyse(tmp_path, **{first: rank_trace(0, 1), second: rank_trace(0, 1)})
    assert [rank.rank for rank in run.ranks] == [0]
    assert "duplicate_rank" in codes(run)
    assert "header_ranks_ignored" not in codes(run)
    assert (first == "rank7") == ("rank_name_mismatch" in codes(run))


def test_traces_of_two_jobs_are_not_the_cycles_of_one_rank(tmp_path: Path) -> None:
    jobs = {"a": rank_trace(0, 128), "b": rank_trace(0, 8, at=1000), "c": rank_trace(0, None, at=2000)}
    runs = analyse_all(tmp_path, **jobs).runs
    assert [traces_of(run) for run in runs] == [[(0, ["a.json"])], [(0, ["b.json"])], [(0, ["c.json"])]]
    assert [run.run for run in runs] == [f"{tmp_path.name} (world size {size})" for size in ("128", "8", "unknown")]


def booked(run: RunReport, cause: LedgerCause) -> LedgerRow:
    assert run.ledger is not None
    row = run.ledger.of(cause)
    assert row is not None
    return row


def test_traces_of_two_jobs_whose_names_differ_are_not_joined(tmp_path: Path) -> None:
    runs = analyse_all(tmp_path, rank0=rank_trace(0, 128), rank1=rank_trace(0, 8, at=1000)).runs
    assert [traces_of(run) for run in runs] == [[(0, ["rank0.json"])], [(0, ["rank1.json"])]]
    assert "rank_name_mismatch" in codes(runs[1])


def test_a_damaged_trace_costs_its_rank_only(tmp_path: Path) -> None:
    (tmp_path / "rank1.json").write_bytes(b'{"traceEvents": [{"ph": "X"')
    run = analyse(tmp_path, rank0=rank_trace(0))
    assert [rank.rank for rank in run.ranks] == [0]
    assert {"unreadable_trace", "ranks_missing"} <= codes(run)


def test_damaged_traces_alone_are_an_error(tmp_path: Path) -> None:
    for rank in range(2):
        (tmp_path / f"rank{rank}.json").write_bytes(b"{")
    with pytest.raises(TraceError, match=r"rank0\.json.*\(and 1 more that cannot be read\)"):
        pipeline.analyze(tmp_path)


def test_a_world_without_collectives_is_a_finding(tmp_path: Path) -> None:
    for number, backend in enumerate((None, "gloo")):
        folder = tmp_path / str(number)
        folder.mkdir()
        silent = [TraceBuilder(rank, 2, backend=backend).step(0, 0, 100).op("aten::mm", 0, 50) for rank in range(2)]
        message = found(analyse(folder, rank0=silent[0], rank1=silent[1]), "no_collectives").message
        # A backend in the header is that of a process group.
        assert ("no process group was initialised" in message) == (backend is None)


def test_a_balanced_run_that_computes(tmp_path: Path) -> None:
    run = analyse(tmp_path, rank0=rank_trace(0, compute=87, wait=5), rank1=rank_trace(1, compute=87, wait=5))
    assert run.verdict.bound == "compute"
    assert run.verdict.share == pytest.approx(0.87)


def test_waiting_for_data(tmp_path: Path) -> None:
    run = analyse(tmp_path, rank0=rank_trace(0, load=31), rank1=rank_trace(1, load=32))
    assert run.verdict.bound == "input"
    assert booked(run, "data_loading").share == pytest.approx(0.31)
    assert run.data_loading is not None
    assert (run.data_loading.count, run.data_loading.max_ns, run.data_loading.max_rank) == (6, 32_000, 1)


def test_exposed_communication(tmp_path: Path) -> None:
    run = analyse(tmp_path, rank0=rank_trace(0, wait=40), rank1=rank_trace(1, wait=40))
    assert run.verdict.bound == "communication"
    # No event tells that the threads wait: to the graph they are idle.
    assert booked(run, "communication").share == pytest.approx(0.4)


def test_a_straggler_without_a_known_cost_is_named_beside_the_ledger(tmp_path: Path) -> None:
    # Rank 1 computes 30 us longer; that rank 0 waits 30 us longer in the all-reduce is too short to be seen.
    run = analyse(tmp_path, rank0=rank_trace(0, wait=40), rank1=rank_trace(1, compute=80, wait=10))
    assert run.cross_rank is not None
    assert run.cross_rank.stragglers_gain_ns is None
    assert run.ledger is not None
    assert run.ledger.of("late_ranks") is None
    assert {finding.rank for finding in run.findings if finding.code == "straggler"} == {1}


def test_collectives_that_overlap_count_one_lateness_once(tmp_path: Path) -> None:
    def with_buckets(rank: int, compute: int) -> TraceBuilder:
        builder = TraceBuilder(rank, 2, backend="gloo")
        for number in range(5):
            begin = 100 * number
            builder.step(number, begin, 100).op("aten::mm", begin, compute)
            for bucket in range(3):
                builder.gloo("all_reduce", begin + compute, 95 - compute + bucket, tid=100 + bucket)
        return builder

    run = analyse(tmp_path, rank0=with_buckets(0, 40), rank1=with_buckets(1, 88))
    assert run.cross_rank is not None
    (late,) = run.cross_rank.stragglers
    assert (late.rank, late.lag_ns) == (1, 48_000)
    assert booked(run, "late_ranks").ns == 48_000


def test_waiting_for_one_long_step_of_one_rank_says_so(tmp_path: Path) -> None:
    def with_evaluation(rank: int) -> TraceBuilder:
        builder = TraceBuilder(rank, 2, backend="gloo")
        begin = 0
        for number in range(6):
            wall = 5000 if number == 3 else 100
            compute = wall - 10 if rank == 0 or number != 3 else 90
            builder.step(number, begin, wall).op("aten::mm", begin, compute)
            builder.gloo("all_reduce", begin + compute, wall - compute)
            begin += wall
        return builder

    run = analyse(tmp_path, rank0=with_evaluation(0), rank1=with_evaluation(1))
    row = booked(run, "late_ranks")
    assert (row.ranks, row.late, row.steps) == ([0], "once", [3])
    assert row.ns == pytest.approx(4_900_000 / 6, rel=0.01)
    assert {"straggler", "one_off_straggler"} & codes(run) == {"one_off_straggler"}


def test_step_marker_names_other_annotations(tmp_path: Path) -> None:
    builder = TraceBuilder(0, 1).op("aten::mm", 0, 90)
    builder.annotation("iteration 7", 0, 50).annotation("iteration 8", 50, 50)
    path = builder.write(tmp_path / "rank0.json")
    (run,) = pipeline.analyze(path, step_marker=r"iteration \d+").runs
    assert [step.step for step in run.ranks[0].steps] == [7, 8]
    (whole,) = pipeline.analyze(path).runs
    assert [step.step for step in whole.ranks[0].steps] == [None]
    assert "no_steps" in codes(whole)
    with pytest.raises(UsageError, match="not a regular expression"):
        pipeline.analyze(path, step_marker="(")


def test_paths_without_traces(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no such file or folder"):
        pipeline.analyze(tmp_path / "none")
    with pytest.raises(TraceError, match="no trace"):
        pipeline.analyze(tmp_path)


def test_folders_of_runs_are_searched_and_no_run_is_counted_twice(tmp_path: Path) -> None:
    for name in ("a", "b/c"):
        (tmp_path / name).mkdir(parents=True)
        rank_trace(0, 1).write(tmp_path / name / "rank0.json.gz")
    report = pipeline.analyze(tmp_path, tmp_path / "a")
    assert [run.run for run in report.runs] == ["a", "c"]


def test_operators_add_up_to_the_category(tmp_path: Path) -> None:
    builder = TraceBuilder(0, 1).step(0, 0, 100).op("aten::linear", 0, 50).op("aten::mm", 10, 20).op("aten::mm", 40, 5)
    run = analyse(tmp_path, rank0=builder)
    table = {row.name: (row.count, row.total_ns, row.max_ns) for row in run.ranks[0].operators}
    assert table == {"aten::linear": (1, 25_000, 25_000), "aten::mm": (2, 25_000, 20_000)}
    assert sum(row.total_ns for row in run.ranks[0].operators) == run.ranks[0].steps[0].exposed_ns.compute


def test_an_operator_of_no_duration_is_counted(tmp_path: Path) -> None:
    builder = TraceBuilder(0, 1).step(0, 0, 100).op("aten::empty", 5, 0).op("aten::empty", 6, 1).op("aten::empty", 8, 0)
    run = analyse(tmp_path, rank0=builder)
    assert [(row.name, row.count, row.total_ns) for row in run.ranks[0].operators] == [("aten::empty", 3, 1000)]


def test_a_rank_whose_device_events_are_lost_is_not_blamed(tmp_path: Path) -> None:
    def with_launch(rank: int) -> TraceBuilder:
        builder = TraceBuilder(rank, 2).step(0, 0, 100).step(1, 100, 100).op("aten::mm", 5, 5)
        return builder.launch(1, 6, 1).launch(2, 106, 1)

    whole = with_launch(0).kernel("gemm", 10, 80, 1).kernel("gemm", 110, 80, 2)
    run = analyse(tmp_path, rank0=whole, rank1=with_launch(1))
    assert {"no_device_events", "mixed_devices"} <= codes(run)
    assert "straggler" not in codes(run)


def test_a_rank_that_delays_nobody_is_not_reported_as_delaying(tmp_path: Path) -> None:
    def steps_of(rank: int, wall: int) -> TraceBuilder:
        builder = TraceBuilder(rank, 2, backend="gloo")
        for number in range(3):
            builder.step(number, number * wall, wall).op("aten::mm", number * wall, wall - 20)
            builder.gloo("all_reduce", (number + 1) * wall - 20, 10)
        return builder

    run = analyse(tmp_path, rank0=steps_of(0, 100), rank1=steps_of(1, 150))
    assert run.verdict.bound != "imbalance"
    # Rank 1's steps are longer, and yet rank 0's collectives are as short as its own.
    assert "straggler" not in codes(run)


def test_an_occasionally_slow_rank_is_not_a_straggler(tmp_path: Path) -> None:
    def with_loads(rank: int, computes: tuple[int, int, int]) -> TraceBuilder:
        builder = TraceBuilder(rank, 2, backend="gloo")
        for number, compute in enumerate(computes):
            builder.step(number, number * 100, 100).op("aten::mm", number * 100, compute)
            builder.gloo("all_reduce", number * 100 + compute, 100 - compute)
        return builder

    run = analyse(tmp_path, rank0=with_loads(0, (50, 60, 55)), rank1=with_loads(1, (90, 62, 30)))
    assert "straggler" not in codes(run)


RECORD = {"ns": BASE_NS, "op": "all_reduce", "bytes": 4, "dtype": "Float", "group": "0", "group_size": 2, "seq": 1}


@pytest.mark.parametrize(
    "header",
    [
        {"distributedInfo": {"rank": True, "world_size": True}},
        {"deviceProperties": [{"id": True, "totalGlobalMem": True}]},
        {"perfkit": {"rank": 2**70, "world_size": 2}},
        {"perfkit": {"rank": 0, "cycle": 2**70}},
        {"perfkit": {"rank": 0, "steps": [0, 2**70]}},
        *({"perfkit": {"collectives": [RECORD | {key: value}]}} for key in ("ns", "bytes", "group_size", "seq")
          for value in (2**63, -(2**70))),
    ],
    ids=repr,
)  # fmt: skip
def test_out_of_range_numbers_in_headers_do_not_cost_the_trace(tmp_path: Path, header: dict[str, Any]) -> None:
    builder = TraceBuilder(0, 1, backend="gloo").step(0, 0, 100).op("aten::mm", 5, 10).gloo("all_reduce", 62, 19)
    run = analyse(tmp_path, rank0=builder.header(**header))
    assert [step.exposed_ns.communication for rank in run.ranks for step in rank.steps] == [19_000]


@pytest.mark.parametrize(
    ("start_us", "far"), [(5 * 86_400 * 10**6, True), (-7_200 * 10**6, True), (90, False), (60 * 10**6, False)]
)
def test_an_event_far_from_all_others_is_a_finding(tmp_path: Path, start_us: int, *, far: bool) -> None:
    builder = TraceBuilder(0, 1).step(0, 0, 100).op("aten::mm", 5, 10).launch(1, 6, 2)
    run = analyse(tmp_path, rank0=builder.kernel("gemm", start_us, 5, 1))
    assert ("timestamp_gap" in codes(run)) == far


def test_hours_full_of_events_are_no_finding(tmp_path: Path) -> None:
    builder = TraceBuilder(0, 1)
    for minute in range(70):
        builder.step(minute, minute * 60 * 10**6, 60 * 10**6).op("aten::mm", minute * 60 * 10**6, 50 * 10**6)
    assert "timestamp_gap" not in codes(analyse(tmp_path, rank0=builder))


def test_an_activity_of_hours_on_a_device_is_a_finding(tmp_path: Path) -> None:
    builder = TraceBuilder(0, 1).step(0, 0, 100).kernel("gemm", 10, 7_200 * 10**6).kernel("gemm", 30 * 10**6, 5)
    assert "timestamp_gap" in codes(analyse(tmp_path, rank0=builder))


def test_the_error_for_a_trace_without_work_names_unknown_events(tmp_path: Path) -> None:
    path = TraceBuilder(0, 1).op("x", 0, 1, cat="npu_kernel").write(tmp_path / "rank0.json")
    with pytest.raises(TraceError, match=r"nothing to analyse .*1 events of unknown categories .*'npu_kernel'"):
        pipeline.analyze(path)


@pytest.mark.parametrize(
    ("backend", "lost"),
    [("nccl", True), ("cuda:nccl", True), ("mtia:hccl", True), ("gloo", False), ("cpu:gloo,cuda:nccl", False)],
)
def test_the_backend_of_a_device_without_its_activity_is_a_finding(tmp_path: Path, backend: str, *, lost: bool) -> None:
    builder = TraceBuilder(0, 1, backend=backend).step(0, 0, 100).op("aten::mm", 5, 10)
    assert ("no_device_events" in codes(analyse(tmp_path, rank0=builder))) == lost


@pytest.mark.parametrize(
    ("config", "has_kernels", "said"),
    [
        ("cpu:gloo", False, "gloo"),
        ("cpu:gloo,cuda:nccl", True, "nccl"),
        ("cpu:gloo,cuda:nccl", False, "gloo"),
        (None, False, "undefined"),
    ],
)
def test_a_group_made_by_a_device_mesh_has_the_backend_of_its_device(
    config: str | None, has_kernels: bool, said: str, tmp_path: Path
) -> None:
    builder = TraceBuilder(0, 1).step(0, 0, 100).op("aten::mm", 5, 10)
    if has_kernels:
        builder.launch(1, 6, 1).kernel("gemm", 10, 20, 1)
    # As torch writes it where nobody names a backend: `init_device_mesh("cuda", (8,))`.
    groups = [{"pg_name": "0", "pg_desc": "default_pg", "backend_config": config, "pg_size": 1, "ranks": [0]}]
    info = {"backend": "undefined", "rank": 0, "world_size": 1, "pg_config": [{"pg_desc": 5}, None, *groups]}
    run = analyse(tmp_path, rank0=builder.header(distributedInfo=info))
    assert run.ranks[0].backend == said


@pytest.mark.parametrize(
    ("call", "lost"),
    [
        ("cudaLaunchKernel", True),
        ("cudaMemcpyAsync", True),
        ("hipExtModuleLaunchKernel", True),
        ("hipMemsetAsync", True),
        ("cuGraphLaunch", True),
        ("urEnqueueKernelLaunch", True),
        ("zeCommandListAppendMemoryCopy", True),
        ("cudaGetDeviceCount", False),
        ("cudaGetDeviceProperties_v2", False),
        ("cudaStreamIsCapturing", False),
        ("cudaDeviceSynchronize", False),
        ("cudaLaunchHostFunc", False),
        ("hipGetDevice", False),
    ],
)
def test_only_launches_and_copies_show_that_a_device_was_used(tmp_path: Path, call: str, *, lost: bool) -> None:
    builder = TraceBuilder(0, 1, backend=None).step(0, 0, 100).op("aten::mm", 5, 90)
    run = analyse(tmp_path, rank0=builder.launch(1, 1, 2, name=call))
    assert ("no_device_events" in codes(run)) == lost
    assert (run.verdict.bound == "unknown") == lost


def test_unrecorded_device_activity_gets_no_verdict(tmp_path: Path) -> None:
    builder = TraceBuilder(0, 1, backend="nccl").step(0, 0, 100).op("aten::mm", 5, 10)
    builder.op("record_param_comms", 20, 10).op("c10d::allreduce_", 20, 10).annotation("nccl:all_reduce", 20, 10)
    run = analyse(tmp_path, rank0=builder)
    assert "no_device_events" in codes(run)
    assert (run.verdict.bound, run.verdict.share) == ("unknown", 0.0)
    assert run.verdict.sentence.startswith("no verdict: device activity was not recorded")
    assert run.efficiency is not None
    assert {run.efficiency.host, run.efficiency.transfer, run.efficiency.parallel} == {None}
    assert run.efficiency.reason == "device activity was not recorded"


@pytest.mark.parametrize("launched", [False, True])
def test_operators_that_only_launched_have_no_rates(tmp_path: Path, launched: bool) -> None:
    shapes = {"Input Dims": [[64, 64], [64, 64]], "Input type": ["float", "float"], "Concrete Inputs": ["", ""]}
    builder = TraceBuilder(0, 1, backend=None).step(0, 0, 100).op("aten::mm", 5, 90, args=shapes)
    if launched:
        builder.launch(1, 10, 2)
    assert (analyse(tmp_path, rank0=builder).roofline is None) == launched


@pytest.mark.parametrize("content", [b"", b"no trace"])
def test_a_run_of_which_nothing_can_be_read_is_an_error(tmp_path: Path, content: bytes) -> None:
    folder = tmp_path / "run"
    shutil.copytree(Path(__file__).parents[3] / "traces" / "sample-memory", folder)
    for trace in folder.glob("rank*.json.gz"):
        trace.write_bytes(content)
    with pytest.raises(TraceError, match=r"rank0\.json\.gz.*and 1 more that cannot be read"):
        pipeline.analyze(folder, cache=False)


def test_an_unknown_rank_is_not_listed_as_missing(tmp_path: Path) -> None:
    run = analyse(tmp_path, x=rank_trace(None, None, load=50, compute=10))
    assert run.verdict.bound == "input"
    assert "ranks_missing" not in codes(run)


def test_traces_without_a_rank_do_not_set_the_world_size(tmp_path: Path) -> None:
    traces = {f"host_1.{number}": rank_trace(None, None, at=1000 * number, wait=0) for number in range(3)}
    run = analyse(tmp_path, **traces)
    assert run.world_size == 1
    assert codes(run) == {"rank_unknown", "world_size_unknown"}


def test_headers_that_contradict_each_other_are_findings(tmp_path: Path) -> None:
    run = analyse(tmp_path, rank0=rank_trace(0, 4), rank7=rank_trace(7, 4))
    assert "rank_out_of_range" in codes(run)


def test_a_missing_cycle_is_a_finding(tmp_path: Path) -> None:
    more = rank_trace(0)
    more.step(3, 300, 100).op("aten::mm", 300, 50)
    assert "uneven_steps" in codes(analyse(tmp_path, rank0=more, rank1=rank_trace(1)))


def test_a_bad_manifest_costs_only_itself(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        rank_trace(0, 1).write(tmp_path / name / "rank0.json")
    (tmp_path / "b" / "run.json").write_text('{"schema_version": 99}')
    good, bad = pipeline.analyze(tmp_path).runs
    assert [len(run.ranks) for run in (good, bad)] == [1, 1]
    assert "unreadable_manifest" in codes(bad)


def test_files_of_one_folder_are_one_run_and_other_json_is_none(tmp_path: Path) -> None:
    paths = [rank_trace(rank).write(tmp_path / f"rank{rank}.json") for rank in range(2)]
    (run,) = pipeline.analyze(*paths).runs
    assert [rank.rank for rank in run.ranks] == [0, 1]
    (both,) = pipeline.analyze(paths[0], tmp_path).runs
    assert [rank.rank for rank in both.ranks] == [0, 1]
    (tmp_path / "settings").mkdir()
    (tmp_path / "settings" / "config.json").write_text("{}")
    for name, text in {"metrics": '[{"step": 1, "loss": 2.0}]', "timeline": "[[1], [2]]", "lines": "{}\n{}\n"}.items():
        (tmp_path / f"{name}.json").write_text(text)
    (run,) = pipeline.analyze(tmp_path, strict=True).runs
    assert {(f.code, f.severity, f.file) for f in run.findings} == {
        ("not_a_trace", "info", f"{name}.json") for name in ("metrics", "timeline", "lines")
    }
    assert [run.run for run in pipeline.analyze(tmp_path).runs] == [tmp_path.name]
    with pytest.raises(TraceError, match="is JSON but not a trace"):
        pipeline.analyze(tmp_path / "settings")


def test_runs_with_one_name_get_unique_names(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    paths = [rank_trace(0, 1).write(tmp_path / name / "rank0.json") for name in ("a", "b")]
    assert [run.run for run in pipeline.analyze(*paths).runs] == ["a/rank0", "b/rank0"]


def test_no_path_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="nothing to analyse"):
        pipeline.analyze()


@pytest.mark.parametrize(
    "event",
    [
        b'"cat":"cpu_op","name":"c10d::x","args":{"Input type":["\xff"]}',
        b'"cat":"cpu_op","name":"c10d::x","args":{"Input type":["\\ud800"]}',
        b'"cat":"cpu_op","name":"c10d::x","args":{"Input Dims":' + b"[" * 2000 + b"]" * 2000 + b"}",
        b'"cat":"kernel","name":"k","args":{"correlation":' + b"9" * 5000 + b"}",
        b'"cat":"kernel","name":"\x01","args":{"correlation":' + b"9" * 5000 + b"}",
    ],
    ids=["utf-8", "surrogate", "nesting", "digits", "digits, leniently"],
)
def test_damage_within_an_event_is_one_line_or_none(tmp_path: Path, event: bytes) -> None:
    good = b'{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":1,"tid":1,"ts":1,"dur":5}'
    damaged = b'{"ph":"X","pid":1,"tid":1,"ts":1,"dur":5,' + event + b"}"
    (tmp_path / "rank0.json").write_bytes(b'{"traceEvents":[' + good + b"," + damaged + b"]}")
    rank_trace(1).write(tmp_path / "rank1.json")
    (run,) = pipeline.analyze(tmp_path).runs
    assert 1 in {rank.rank for rank in run.ranks}
    assert len(run.ranks) == 2 or "unreadable_trace" in codes(run)


def test_strict_refuses_a_damaged_trace(tmp_path: Path) -> None:
    whole = rank_trace(0, 1).write(tmp_path / "rank0.json")
    pipeline.analyze(tmp_path, strict=True)
    whole.write_bytes(whole.read_bytes()[:-40])
    for _ in range(2):  # from the file, and from the cache
        with pytest.raises(TraceError, match=r"--strict: rank0\.json: the file breaks at byte"):
            pipeline.analyze(tmp_path, strict=True)


@pytest.mark.parametrize(
    ("event", "told"),
    [
        ({"ts": "x"}, "1 event without a usable start"),
        ({"dur": -5}, "1 event of negative duration"),
        ({"ts": "1.5", "dur": "2"}, None),  # texts that are numbers lose nothing
    ],
)
def test_strict_refuses_events_of_which_a_part_is_lost(
    tmp_path: Path, event: dict[str, object], told: str | None
) -> None:
    usable = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 5}
    (tmp_path / "rank0.json").write_text(json.dumps({"traceEvents": [usable, usable | event]}))
    if told is None:
        pipeline.analyze(tmp_path, strict=True)
        return
    with pytest.raises(TraceError, match=rf"--strict: rank0\.json: {told}"):
        pipeline.analyze(tmp_path, strict=True)


def test_strict_refuses_findings_that_are_errors(tmp_path: Path) -> None:
    rank_trace(0, 1).write(tmp_path / "rank0.json")
    (tmp_path / "run.json").write_text('{"schema')
    assert "unreadable_manifest" in codes(pipeline.analyze(tmp_path).runs[0])
    with pytest.raises(TraceError, match=r"--strict: .*run\.json"):
        pipeline.analyze(tmp_path, strict=True)


def test_paths_may_be_a_list(tmp_path: Path) -> None:
    paths = [rank_trace(rank, 2).write(tmp_path / f"rank{rank}.json") for rank in range(2)]
    assert [rank.rank for run in pipeline.analyze(paths).runs for rank in run.ranks] == [0, 1]
    assert len(pipeline.analyze([str(paths[0])], paths[1]).runs[0].ranks) == 2
    with pytest.raises(UsageError, match="nothing to analyse"):
        pipeline.analyze([])
    with pytest.raises(UsageError, match="each side is one path"):
        compare(paths, tmp_path)  # type: ignore[arg-type]
