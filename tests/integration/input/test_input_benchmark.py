"""`perfkit input` on real ranks, under the launchers."""

from pathlib import Path

import pytest

from perfkit.records.benchmark import InputBenchmark
from perfkit.storage.report_file import load_input
from tests.support.processes.launching import MPIEXEC, PYTHON, execute, needs_mpiexec

SMALL = ["input", "--samples", "256", "--batch-size", "16", "--repeats", "3", "--threads", "1", "--sample-size", "8K"]


def check(record: InputBenchmark, loads: int) -> None:
    """Every rank has its own loads; no source gave other batches."""
    assert record.world_size == 2
    assert not [one.message for one in record.findings if one.severity == "error"]
    for row in record.measurements:
        assert [one.rank for one in row.ranks] == [0, 1]
        assert (row.loads, len(row.passes)) == (loads, 3)


@pytest.mark.slow
def test_two_ranks_with_workers_files_and_steps(tmp_path: Path) -> None:
    file, page, table = tmp_path / "a.json", tmp_path / "a.html", tmp_path / "a.csv"
    outputs = [word for path in (file, page, table) for word in ("-o", str(path))]
    options = ["--source", "memory,hdf5", "--read", "batched", "--num-workers", "0,1", "--files", "2"]
    command = [*PYTHON, *SMALL, *options, "--step", "2ms", "-n", "2", "--data-dir", str(tmp_path / "data")]
    done = execute([*command, *outputs])
    assert done.returncode == 0, done.stderr
    record = load_input(file)
    check(record, 8)
    assert len(record.series) == len(record.hidden) == 4
    assert "hdf5 (2 files) batched, 1 worker" in done.stdout
    assert len(table.read_text().splitlines()) == 1 + len(record.measurements) == 7
    assert "Time per load" in page.read_text()
    done = execute([*command, "--compare", str(file), "--fail-on", "hdf5.load > 1ns"])
    assert done.returncode == 3, done.stderr
    assert "Time per load, against" in done.stdout


@pytest.mark.slow
@needs_mpiexec
def test_a_launcher_starts_the_ranks_and_one_reads_for_all(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    options = ["--source", "memory,pt", "--readers", "1", "--data-dir", str(tmp_path / "data"), "-o", str(file)]
    done = execute([*MPIEXEC, *PYTHON, *SMALL, *options])
    assert done.returncode == 0, done.stderr
    check(load_input(file), 8)
