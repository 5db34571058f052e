"""`perfkit collectives` on real ranks, under every launcher."""

import sys
from pathlib import Path

import pytest

from perfkit.base.validation import decode_json
from perfkit.records.benchmark import CollectiveBenchmark
from perfkit.storage.report_file import load_report
from perfkit.tools.collectives.config import OPERATIONS
from tests.support.processes.command import run_command
from tests.support.processes.launching import (
    MPIEXEC,
    PYTHON,
    TINY,
    execute,
    needs_mpiexec,
)

SMALL = ["collectives", "--max-size", "4K", "--factor", "8", "--repeats", "3", "--threads", "1"]
ONE = [*SMALL, "--operators", "all_reduce"]


def benchmark(path: Path) -> CollectiveBenchmark:
    return decode_json(path.read_bytes(), CollectiveBenchmark)


def check(record: CollectiveBenchmark, ranks: int) -> None:
    assert record.world_size == len(record.hosts) == ranks
    assert {finding.code for finding in record.findings} <= {"oversubscribed"}
    assert [row.wrong for row in record.measurements if row.bytes] == [0] * sum(
        row.bytes > 0 for row in record.measurements
    )
    assert all(row.time_ns > 0 and len(row.samples_ns) == 3 for row in record.measurements)


@pytest.mark.slow
def test_all_operators_are_right_and_the_table_has_the_columns_of_nccl_tests(tmp_path: Path) -> None:
    file, page, table = tmp_path / "net.json", tmp_path / "net.html", tmp_path / "net.csv"
    outputs = [word for path in (file, page, table) for word in ("-o", str(path))]
    done = execute([*PYTHON, *SMALL, "-n", "2", *outputs])
    assert done.returncode == 0, done.stderr
    record = benchmark(file)
    check(record, 2)
    assert {one.operator for one in record.series} == set(OPERATIONS)
    header = next(line for line in done.stdout.splitlines() if "algbw" in line)
    assert header.split() == ["size", "(B)", "elements", "type", "time", "±", "algbw", "busbw", "wrong"]
    assert "all results are right" in " ".join(done.stdout.split())
    assert len(table.read_text().splitlines()) == 1 + len(record.measurements)
    assert "Bus bandwidth by size" in page.read_text()


@pytest.mark.slow
def test_all_operators_are_right_among_three_ranks(tmp_path: Path) -> None:
    options = ["--dtype", "float32,int8", "--place", "both", "--concurrent", "2", "--factor", "500"]
    done = execute([*PYTHON, *SMALL, "-n", "3", *options, "-o", str(tmp_path / "net.json")])
    assert done.returncode == 0, done.stderr
    check(benchmark(tmp_path / "net.json"), 3)


@pytest.mark.slow
def test_the_groups_of_a_mesh_are_measured_alone_and_at_once(tmp_path: Path) -> None:
    done = execute(
        [*PYTHON, *SMALL, "-n", "4", "--mesh", "dp=2,tp=2", "--factor", "500", "-o", str(tmp_path / "net.json")]
    )
    assert done.returncode == 0, done.stderr
    record = benchmark(tmp_path / "net.json")
    check(record, 4)
    reduced = [(one.dimension, one.groups) for one in record.series if one.operator == "all_reduce"]
    assert reduced == [("dp", 1), ("dp", 2), ("tp", 1), ("tp", 2)]
    assert {one.group_size for one in record.series} == {2}


@pytest.mark.slow
def test_the_report_of_a_run_shows_the_share_of_the_measured_bandwidth(tmp_path: Path) -> None:
    file, report = tmp_path / "net.json", tmp_path / "report.json"
    assert execute([*PYTHON, *ONE, "-n", "2", "--max-size", "2M", "-o", str(file)]).returncode == 0
    trained = execute(
        [*PYTHON, "run", *TINY["gpt"], "-n", "2", "--record-shapes", "--trace-dir", str(tmp_path / "run")]
    )
    assert trained.returncode == 0, trained.stderr
    outputs = ["-o", str(report), "-o", str(tmp_path / "report.md")]
    done = run_command("analyze", tmp_path / "run", "--collectives", file, *outputs)
    assert done.returncode == 0, done.stderr
    (run,) = load_report(report).runs
    assert run.bandwidth_shares
    assert run.cross_rank is not None
    transferred = {row.transfer_ns for row in run.cross_rank.collectives}
    measured_ns = [row.time_ns for row in benchmark(file).measurements]
    for row in run.bandwidth_shares:
        assert (row.operator, row.dimension, row.group_size) == ("all_reduce", "dp", 2)
        assert row.share == pytest.approx(row.measured_ns / row.transfer_ns)
        assert row.transfer_ns in transferred
        assert min(measured_ns) <= row.measured_ns <= max(measured_ns)
    assert {"other_network_measured", "not_measured"}.isdisjoint(finding.code for finding in run.findings)
    assert "Collectives against the measured bandwidth" in (tmp_path / "report.md").read_text()


@needs_mpiexec
@pytest.mark.slow
def test_a_wrong_result_is_counted_and_fails_and_what_is_not_supported_is_left_out(tmp_path: Path) -> None:
    command = [*MPIEXEC, sys.executable, "-m", "tests.support.processes.damaged_collective"]
    done = execute([*command, *SMALL, "--operators", "reduce,all_reduce", "-o", str(tmp_path / "net.json")])
    assert done.returncode == 1
    record = benchmark(tmp_path / "net.json")
    assert record.launcher == "hydra"
    assert {row.elements: row.wrong for row in record.measurements} == {2: 0, 16: 0, 128: 0, 1024: 1}
    found = {finding.code: finding.message for finding in record.findings}
    assert "wrong_results" in found
    assert found["unsupported_collective"].endswith("and was left out: ProcessGroup does not support reduce")
    assert {record.series[row.series].operator for row in record.measurements} == {"all_reduce"}
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("perfkit: error: ")]
    assert "4.10 kB: 1 of its elements" in line
    assert "all results are right" not in " ".join(done.stdout.split())


def test_one_rank_is_refused() -> None:
    done = run_command(*ONE)
    assert done.returncode == 2
    assert "start two or more" in done.stderr
    assert "\n" not in done.stderr.strip()
