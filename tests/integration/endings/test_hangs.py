"""Ways to hang, on four gloo ranks of a plain script: `perfkit run` names rank, group and source line in each."""

import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import msgspec
import pytest

from perfkit.record.hangs.report import DIAGNOSIS_NAME
from perfkit.record.hangs.step_watch import FIRST_STEP_TIMES
from perfkit.records.hang import Diagnosis
from perfkit.storage.run_folder import MANIFEST_NAME, read_manifest
from tests.support.processes.command import run_command
from tests.support.processes.launching import LIMIT_S, MPIEXEC, PYTHON, ROOT, TORCHRUN, needs_mpiexec, start
from tests.support.processes.script_pairs import ScriptRun, run_forked

SCRIPT: Final = ROOT / "tests" / "integration" / "scripts" / "hangs" / "hang.py"
MESSAGES: Final = SCRIPT.parent / "messages.py"
OWN_LOOP: Final = SCRIPT.parent / "own_loop.py"
HANG_AFTER_S: Final = 8
"""On a busy machine the first step, for which it is ten times as long, may take a minute."""
LINES: Final = {
    text: number
    for number, line in enumerate(SCRIPT.read_text(encoding="utf-8").splitlines(), 1)
    for text in [line.strip()]
}
USUAL: Final = f"hang.py:{LINES['dist.all_reduce(torch.ones(1000), group=dp)']}"
WAITING: Final = f"ranks 0-2 wait in all_reduce #5 of group dp (4.00 kB, float32) at {USUAL}"


def line_of(how: str) -> str:
    return f"hang.py:{next(number for text, number in LINES.items() if text.startswith(chr(34) + how + chr(34)))}"


def place_of(function: str) -> str:
    return f"`{function}` at hang.py:{LINES[f'def {function}() -> None:'] + 1}"


def issued(op: str, details: str, how: str) -> str:
    return f"rank 3 issued {op} #5 ({details}) at {line_of(how)} instead"


EXPECTED: Final = {
    "sleep": ("not_issued", [WAITING, f"rank 3 has not issued it: it is in {place_of('load_batch')}"]),
    "timeout": (
        "not_issued",
        ["all_reduce #5 of group dp", f"rank 3 has not issued it: it is in {place_of('load_batch')}"],
    ),
    "die": ("not_issued", ["wait in all_reduce #5 of group dp", "rank 3 has ended its script, with exit code 1"]),
    "catch": (
        "deadlock",
        [
            WAITING,
            "rank 3 waits in all_reduce #11 of the default group",
            "because rank 3 left out all_reduce of group dp",
        ],
    ),
    "size": ("size", [issued("all_reduce", "8.00 kB, float32", "size"), "the sizes differ"]),
    # Where the rank is sampled, its other threads run for a moment: it may answer although it holds Python's lock.
    "lock": ("not_issued", [WAITING, "; rank 3 ", f" is in {place_of('backtrack')}"]),
    "loader": (
        "not_issued",
        ["ranks 0-2 wait in", "rank 3 has not issued it: it waits for its data loader", place_of("read_blocked_file")],
    ),
}
"""Kind of the first fault, and parts of its message."""


IN_MESSAGES: Final = {
    "receive": ("not_issued", ["rank 1 has not received it: {}"]),
    "circle": ("deadlock", ["rank 0 waits in recv from rank 1", "rank 1 waits in recv from rank 0", "for each other"]),
    "batch": ("not_issued", ["rank 0 waits in send to rank 1", "rank 1 has not received it: {}"]),
}


def begin(how: str, trace_dir: Path, *options: str, script: Path = SCRIPT) -> subprocess.Popen[str]:
    own = ["--no-report", "--hang-after", f"{HANG_AFTER_S}s", "--trace-dir", str(trace_dir / how), "-n", "4", *options]
    return start([*PYTHON, "run", str(script), *own, "--", how])


def forked(
    hows: tuple[str, ...], trace_dir: Path, *options: str, script: Path = SCRIPT, ranks: int = 4
) -> dict[str, ScriptRun]:
    """Run a script in several ways at once, on ranks as torchrun starts them; return how each has ended."""
    own = ["--no-report", "--hang-after", f"{HANG_AFTER_S}s", "--on-hang", "end", *options]
    runs = [
        (["run", str(script), *own, "--trace-dir", str(trace_dir / how), "--", how], trace_dir / f"in {how}")
        for how in hows
    ]
    return dict(zip(hows, run_forked(runs, ranks=ranks, at_once=True), strict=True))


def folder_of(trace_dir: Path, how: str) -> Path:
    (manifest,) = (trace_dir / how).glob(f"*/{MANIFEST_NAME}")
    return manifest.parent


