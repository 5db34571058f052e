"""`perfkit run` for real: launchers, workloads, sources, faults. Every test starts processes that import torch.

A rank costs several CPU seconds to start, so `make test` has one test of each kind of run; the rest of the matrix is in
the slow tier.
"""

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import perfkit
from perfkit.records.manifest import RunManifest
from perfkit.report.renderers.answer import SCREEN
from perfkit.storage.run_folder import MANIFEST_NAME, read_manifest
from tests.support.processes.launching import (
    BIN,
    LIMIT_S,
    MPIEXEC,
    PYTHON,
    ROOT,
    TINY,
    TORCHRUN,
    children_of,
    environment,
    execute,
    needs_mpiexec,
    start,
    wait_for_folder,
)


def run_once(command: list[str], trace_dir: Path, *, pipeline: bool = False) -> RunManifest:
    """Run a command that must succeed without messages, and return the one manifest it left.

    Args:
        command: What to run.
        trace_dir: Where it writes.
        pipeline: Whether only the ranks with the last stage know the loss.
    """
    done = execute(command)
    assert done.returncode == 0, done.stderr
    assert messages(done.stderr, pipeline=pipeline) == []
    (folder,) = [path.parent for path in trace_dir.glob(f"*/{MANIFEST_NAME}")]
    if "--json" in command:
        (reported,) = json.loads(done.stdout)["runs"]
        assert (reported["path"], len(reported["ranks"])) == (str(folder), 2)
        return check_folder(folder, pipeline=pipeline)
    first, *answer = done.stdout.splitlines()
    assert first.startswith(f"{folder}: done")
    if "--no-report" in command and "--report" not in command:
        assert answer == []
    elif read_manifest(folder).config["profile"]:
        assert f"All tables: perfkit analyze {folder} --full" in "".join(answer)
        assert len(answer) <= 1 + SCREEN
    return check_folder(folder, pipeline=pipeline)


def messages(errors: str, *, pipeline: bool = False) -> list[str]:
    """Return the lines of stderr that do not report steps; in a pipeline the reporting rank may have no loss."""
    step = re.compile(r"step \d+/\d+, [\d.]+ \S?s per step" + r"(, loss \d\S*)" + "?" * pipeline)
    return [line for line in errors.splitlines() if not step.fullmatch(line)]


def check_folder(folder: Path, *, pipeline: bool = False) -> RunManifest:
    """Check what every completed run leaves: a complete manifest and complete traces, nothing temporary."""
    manifest = read_manifest(folder)
    assert (manifest.state, manifest.failure) == ("completed", None)
    own = {MANIFEST_NAME}
    assert {file.path for file in manifest.files} == {path.name for path in folder.iterdir()} - own
    assert [rank.rank for rank in manifest.ranks] == list(range(manifest.world.world_size))
    for rank in manifest.ranks:
        assert len(rank.step_wall_ns) == len(rank.load_ns) == len(rank.loss) == len(manifest.step_kinds)
        assert all(0 < load < wall for load, wall in zip(rank.load_ns, rank.step_wall_ns, strict=True))
        assert pipeline or None not in rank.loss
    return manifest


def read_trace(path: Path) -> dict[str, Any]:
    trace: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return trace


def traces(folder: Path, manifest: RunManifest) -> list[dict[str, Any]]:
    return [read_trace(folder / file.path) for file in manifest.files if file.kind == "trace"]


def annotations(trace: dict[str, Any], prefix: str) -> list[str]:
    return [event["name"] for event in trace["traceEvents"] if event.get("name", "").startswith(prefix)]


