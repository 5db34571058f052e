"""A rank of the benchmark that is killed or hangs, results that fail a condition, and options that are refused."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from perfkit.base.validation import decode_json
from perfkit.record.process_stat import stat_fields
from perfkit.records.benchmark import CollectiveBenchmark
from tests.support.processes.command import run_command
from tests.support.processes.launching import (
    LIMIT_S,
    MPIEXEC,
    PYTHON,
    descendants_of,
    execute,
    needs_mpiexec,
    start,
    still_alive,
)

LONG = ["collectives", "--operators", "all_reduce", "--max-size", "4K", "--repeats", "10000", "--timeout", "20s"]
MEASURING_S = 1.0
"""CPU time of a rank after which it measures: what it does before takes a tenth of it."""
SHORT = ["collectives", "-n", "2", "--operators", "all_reduce", "--max-size", "64", "--factor", "8", "--threads", "1"]


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files of this test alone: others measure collectives at the same time."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def leftovers(scratch: Path) -> list[Path]:
    return list(scratch.glob("perfkit-collectives*"))


def rank_1(parent: subprocess.Popen[str], scratch: Path) -> tuple[int, list[int]]:
    """Wait until the ranks measure; return the process of rank 1, and all processes."""
    deadline = time.monotonic() + LIMIT_S
    while not leftovers(scratch):
        assert time.monotonic() < deadline
        assert parent.poll() is None
        time.sleep(0.1)
    rank = min(pid for pid in descendants_of(parent.pid) if is_rank_1(pid))  # its children may look like it at first
    prepared_s = cpu_s(rank)
    while cpu_s(rank) < prepared_s + MEASURING_S:
        assert time.monotonic() < deadline
        assert parent.poll() is None
        time.sleep(0.05)
    return rank, descendants_of(parent.pid)


def is_rank_1(pid: int) -> bool:
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it has ended
        return False
    is_of_rank_1 = not {b"RANK=1", b"PMI_RANK=1"}.isdisjoint(variables)
    return is_of_rank_1 and b"collectives" in command and b"watchdog" not in command


def cpu_s(pid: int) -> float:
    user, system = stat_fields(pid)[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@needs_mpiexec
@pytest.mark.slow
def test_a_rank_that_hangs_is_one_line_and_nothing_is_left(scratch: Path) -> None:
    parent = start([*MPIEXEC, *PYTHON, *LONG])
    victim, pids = rank_1(parent, scratch)
    os.kill(victim, signal.SIGSTOP)
    _, errors = parent.communicate(timeout=LIMIT_S)
    assert parent.returncode != 0
    (line,) = [line for line in errors.splitlines() if line.startswith("perfkit: error: ")]
    assert "waited --timeout 20s for a collective in all_reduce of " in line
    assert "cycles" not in line
    assert still_alive(pids) == []
    assert leftovers(scratch) == []


@pytest.mark.slow
def test_the_exit_code_tells_what_the_conditions_did(tmp_path: Path) -> None:
    file = tmp_path / "before.json"
    done = execute([*PYTHON, *SHORT, "--fail-on", "all_reduce.latency > 1ns", "-o", str(file)])
    assert done.returncode == 3
    assert "gate failed: all_reduce.latency > 1ns" in done.stderr
    compared = ["--compare", str(file), "--fail-on", "all_reduce.busbw < +500%", "-o", str(tmp_path / "after.json")]
    done = execute([*PYTHON, *SHORT, "--repeats", "2", *compared])
    assert done.returncode == 4
    assert "with 2 repeats" in done.stderr
    record = decode_json((tmp_path / "after.json").read_bytes(), CollectiveBenchmark)
    assert record.comparison is not None
    assert len(record.comparison.changes) == len(record.measurements) == 2


@pytest.mark.slow
def test_beside_computation_and_between_pairs(tmp_path: Path) -> None:
    file, page = tmp_path / "net.json", tmp_path / "net.html"
    options = ["--operators", "all_reduce,send_recv_pairs", "--min-size", "64K", "--max-size", "256K", "--overlap"]
    outputs = ["-o", str(file), "-o", str(page)]
    done = execute([*PYTHON, "collectives", "-n", "3", "--pairs", "--repeats", "3", *options, *outputs])
    assert done.returncode == 0, done.stderr
    record = decode_json(file.read_bytes(), CollectiveBenchmark)
    assert [row.bytes for row in record.overlaps] == [row.bytes for row in record.measurements]
    for row in record.overlaps:
        assert 0 <= row.hidden <= 1
        assert row.together_ns >= max(row.overlapped_communication_ns, row.overlapped_compute_ns)
    assert record.pairs is not None
    assert [pair.ranks for pair in record.pairs.pairs] == [(0, 1), (0, 2), (1, 2)]
    assert record.pairs.rounds == 3
    assert "Bandwidth between two ranks" in page.read_text()
    assert "beside a GEMM" in done.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--fail-on", "all_reduce.busbw < -5%"], "add --compare FILE"),
        (["--fail-on", "busbw"], "--fail-on 'busbw'"),
        (["--compare", "none.json"], "none.json: cannot be read"),
        (["--assume-noise", "much"], "--assume-noise much"),
        (["-o", "a.xyz"], "-o a.xyz"),
        (["--operators", "allreduce"], "--operators allreduce"),
        (["--mesh", "dp=3"], "--mesh dp=3"),
        (["--repeats", "0"], "repeats"),
    ],
)
def test_bad_options_are_one_line_before_any_rank_starts(options: list[str], message: str, tmp_path: Path) -> None:
    done = run_command("collectives", "-n", "2", *options, cwd=tmp_path)
    assert done.returncode in (1, 2)
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