def check(how: str, trace_dir: Path, errors: str) -> None:
    kind, parts = EXPECTED[how]
    folder = folder_of(trace_dir, how)
    said = [line for line in errors.splitlines() if line.startswith("perfkit: error: ")][-1]
    found = msgspec.json.decode((folder / DIAGNOSIS_NAME).read_bytes(), type=Diagnosis)
    assert (how, found.faults[0].kind) == (how, kind), errors
    assert (how, 3 in found.faults[0].ranks) == (how, True)
    assert [part for part in parts if part not in found.headline] == [], found.headline
    assert [part for part in parts if part not in said] == [], errors
    assert read_manifest(folder).state == "failed"
    if match := re.search(r"no step has ended for ([\d.]+) s", said):
        assert float(match[1]) < FIRST_STEP_TIMES * HANG_AFTER_S
    assert run_command("diagnose", folder).returncode == 3


@pytest.mark.slow
# Alone, because the ranks that are left have seconds to say why they end before they are ended.
@pytest.mark.parametrize("how", ["die", "lock"])
def test_a_hang_is_diagnosed_and_ended(how: str, tmp_path: Path) -> None:
    job = begin(how, tmp_path, "--on-hang", "end")
    errors = job.communicate(timeout=LIMIT_S)[1]
    check(how, tmp_path, errors)
    assert errors.splitlines()[-1].startswith("perfkit: error: ")
    assert job.returncode == 1


@pytest.mark.slow
def test_so_are_other_ways_to_hang(tmp_path: Path) -> None:
    # Another operator and another type are found as another size is, another order as what is left out.
    for how, ended in forked(("sleep", "size", "loader", "catch", "timeout"), tmp_path).items():
        check(how, tmp_path, ended.errors)
        assert ended.code != 0


@pytest.mark.slow
@pytest.mark.parametrize("hows", [("circle", "batch"), ("receive",)])
def test_who_waits_for_a_message_and_for_whom_is_named(hows: tuple[str, ...], tmp_path: Path) -> None:
    lines = MESSAGES.read_text(encoding="utf-8").splitlines()
    sleeps = 1 + next(number for number, text in enumerate(lines) if "time.sleep" in text)
    where = f"it is in `load_batch` at messages.py:{sleeps}"
    ranks = 4 if hows == ("receive",) else 2
    errors = {how: run.errors for how, run in forked(hows, tmp_path, script=MESSAGES, ranks=ranks).items()}
    for how in hows:
        kind, parts = IN_MESSAGES[how]
        found = msgspec.json.decode((folder_of(tmp_path, how) / DIAGNOSIS_NAME).read_bytes(), type=Diagnosis)
        messages = [fault.message for fault in found.faults]
        missing = [part for part in parts if not any(part.format(where) in text for text in messages)]
        assert (how, found.faults[0].kind, missing) == (how, kind, []), errors[how]
        if how == "receive":
            assert any("rank 3 waits in recv from any rank" in text for text in messages), messages


@pytest.mark.slow
def test_a_hang_in_the_first_step_is_diagnosed(tmp_path: Path) -> None:
    jobs = {how: begin(how, tmp_path, "--on-hang", "end", "--hang-after", "4s") for how in ("first", "first update")}
    errors = {how: job.communicate(timeout=LIMIT_S)[1] for how, job in jobs.items()}
    for how, job in jobs.items():
        folder = folder_of(tmp_path, how)
        found = msgspec.json.decode((folder / DIAGNOSIS_NAME).read_bytes(), type=Diagnosis)
        assert (how, found.faults[0].kind, found.faults[0].ranks) == (how, "not_issued", [3]), errors[how]
        assert f"rank 3 has not issued it: it is in {place_of('load_batch')}" in errors[how].splitlines()[-1]
        assert (job.returncode, read_manifest(folder).state) == (1, "failed")
        assert not list(folder.glob(".*"))
    match = re.search(r"the first step has not ended after ([\d.]+) s: ranks 0-2 wait", errors["first"])
    assert match is not None
    assert float(match[1]) >= 40
    # Here the others are a step further, and their own limit counts: the run begins on rank 3 because it has there.
    match = re.search(r"no step has ended for ([\d.]+) s: ranks 0-2 wait", errors["first update"])
    assert match is not None
    assert float(match[1]) < 40