def check_trace(trace: dict[str, Any], rank: int, world_size: int, steps: list[int]) -> None:
    assert trace["distributedInfo"]["rank"] == rank
    assert trace["distributedInfo"]["world_size"] == world_size
    assert annotations(trace, "ProfilerStep#") == [f"ProfilerStep#{step}" for step in steps]
    for phase in ("data_loading", "to_device", "forward", "backward", "optimizer"):
        assert annotations(trace, f"perfkit.{phase}") == [f"perfkit.{phase}"] * len(steps), phase
    own = trace["perfkit"]
    assert (own["schema_version"], own["rank"], own["world_size"]) == (1, rank, world_size)
    reduced = [item for item in own["collectives"] if item["op"] == "all_reduce"]
    assert reduced
    assert all(item["bytes"] > 0 and item["group_size"] == world_size for item in reduced)
    # They were issued inside the recorded span, on the clock of the trace.
    times = [
        trace["baseTimeNanoseconds"] + event["ts"] * 1000
        for event in trace["traceEvents"]
        if event.get("name", "").startswith("ProfilerStep#")
    ]
    assert all(min(times) < item["ns"] < max(times) + 60e9 for item in reduced)


MATRIX = [
    pytest.param(MPIEXEC, "transformer", "hdf5", marks=needs_mpiexec),
    pytest.param(TORCHRUN, "gpt", "safetensors", marks=pytest.mark.slow),
    pytest.param(None, "gpt", "memory", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("launcher", "workload", "source"), MATRIX)
def test_two_ranks(launcher: list[str] | None, workload: str, source: str, tmp_path: Path) -> None:
    options = [*TINY[workload], "--source", source, "--trace-dir", str(tmp_path)]
    if launcher is None:
        as_json = source == "memory"
        given = ["--json" if as_json and word == "--no-report" else word for word in options]
        command = [*PYTHON, "run", *given, "-n", "2"]
    elif launcher is MPIEXEC:
        command = [*launcher, *PYTHON, "run", *options]
    else:
        command = [*launcher, "-m", "perfkit", "run", *options]
    manifest = run_once(command, tmp_path)
    assert manifest.world.world_size == 2
    assert manifest.world.local_world_sizes == [2]
    assert manifest.world.launcher == (
        "perfkit" if launcher is None else "hydra" if launcher is MPIEXEC else "torchrun"
    )
    assert manifest.parameter_checksum is not None
    assert manifest.backend == "gloo"
    assert manifest.step_kinds == ["cold", "warmup", "active", "active", "active", "cold", "plain", "plain", "plain"]
    assert manifest.throughput is not None
    assert manifest.throughput.measured_on == "plain"
    assert manifest.throughput.flops_per_s is not None
    folder = tmp_path / manifest.run
    assert [file.path for file in manifest.files] == [
        "rank0.json.gz",
        "rank0.key_averages.txt",
        "rank1.json.gz",
        "rank1.key_averages.txt",
    ]
    for rank, trace in enumerate(traces(folder, manifest)):
        check_trace(trace, rank, 2, [2, 3, 4])
    # Each rank has data of its own.
    assert manifest.ranks[0].loss[0] != manifest.ranks[1].loss[0]
    check_file_speed(folder, manifest)


def check_file_speed(folder: Path, manifest: RunManifest) -> None:
    """Check that input from a file was compared with the bandwidth of that file, and input from memory with none."""
    (report,) = perfkit.analyze(folder, cache=False).runs
    loads, speed = report.data_loading, manifest.file_bandwidth
    assert loads is not None
    assert (loads.file_bandwidth, manifest.unknown) == (speed, {})
    if speed is None:
        assert (manifest.source, loads.file_share) == ("memory", None)
        return
    (data,) = Path(manifest.config["data_dir"]).glob(f"{manifest.workload}-*.{SUFFIXES[manifest.source]}")
    assert speed.read_bytes == data.stat().st_size
    assert speed.cached_share is None or 0 <= speed.cached_share <= 1
    assert loads.read_bytes_per_s is not None
    assert loads.file_share == pytest.approx(loads.read_bytes_per_s / 2 / speed.bytes_per_s)


SUFFIXES = {"hdf5": "h5", "safetensors": "safetensors"}


@pytest.mark.slow  # 13 s of CPU time: stacks, memory and two cycles in one run
def test_alone_with_a_file_of_options_cycles_and_epochs(tmp_path: Path) -> None:
    config = tmp_path / "run.toml"
    config.write_text(
        'batch-size = 32\nsource = "hdf5"\nschedule = "wait=1,warmup=1,active=1,repeat=2"\nepochs = 4\n'
        'with-stack = true\nprofile-memory = true\nthreads = 1\nname = "mine"\n'
    )
    command = [*PYTHON, "run", "transformer", "--preset", "tiny", "--config", str(config), "--trace-dir", str(tmp_path)]
    manifest = run_once([*command, "--batch-size", "64"], tmp_path)
    assert manifest.run == "mine"
    assert manifest.batch_size == 64  # the command line wins over the file, the file over the preset
    assert manifest.config["source"] == "hdf5"
    assert len(manifest.step_kinds) == 16  # 256 samples, 4 epochs
    assert [file.path for file in manifest.files if file.kind == "trace"] == [
        "rank0.cycle0.json.gz",
        "rank0.cycle1.json.gz",
    ]
    for cycle, trace in enumerate(traces(tmp_path / "mine", manifest)):
        assert annotations(trace, "ProfilerStep#") == [f"ProfilerStep#{2 + 3 * cycle}"]
        assert trace["perfkit"]["cycle"] == cycle
    assert manifest.ranks[0].threads == 1
    (memory,) = perfkit.analyze(tmp_path / "mine").runs[0].ranks[0].memory
    assert [peak.step for peak in memory.steps] == [2, 5]
    # At least the gradients, which are allocated in each step.
    assert manifest.parameters
    assert all(peak.allocated_bytes >= 4 * manifest.parameters for peak in memory.steps)
    assert memory.phase
    assert memory.phase.startswith("perfkit.")


@pytest.mark.slow  # `make test` has ranks of srun that run a script
def test_ranks_of_srun_meet_by_a_file(tmp_path: Path) -> None:
    options = [*TINY["gpt"], "--no-profile", "--steps", "2", "--trace-dir", str(tmp_path)]
    step = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "2"}
    ranks = [
        subprocess.Popen(
            [*PYTHON, "run", *options],
            env=environment() | step | {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank), "SLURM_NODEID": "0"},
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            cwd=ROOT,
        )
        for rank in range(2)
    ]
    for process in ranks:
        _, errors = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 0, errors
    (folder,) = tmp_path.iterdir()  # nothing else is left
    manifest = check_folder(folder)
    assert (manifest.world.launcher, manifest.files, manifest.step_kinds) == ("slurm", [], ["cold", "plain"])


