"""The monitor in runs whose delays are known, and in loops that end badly."""

import contextlib
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from perfkit.records.monitor import LOSS_GIVEN
from perfkit.storage.run_folder import read_manifest
from perfkit.storage.step_log.reader import Records, find_step_logs
from tests.integration.endings.test_full_disk import OWN_DISK, on_a_disk_of
from tests.integration.monitor import trained_script
from tests.support.monitor.scrapes import scrape
from tests.support.monitor.step_logs import read_steps
from tests.support.processes.launching import LIMIT_S, PYTHON, TINY, execute, start
from tests.support.processes.ports import free_port

SCRIPT = Path(trained_script.__file__)
UNTIL_TOLD = "tests/integration/scripts/until_told.py"
MOST_NS = trained_script.DELAY_S * 1e9 / 2


def logs_in(run: Path) -> list[Records]:
    return [read_steps(path) for path in find_step_logs(run).values()]


@pytest.mark.slow  # three runs of two ranks
def test_a_script_is_followed_and_trains_as_without(tmp_path: Path) -> None:
    def run(*options: str) -> list[str]:
        command = [*PYTHON, "run", str(SCRIPT), "-n", "2", "--no-report", "--trace-dir", str(tmp_path), *options]
        done = execute([*command, "--schedule", "wait=1,warmup=1,active=2", "--", str(tmp_path)])
        assert done.returncode == 0, done.stderr
        assert "the monitor has stopped" not in done.stderr
        return sorted(done.stdout.splitlines())

    assert run("--name", "with", "--monitor") == run("--name", "without")
    assert not find_step_logs(tmp_path / "without")
    first, second = logs_in(tmp_path / "with")
    for records in (first, second):
        assert records["step"].tolist() == list(range(trained_script.STEPS))
        assert records["kind"].tolist()[:6] == [0, 1, 2, 3, 3, 0]
        assert (records["flags"] & LOSS_GIVEN).all()
        assert np.isfinite(records["loss"]).all()
        for name in ("data_ns", "forward_ns", "backward_ns", "optimizer_ns"):
            assert (records[name] > 0).all(), name
        assert (records["process_busy"][1:] > 0).all()  # nothing is sampled before there is a log
        assert (np.diff(records["begin_ns"]) > 0).all()
        saved = records[trained_script.SAVES]
        assert saved["pause_ns"] > MOST_NS
        assert (np.delete(records["pause_ns"], trained_script.SAVES) == 0).all()
    step = trained_script.LOADS_LATE
    assert second["data_ns"][step] > MOST_NS > first["data_ns"][step]
    assert first["collective_ns"][step] > MOST_NS > second["collective_ns"][step]
    assert first["backward_ns"][step] >= first["collective_ns"][step]
    step = trained_script.COMPUTES_LATE
    assert second["forward_ns"][step] > MOST_NS > second["data_ns"][step]
    assert first["collective_ns"][step] > MOST_NS
    assert first["collective_ns"][trained_script.SYNCHRONIZES] > MOST_NS
    manifest = read_manifest(tmp_path / "with")
    assert [file.path for file in manifest.files if file.kind == "step_log"] == ["rank0.steps", "rank1.steps"]
    assert manifest.config["monitor"] is True


@pytest.mark.slow  # a run of two ranks
def test_a_workload_is_followed_without_a_trace(tmp_path: Path) -> None:
    delay = "rank=1,phase=forward,delay=200ms"
    options = ["-n", "2", "--no-profile", "--monitor", "--steps", "6", "--inject", delay, "--trace-dir", str(tmp_path)]
    done = execute([*PYTHON, "run", *TINY["gpt"], *options, "--name", "run"])
    assert done.returncode == 0, done.stderr
    first, second = logs_in(tmp_path / "run")
    manifest = read_manifest(tmp_path / "run")
    assert first["step"].tolist() == second["step"].tolist() == [0, 1, 2, 3, 4, 5]
    assert first["loss"].tolist() == pytest.approx(manifest.ranks[0].loss)
    assert (second["forward_ns"] > 150e6).all()
    # In any one step, other programs may hold back a rank, or let time pass between the readings of two clocks.
    assert np.median(first["collective_ns"]) > 100e6
    assert np.median(np.abs(first["step_ns"] - np.array(manifest.ranks[0].step_wall_ns))) < 50e6


@pytest.mark.slow  # a run of two ranks
def test_both_ranks_of_a_script_are_told_of_to_prometheus_while_it_runs(tmp_path: Path) -> None:
    port, stop = free_port(), tmp_path / "stop"
    place = ["--trace-dir", str(tmp_path), "--name", "run", "--no-report"]
    told = ["--until", str(stop), "--sleep", "0.05", "--late-from", "10"]
    job = start([*PYTHON, "run", UNTIL_TOLD, "-n", "2", "--monitor", "--metrics-port", str(port), *place, "--", *told])
    deadline = time.monotonic() + LIMIT_S
    found: dict[str, dict[str, float]] = {}

    def waits_for_rank_1() -> bool:
        waits = found.get("perfkit_collective_wait_seconds", {})
        return waits.keys() == {"0", "1"} and waits["0"] > 0.075 > waits["1"]

    # Which rank waits is that of the last step, in which other programs may have held back the other rank.
    while not (waits_for_rank_1() and found["perfkit_steps_total"]["1"] >= 60) and time.monotonic() < deadline:
        time.sleep(0.5)
        with contextlib.suppress(OSError):
            found = scrape(port)
    stop.touch()
    _, errors = job.communicate(timeout=LIMIT_S)
    assert job.returncode == 0, errors
    assert found["perfkit_step_seconds"].keys() == {"0", "1"}
    assert waits_for_rank_1(), found
    with pytest.raises(OSError, match="refused"):
        scrape(port)


@pytest.mark.slow  # five loops are killed
def test_what_a_killed_loop_has_recorded_is_readable(tmp_path: Path) -> None:
    done = execute([sys.executable, "-m", "tests.support.processes.killed_monitors", str(tmp_path), "5"])
    assert done.returncode == 0, done.stderr
    figures = [[int(text) for text in line.split()] for line in done.stdout.splitlines()]
    assert len(figures) == 5
    for returned, recorded, damaged in figures:
        assert recorded >= returned > 0  # what `step()` has returned from is there
        assert recorded <= returned + 1
        assert damaged == 0


@pytest.mark.slow  # it mounts a file system of its own
def test_a_full_disk_stops_the_monitor_and_not_the_script(tmp_path: Path) -> None:
    if sys.platform != "linux" or subprocess.run([*OWN_DISK, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this system does not allow mounting a file system")
    script = tmp_path.with_name("long.py")
    script.write_text(
        "import torch\n"
        "weight = torch.nn.Parameter(torch.ones(1))\n"
        "optimizer = torch.optim.SGD([weight], lr=0.1)\n"
        "for _ in range(3000):\n"
        "    (weight ** 2).sum().backward()\n"
        "    optimizer.step()\n"
        "print('all steps done')\n"
    )
    options = ["--monitor", "--no-report", "--trace-dir", str(tmp_path), "--name", "full"]
    done = on_a_disk_of("256k", tmp_path, *PYTHON, "run", str(script), *options)
    assert "all steps done" in done.stdout
    assert done.stderr.count("the monitor has stopped") == 1, done.stderr
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