@pytest.mark.slow
def test_a_run_that_is_ended_in_a_hung_first_step_is_marked_as_failed(tmp_path: Path) -> None:
    run = ["-m", "perfkit", "run", str(SCRIPT), "--hang-after", "1s", "--trace-dir", str(tmp_path / "first")]
    job = start([*TORCHRUN, *run, "--", "first"])
    assert job.stderr is not None
    while "the first step has not ended after" not in (line := job.stderr.readline()):
        assert line, "the ranks have ended"
    job.terminate()
    errors = job.communicate(timeout=LIMIT_S)[1]
    manifest = read_manifest(folder_of(tmp_path, "first"))
    assert manifest.failure is not None, errors
    assert (manifest.state, "ended by SIGTERM" in manifest.failure.message) == ("failed", True)
    assert not list(folder_of(tmp_path, "first").glob(".*"))


@pytest.mark.slow
def test_a_slow_step_is_reported_and_goes_on_and_a_healthy_run_is_left_alone(tmp_path: Path) -> None:
    jobs = {how: begin(how, tmp_path) for how in ("slow", "healthy")}
    ends = {how: job.communicate(timeout=LIMIT_S) for how, job in jobs.items()}
    for how, job in jobs.items():
        assert job.returncode == 0, ends[how]
        assert ends[how][0].count("trained") == 4
        assert read_manifest(folder_of(tmp_path, how)).state == "completed"
    assert "no step has ended for" not in ends["healthy"][1]
    assert not list(folder_of(tmp_path, "healthy").glob("*hang*"))
    (warning,) = [line for line in ends["slow"][1].splitlines() if "no step has ended for" in line]
    assert "All ranks agree" in warning or "No rank was found to keep" in warning
    assert run_command("diagnose", folder_of(tmp_path, "slow")).returncode == 0


@pytest.mark.slow
def test_a_stopped_rank_of_a_workload_is_named(tmp_path: Path) -> None:
    own = ["--hang-after", "8s", "--on-hang", "end", "--timeout", "60s", "--trace-dir", str(tmp_path)]
    job = start([*PYTHON, "run", "gpt", "-n", "2", "--steps", "5000", "--batch-size", "4", "--no-profile", *own])
    assert job.stderr is not None
    while not (line := job.stderr.readline()).startswith("step "):
        assert line, "the run ended without a step"
    (folder,) = [path.parent for path in tmp_path.glob(f"*/{MANIFEST_NAME}")]
    children = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
    subprocess.run(["kill", f"-{signal.SIGSTOP.value}", children[1]], check=True)
    errors = job.communicate(timeout=LIMIT_S)[1]
    match = re.search(r"no step has ended for ([\d.]+) s", errors)
    assert match is not None
    assert float(match[1]) < 60  # before its collective waits no longer
    assert "rank 0 waits in all_reduce" in errors
    assert "; rank 1 is stopped (SIGSTOP" in errors
    assert read_manifest(folder).state == "failed"


@needs_mpiexec
@pytest.mark.slow  # below under torchrun, in a loop that is monitored
def test_a_hang_in_a_loop_of_ones_own_is_diagnosed_and_ended(tmp_path: Path) -> None:
    job = start([*MPIEXEC, sys.executable, str(OWN_LOOP), "profile", str(tmp_path / "run"), "12", f"{HANG_AFTER_S}s"])
    errors = job.communicate(timeout=LIMIT_S)[1]
    (line,) = [line for line in errors.splitlines() if line.startswith("perfkit: error: no step has ended for ")]
    lines = OWN_LOOP.read_text(encoding="utf-8").splitlines()
    reduces = 1 + next(number for number, text in enumerate(lines) if "dist.all_reduce" in text)
    sleeps = 1 + next(number for number, text in enumerate(lines) if "time.sleep" in text)
    assert re.search(rf"rank 0 waits in all_reduce #\d+ of the default group .* at own_loop.py:{reduces};", line)
    assert f"rank 1 has not issued it: it is in `leave_out` at own_loop.py:{sleeps}" in line
    manifest = read_manifest(tmp_path / "run")
    assert (job.returncode != 0, manifest.state) == (True, "failed")
    assert run_command("diagnose", tmp_path / "run").returncode == 3


@pytest.mark.slow
def test_a_hang_in_the_first_step_is_diagnosed_after_ten_times_as_long(tmp_path: Path) -> None:
    job = start([*TORCHRUN, str(OWN_LOOP), "monitor", str(tmp_path / "run"), "0", "1s"])
    errors = job.communicate(timeout=LIMIT_S)[1]
    (line,) = [line for line in errors.splitlines() if "the first step has not ended after" in line]
    match = re.search(r"after ([\d.]+) s: rank 0 waits in all_reduce", line)
    assert match is not None
    assert float(match[1]) >= 10
    assert "; rank 1 has not issued it: it is in `leave_out`" in line