def test_a_rank_that_never_starts_is_named(tmp_path: Path) -> None:
    place = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}
    done = subprocess.run(
        [*PYTHON, "run", *TINY["gpt"], "--timeout", "2s", "--trace-dir", str(tmp_path)],
        # Its store may use any free port, since no other rank has to know it.
        env=environment() | place | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 1
    assert "rank 1 of 2 has not started" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow  # four ranks
def test_two_runs_at_once_do_not_collide(tmp_path: Path) -> None:
    options = [*TINY["gpt"], "--no-profile", "--steps", "4", "--name", "same", "--trace-dir", str(tmp_path)]
    running = [start([*PYTHON, "run", *options, "-n", "2", "--source", "hdf5"]) for _ in range(2)]
    for process in running:
        _, errors = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 0, errors
    checksums = {check_folder(tmp_path / name).parameter_checksum for name in ("same", "same-2")}
    assert len(checksums) == 1  # the same seed, the same run


@pytest.mark.slow  # one rank writes 8 MiB; `make test` has a script whose trace cannot be written
@needs_mpiexec
def test_a_rank_that_cannot_write_its_trace_fails_the_run(tmp_path: Path) -> None:
    # Rank 1 may write 8 MiB per file (MPI needs 4 to start): torch truncates its trace without an error.
    run = " ".join(
        [*PYTHON, "run", *TINY["transformer"], "--schedule", "warmup=1,active=8", "--trace-dir", str(tmp_path)]
    )
    limited = ["bash", "-c", f"ulimit -f 8192; exec {run}"]
    command = [str(BIN / "mpiexec"), "-n", "1", *run.split(), ":", "-n", "1", *limited]
    done = execute(command)
    assert done.returncode != 0
    (folder,) = [path.parent for path in tmp_path.glob(f"*/{MANIFEST_NAME}")]
    manifest = read_manifest(folder)
    assert manifest.state == "failed"
    assert manifest.failure is not None
    assert manifest.failure.rank == 1
    errors = [line for line in done.stderr.splitlines() if line.startswith("perfkit: error")]
    assert len(errors) == 1
    assert errors[0].startswith("perfkit: error: rank 1: ")
    assert "disk" in errors[0]
    assert [file.rank for file in manifest.files if file.kind == "trace"] in ([], [0])


@pytest.mark.slow  # two ranks that import torch, for a message
@needs_mpiexec
def test_ranks_with_different_options_are_refused(tmp_path: Path) -> None:
    run = [*PYTHON, "run", *TINY["gpt"], "--trace-dir", str(tmp_path)]
    done = execute([str(BIN / "mpiexec"), "-n", "1", *run, ":", "-n", "1", *run, "--steps", "30"])
    assert done.returncode == 2
    assert "rank 1: options differ from those of rank 0 (--steps)" in done.stderr
    assert done.stderr.count("perfkit: error") == 1


def test_a_killed_rank_ends_the_run_and_leaves_no_process(tmp_path: Path) -> None:
    options = [*TINY["gpt"], "--no-profile", "--steps", "100000", "--trace-dir", str(tmp_path)]
    parent = start([*PYTHON, "run", *options, "-n", "2"])
    try:
        folder = wait_for_folder(tmp_path)
        time.sleep(1)  # into the steps on most machines; before them the outcome is the same
        children = children_of(parent.pid)
        assert len(children) == 2
        os.kill(children[1], signal.SIGKILL)
        _, errors = parent.communicate(timeout=LIMIT_S)
    finally:
        parent.kill()
    assert parent.returncode == 1
    assert "SIGKILL" in errors
    assert not any(Path(f"/proc/{child}").exists() for child in children)
    assert read_manifest(folder).state == "failed"


OWN_LOOP = """
import os, sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
import perfkit

dist.init_process_group("gloo", init_method=sys.argv[2],
    rank=int(os.environ["PMI_RANK"]), world_size=int(os.environ["PMI_SIZE"]))
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(torch.randn(24, 64), batch_size=4)
with perfkit.profile(sys.argv[1], schedule="wait=1,warmup=1,active=3", model=model) as prof:
    for batch in prof.batches(loader):
        with prof.phase("forward"):
            loss = model(batch).square().mean()
        with prof.phase("backward"):
            loss.backward()
        with prof.phase("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
        prof.step(loss)
dist.destroy_process_group()
"""


@pytest.mark.slow  # `make test` has a workload under mpiexec, and loops of one rank; test_script has one under torchrun
@needs_mpiexec
def test_own_loop(tmp_path: Path) -> None:
    script = tmp_path / "own.py"
    script.write_text(OWN_LOOP)
    folder = tmp_path / "mine"
    done = execute([*MPIEXEC, sys.executable, str(script), str(folder), f"file://{tmp_path}/store"])
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == [f"{folder}: recorded; to see where the time went: perfkit analyze {folder}"]
    manifest = check_folder(folder)
    assert (manifest.workload, manifest.world.world_size) == ("custom", 2)
    assert manifest.step_kinds == ["cold", "warmup", "active", "active", "active", "cold"]
    for rank, trace in enumerate(traces(folder, manifest)):
        assert annotations(trace, "ProfilerStep#") == ["ProfilerStep#2", "ProfilerStep#3", "ProfilerStep#4"]
        assert annotations(trace, "perfkit.forward") == ["perfkit.forward"] * 3
        assert trace["perfkit"]["rank"] == rank
