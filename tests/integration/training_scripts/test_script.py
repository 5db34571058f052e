"""`perfkit run train.py` for real: scripts that know nothing of perfkit, alone and under it.

Tests of how a script starts and ends use a stub of torch (tests/support/stub_torch); what torch itself does, and one
test of each kind of ending, use the real one.
"""

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import perfkit
from perfkit.records.manifest import RunManifest
from perfkit.records.run import RunReport
from perfkit.storage.run_folder import MANIFEST_NAME, read_manifest
from tests.integration.test_run import annotations, traces
from tests.support.processes.launching import (
    BIN,
    LIMIT_S,
    MPIEXEC,
    NOT_THE_MACHINE,
    PYTHON,
    ROOT,
    SHORT,
    TORCHRUN,
    environment,
    execute,
    needs_mpiexec,
    start,
)

SCRIPTS = Path(__file__).parents[1] / "scripts"
BEHAVE = str(SCRIPTS / "behave.py")
TRAIN = str(SCRIPTS / "train.py")
PLAIN_DDP = str(SCRIPTS / "plain_ddp.py")
KINDS = ["cold", "plain", "warmup", "active", "active", "active", "cold", "plain", "plain"]


def under_perfkit(script: str, trace_dir: Path, *options: str) -> list[str]:
    return [*PYTHON, "run", script, "--no-report", *SHORT, "--trace-dir", str(trace_dir), *options]


def fed(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command that does not need the real torch, with one line on its standard input."""
    return subprocess.run(
        command,
        env=environment(stub_torch=True),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        input="hello\n",
    )


def own_lines(errors: str) -> list[str]:
    return [line for line in errors.splitlines() if line.startswith("perfkit: ")]


def without_own_lines(errors: str) -> list[str]:
    return [line for line in errors.splitlines() if not line.startswith("perfkit: ")]


def check_whole(folder: Path, *, world_size: int) -> RunManifest:
    """Check what a recorded script that ended well leaves: nothing temporary, nothing invented."""
    manifest = read_manifest(folder)
    assert (manifest.state, manifest.failure) == ("completed", None)
    assert {file.path for file in manifest.files} == {path.name for path in folder.iterdir()} - {MANIFEST_NAME}
    assert [path.name for path in folder.parent.iterdir() if path.name.startswith(".")] == []
    assert [rank.rank for rank in manifest.ranks] == list(range(world_size))
    assert [rank.local_rank for rank in manifest.ranks] == list(range(world_size))
    assert manifest.world.local_world_sizes == [world_size]
    for rank in manifest.ranks:
        assert len(rank.step_wall_ns) == len(manifest.step_kinds)
        assert all(wall > 0 for wall in rank.step_wall_ns)
        assert (rank.load_ns, rank.loss) == ([], [])
    is_known = manifest.batch_size is not None
    assert (manifest.throughput is not None, "batch_size" not in manifest.unknown) == (is_known, is_known)
    assert {"loss", "load_ns"} <= manifest.unknown.keys()
    return manifest


@pytest.mark.parametrize(
    "mode",
    [
        *("where", "read", "leave", "complain", "fail", "hook", "interrupt", "terminate", "linger"),
        *("share", "receive", "configure"),
    ],
)
def test_a_script_behaves_as_by_itself(mode: str, tmp_path: Path) -> None:
    alone = fed([sys.executable, BEHAVE, mode])
    recorded = fed(under_perfkit(BEHAVE, tmp_path / "traces", "--", mode))
    assert (recorded.returncode, recorded.stdout) == (alone.returncode, alone.stdout)
    assert without_own_lines(recorded.stderr) == alone.stderr.splitlines()
    assert len(own_lines(recorded.stderr)) == (0 if alone.returncode else 1)
    assert not (tmp_path / "traces").exists()


@pytest.mark.parametrize("mode", ["mute", "shut"])
def test_a_script_without_stderr_ends_as_by_itself(mode: str, tmp_path: Path) -> None:
    alone = fed([sys.executable, BEHAVE, mode])
    recorded = fed(under_perfkit(BEHAVE, tmp_path / "traces", "--", mode))
    assert (recorded.returncode, recorded.stdout) == (0, alone.stdout)
    assert recorded.stderr == alone.stderr == ""


def test_a_thread_that_trains_after_the_last_line_is_recorded_in_the_folder_where_the_script_began(
    tmp_path: Path,
) -> None:
    script = tmp_path / "later.py"
    script.write_text(
        "import os, sys, threading, time\n"
        f"sys.path.insert(0, {str(SCRIPTS)!r})\n"
        "os.mkdir('elsewhere')\n"
        "os.chdir('elsewhere')\n"
        "import train\n"
        "def later():\n"
        "    time.sleep(0.5)\n"
        "    train.train(8, 'cpu')\n"
        "    print('trained')\n"
        "threading.Thread(target=later).start()\n"
    )
    command = [*PYTHON, "run", str(script), "--no-report", *SHORT, "--name", "later"]
    recorded = execute(command, stub_torch=True, cwd=tmp_path)
    assert (recorded.returncode, recorded.stdout) == (0, "trained\n")
    (line,) = own_lines(recorded.stderr)
    assert line.startswith(f"perfkit: {script}: 8 steps")
    assert line.endswith(f"perfkit analyze {tmp_path / 'traces' / 'later'}")
    assert check_whole(tmp_path / "traces" / "later", world_size=1).step_kinds == KINDS[:8]


def test_what_threads_did_not_step_either_is_an_error(tmp_path: Path) -> None:
    script = tmp_path / "later.py"
    script.write_text(
        "import atexit, sys, threading\n"
        f"sys.path.insert(0, {str(SCRIPTS)!r})\n"
        "import train\n"
        "atexit.register(print, 'over')\n"
        "threading.Thread(target=lambda: train.train(8, 'cpu')).start()\n"
    )
    recorded = execute([*PYTHON, "run", str(script), "--step-on", "Adagrad"], stub_torch=True, cwd=tmp_path)
    assert (recorded.returncode, recorded.stdout) == (1, "over\n")
    assert "--step-on Adagrad: no such optimizer has stepped" in recorded.stderr


def test_a_script_that_does_not_parse(tmp_path: Path) -> None:
    script = tmp_path / "unfinished.py"
    script.write_text("print('a'\n")
    alone = fed([sys.executable, str(script)])
    recorded = fed(under_perfkit(str(script), tmp_path / "traces"))
    assert (recorded.returncode, recorded.stdout, recorded.stderr) == (1, alone.stdout, alone.stderr)


@pytest.mark.parametrize(
    ("then", "code", "message"),
    [
        ("raise", 1, "ValueError: in step 8"),
        ("exit", 3, "the script ended with exit code 3"),
        ("term", -signal.SIGTERM, "ended by SIGTERM"),
        ("interrupt", -signal.SIGINT, "interrupted"),
    ],
)
def test_a_script_that_ends_badly_keeps_its_traces(then: str, code: int, message: str, tmp_path: Path) -> None:
    recorded = execute(
        under_perfkit(TRAIN, tmp_path, "--name", "bad", "--", "--then", then), stub_torch=then != "raise"
    )
    assert recorded.returncode == code
    errors = "\n".join(without_own_lines(recorded.stderr))
    assert ("Traceback" in errors) == (then in ("raise", "interrupt"))
    assert str(ROOT / "perfkit") not in errors
    assert len(own_lines(recorded.stderr)) == 1
    manifest = read_manifest(tmp_path / "bad")
    assert manifest.state == "failed"
    assert manifest.failure is not None
    assert manifest.failure.message == message
    assert manifest.step_kinds == KINDS[:8]
    assert len(manifest.ranks[0].step_wall_ns) == 8
    assert [file.path for file in manifest.files if file.kind == "trace"] == ["rank0.json.gz"]
    assert len(perfkit.analyze(tmp_path / "bad").runs[0].ranks[0].steps) == 3


@pytest.mark.slow  # `make test` has scripts that end badly after their cycle
def test_the_cycle_so_far_is_written(tmp_path: Path) -> None:
    options = ["--name", "cut", "--schedule", "wait=1,warmup=1,active=30"]
    recorded = execute(under_perfkit(TRAIN, tmp_path, *options, "--", "--then", "term"))
    assert recorded.returncode == -signal.SIGTERM
    assert [step.step for step in perfkit.analyze(tmp_path / "cut").runs[0].ranks[0].steps] == [3, 4, 5, 6, 7]


@pytest.mark.slow  # perfkit waits seconds for Python to be interrupted
def test_a_script_that_python_cannot_interrupt_still_ends_on_sigterm(tmp_path: Path) -> None:
    process = start(under_perfkit(TRAIN, tmp_path, "--name", "stuck", "--", "--then", "stuck"))
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "stuck\n"
        time.sleep(2)  # it prints before it blocks; if this is too short, Python itself ends it
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=LIMIT_S)
    finally:
        process.kill()
    assert process.returncode in (128 + signal.SIGTERM, -signal.SIGTERM)
    assert read_manifest(tmp_path / "stuck").state == "failed"


@pytest.mark.slow  # two ranks, twice; test_reruns has the rule
def test_a_rank_that_the_script_starts_by_running_itself_is_recorded(tmp_path: Path) -> None:
    script = str(SCRIPTS / "runs_itself.py")
    recorded = execute(under_perfkit(script, tmp_path, "--name", "both", "--", "well"))
    assert (recorded.returncode, recorded.stdout) == (0, "trained 0\n")
    assert len(recorded.stderr.splitlines()) == 1
    assert check_whole(tmp_path / "both", world_size=2).step_kinds == [*KINDS, "plain"]
    failed = execute(under_perfkit(script, tmp_path, "--name", "failed", "--", "fail"))
    assert (failed.returncode, failed.stdout) == (0, "trained 7\n")
    failure = read_manifest(tmp_path / "failed").failure
    assert failure is not None
    assert failure.rank == 1


@pytest.mark.slow  # five forks of a process with torch
def test_a_process_that_is_forked_after_training_ends_as_by_itself(tmp_path: Path) -> None:
    script = tmp_path / "forks.py"
    script.write_text(
        "import atexit, os, sys\n"
        f"sys.path.insert(0, {str(SCRIPTS)!r})\n"
        "import train\n"
        "train.train(8, 'cpu')\n"
        "atexit.register(print, 'at exit')\n"
        "for error in (SystemExit(3), SystemExit('text'), SystemExit(), ValueError('bad'), KeyboardInterrupt()):\n"
        "    sys.stdout.flush()\n"
        "    child = os.fork()\n"
        "    if not child:\n"
        "        left = open('left', 'w')\n"
        "        left.write(type(error).__name__)\n"
        "        raise error\n"
        "    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), open('left').read())\n"
    )
    recorded = execute([*PYTHON, "run", str(script), "--no-report"], cwd=tmp_path)
    ends = ["3 SystemExit", "1 SystemExit", "0 SystemExit", "1 ValueError", f"{-signal.SIGINT} KeyboardInterrupt"]
    assert recorded.stdout.splitlines() == [line for end in ends for line in ("at exit", end)] + ["at exit"]
    assert recorded.returncode == 0
    assert "terminate called" not in recorded.stderr


@pytest.mark.parametrize(
    ("method", "stub"), [("fork", True), ("spawn", True), pytest.param("spawn", False, marks=pytest.mark.slow)]
)
def test_what_child_processes_train_is_recorded(method: str, stub: bool, tmp_path: Path) -> None:
    options = ["--name", "child", "--", "--then", method]
    recorded = execute(under_perfkit(TRAIN, tmp_path, *options), stub_torch=stub)
    assert recorded.returncode == 0, recorded.stderr
    (line,) = recorded.stderr.splitlines()
    assert line.endswith(f"8 steps; to see where the time went: perfkit analyze {tmp_path / 'child'}")
    assert check_whole(tmp_path / "child", world_size=1).step_kinds == KINDS[:8]


def test_a_forked_process_that_is_the_first_to_import_torch_is_recorded_once(tmp_path: Path) -> None:
    script = tmp_path / "starts.py"
    script.write_text(
        "import multiprocessing, sys\n"
        f"sys.path.insert(0, {str(SCRIPTS)!r})\n"
        "def work(depth):\n"
        "    if depth > 1:\n"
        "        return start(depth - 1)\n"
        "    import train\n"
        "    train.train(8, 'cpu')\n"
        "def start(depth):\n"
        "    child = multiprocessing.get_context('fork').Process(target=work, args=(depth,))\n"
        "    child.start()\n"
        "    child.join()\n"
        "start(2)\n"
    )
    recorded = execute(under_perfkit(str(script), tmp_path / "traces"))
    (line,) = recorded.stderr.splitlines()
    assert "8 steps; to see where the time went" in line
    (folder,) = (tmp_path / "traces").iterdir()
    assert check_whole(folder, world_size=1).step_kinds == KINDS[:8]


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize(
    ("end", "message"),
    [
        ("raise ValueError('bad')", "ValueError: bad"),
        ("try: 1 / 0\n    except Exception: sys.exit(1)", "ZeroDivisionError: division by zero"),  # as mp.spawn does
        ("sys.exit(2)", "the process that the script started ended with exit code 2"),
    ],
    ids=["raise", "caught", "exit"],
)
def test_the_error_of_a_child_process_is_named(method: str, end: str, message: str, tmp_path: Path) -> None:
    script = tmp_path / "starts.py"
    script.write_text(
        "import multiprocessing, sys\n"
        f"sys.path.insert(0, {str(SCRIPTS)!r})\n"
        "import train\n"
        "def work():\n"
        "    train.train(8, 'cpu')\n"
        f"    {end}\n"
        "if __name__ == '__main__':\n"
        f"    child = multiprocessing.get_context('{method}').Process(target=work)\n"
        "    child.start()\n"
        "    child.join()\n"
        "    print(child.exitcode)\n"
    )
    recorded = execute(under_perfkit(str(script), tmp_path, "--name", "child"), stub_torch=True)
    assert recorded.stdout == ("2\n" if "exit(2)" in end else "1\n")
    failure = read_manifest(tmp_path / "child").failure
    assert failure is not None
    assert failure.message == message
    assert str(ROOT / "perfkit") not in recorded.stderr


@pytest.mark.parametrize("steps", [2, 10])  # before and after the end of the schedule
def test_an_own_excepthook_that_ends_the_process_leaves_a_failed_run(steps: int, tmp_path: Path) -> None:
    script = tmp_path / "aborts.py"
    script.write_text(
        "import os, sys\n"
        f"sys.path.insert(0, {str(SCRIPTS)!r})\n"
        "import train\n"
        "def abort(kind, error, trace):\n"
        "    print('aborts:', kind.__name__, trace.tb_frame.f_code.co_name, flush=True)\n"
        "    os._exit(3)\n"
        "sys.excepthook = abort\n"
        f"train.train({steps}, 'cpu')\n"
        "raise ValueError('bad')\n"
    )
    recorded = execute(under_perfkit(str(script), tmp_path, "--name", "aborted"), stub_torch=True)
    assert (recorded.returncode, recorded.stdout) == (3, "aborts: ValueError <module>\n")
    assert len(own_lines(recorded.stderr)) == 1
    manifest = read_manifest(tmp_path / "aborted")
    assert manifest.state == "failed"
    assert manifest.failure is not None
    assert manifest.failure.message == "ValueError: bad"
    assert len(manifest.ranks[0].step_wall_ns) == steps


def test_the_answer_of_the_analysis_comes_last_on_stderr(tmp_path: Path) -> None:
    command = [*PYTHON, "run", TRAIN, "--trace-dir", str(tmp_path), "--name"]
    recorded, quiet = (
        execute([*command, name, *options], stub_torch=True)
        for name, options in (("answered", []), ("quiet", ["--no-report"]))
    )
    status, answer = recorded.stderr.split("answered ──")
    assert status.endswith(f" steps, in {tmp_path / 'answered'}\n")  # the command to analyse it is in the answer
    assert f"All tables: perfkit analyze {tmp_path / 'answered'} --full" in answer
    assert len(quiet.stderr.splitlines()) == 1
    assert recorded.stdout == quiet.stdout


def test_a_script_that_profiles_itself_is_left_alone(tmp_path: Path) -> None:
    recorded = execute(under_perfkit(TRAIN, tmp_path / "traces", "--", "--then", "profile"))
    assert (recorded.returncode, recorded.stdout) == (0, "True\n")
    (line,) = own_lines(recorded.stderr)
    assert line.endswith("profiles itself with torch.profiler: perfkit does not record it beside that")
    assert not (tmp_path / "traces").exists()


@pytest.mark.slow  # `make test` has a script that profiles itself from the start
def test_a_script_that_begins_to_profile_itself_is_left_alone_from_then_on(tmp_path: Path) -> None:
    recorded = execute(under_perfkit(TRAIN, tmp_path, "--name", "late", "--", "--then", "profile-late"))
    assert (recorded.returncode, recorded.stdout) == (0, "True\n")
    (line,) = own_lines(recorded.stderr)
    assert line.endswith("profiles itself with torch.profiler: perfkit records no more steps")
    manifest = check_whole(tmp_path / "late", world_size=1)
    assert (manifest.step_kinds, manifest.files) == (KINDS[:4], [])


@pytest.mark.slow  # test_step_counter has the rule
def test_the_optimizer_can_be_chosen(tmp_path: Path) -> None:
    options = ["--name", "adam", "--step-on", "Adam", "--schedule", "wait=0,warmup=1,active=1,repeat=2"]
    recorded = execute(under_perfkit(TRAIN, tmp_path, *options))
    assert (recorded.returncode, recorded.stdout) == (0, "trained\n")
    manifest = check_whole(tmp_path / "adam", world_size=1)
    assert manifest.config["optimizer"] == "Adam"
    assert manifest.step_kinds == ["cold", "warmup", "active", "warmup", "active", "cold", "plain", "plain"]
    for cycle, trace in enumerate(traces(tmp_path / "adam", manifest)):
        assert annotations(trace, "ProfilerStep#") == [f"ProfilerStep#{2 + 2 * cycle}"]


def test_an_optimizer_that_never_steps_is_said_at_the_end(tmp_path: Path) -> None:
    recorded = execute(under_perfkit(TRAIN, tmp_path / "traces", "--step-on", "Adagrad"), stub_torch=True)
    assert (recorded.returncode, recorded.stdout) == (1, "trained\n")
    (line,) = recorded.stderr.splitlines()
    assert line == (
        "perfkit: error: --step-on Adagrad: no such optimizer has stepped; "
        "those that have: SGD (8 steps), Adam (8 steps)"
    )
    assert not (tmp_path / "traces").exists()


@needs_mpiexec
def test_a_rank_that_never_steps_does_not_keep_the_run_open(tmp_path: Path) -> None:
    idle = under_perfkit(BEHAVE, tmp_path, "--name", "one", "--workload", "train", "--", "where")
    steps = under_perfkit(TRAIN, tmp_path, "--name", "one")
    done = execute([str(BIN / "mpiexec"), "-n", "1", *idle, ":", "-n", "1", *steps], stub_torch=True)
    assert done.returncode == 0, done.stderr
    manifest = read_manifest(tmp_path / "one")
    assert (manifest.state, [rank.rank for rank in manifest.ranks]) == ("completed", [1])
    assert manifest.world.world_size == 2
    assert "ranks" in manifest.unknown
    assert "ranks_missing" in {finding.code for finding in perfkit.analyze(tmp_path / "one").runs[0].findings}


@pytest.mark.parametrize(("steps", "kept"), [(2, [1]), (5, [2, 3, 4]), (9, [*range(4, 9)]), (20, [*range(8, 18)])])
def test_the_default_schedule_leaves_a_trace_of_short_scripts_too(steps: int, kept: list[int], tmp_path: Path) -> None:
    command = [*PYTHON, "run", TRAIN, "--no-report", "--trace-dir", str(tmp_path), "--", "--steps", str(steps)]
    assert execute(command).returncode == 0
    (run,) = perfkit.analyze(tmp_path).runs
    assert [step.step for rank in run.ranks for step in rank.steps] == kept


def test_too_few_steps_for_a_trace(tmp_path: Path) -> None:
    recorded = execute(under_perfkit(TRAIN, tmp_path, "--name", "few", "--", "--steps", "3"), stub_torch=True)
    assert recorded.returncode == 0
    (line,) = recorded.stderr.splitlines()
    assert "3 steps, and no trace: it takes 4 steps" in line
    assert check_whole(tmp_path / "few", world_size=1).files == []


@pytest.mark.parametrize("steps", [3, 400])
def test_a_script_is_timed_without_the_profiler(steps: int, tmp_path: Path) -> None:
    options = ["--name", "timed", "--no-profile", "--", "--steps", str(steps)]
    recorded = execute(under_perfkit(TRAIN, tmp_path, *options), stub_torch=True)
    assert recorded.returncode == 0
    folder = tmp_path / "timed"
    assert recorded.stderr == f"perfkit: {TRAIN}: {steps} steps; their times: perfkit analyze {folder}\n"
    assert check_whole(folder, world_size=1).step_kinds == ["cold", *["plain"] * min(steps - 1, 104)]
    (run,) = perfkit.analyze(folder).runs
    assert run.verdict.sentence.startswith("no verdict: this run was timed without the profiler (--no-profile)")


def test_a_long_script_is_left_alone_in_the_end(tmp_path: Path) -> None:
    recorded = execute(under_perfkit(TRAIN, tmp_path, "--name", "long", "--", "--steps", "400"), stub_torch=True)
    assert "400 steps" in recorded.stderr
    manifest = check_whole(tmp_path / "long", world_size=1)
    assert manifest.step_kinds == [*KINDS[:7], *["plain"] * 100]


def test_a_folder_that_cannot_be_written_is_said_before_the_script_runs() -> None:
    recorded = execute(under_perfkit(TRAIN, Path("/proc/none")))
    assert (recorded.returncode, recorded.stdout) == (1, "")
    assert recorded.stderr.startswith("perfkit: error: cannot write into /proc/none: ")


def test_recording_that_fails_does_not_fail_the_script(tmp_path: Path) -> None:
    # The process may write 64 KiB per file: as on a full disk, torch truncates the trace without an error.
    options = ["--name", "full", "--schedule", "warmup=1,active=30", "--", "--steps", "40"]
    command = " ".join(under_perfkit(TRAIN, tmp_path, *options))
    recorded = execute(["bash", "-c", f"ulimit -f 64; exec {command}"])
    assert (recorded.returncode, recorded.stdout) == (0, "trained\n")
    (line,) = own_lines(recorded.stderr)
    assert line.startswith("perfkit: error: ")
    assert line.endswith("train.py is not recorded any further")
    manifest = read_manifest(tmp_path / "full")
    assert (manifest.state, manifest.files) == ("failed", [])


@pytest.mark.parametrize("name", ["nothing.py", "transformr"])
def test_what_is_neither_a_workload_nor_a_script(name: str) -> None:
    recorded = execute([*PYTHON, "run", name])
    assert (recorded.returncode, recorded.stdout) == (2, "")
    (line,) = recorded.stderr.splitlines()
    assert ("no such file" in line) == name.endswith(".py")
    assert ("Did you mean 'transformer'?" in line) == (not name.endswith(".py"))


def launched_by(launcher: str, script: str, trace_dir: Path, name: str, *arguments: str) -> list[str]:
    options = ["--name", name]
    if launcher == "perfkit":
        options += ["-n", "2"]
    command = [*under_perfkit(script, trace_dir, *options), "--", *arguments]
    if launcher == "hydra":
        return [*MPIEXEC, *command]
    return [*TORCHRUN, "--no-python", *command] if launcher == "torchrun" else command


# Below, torchrun has the same script.
@needs_mpiexec
def test_a_plain_ddp_script(tmp_path: Path) -> None:
    arguments = ["--steps", "9", "--workers", "1"]
    done = execute(launched_by("hydra", PLAIN_DDP, tmp_path / "traces", "ddp", *arguments))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("mean loss ")
    assert done.stdout.endswith(" after 9 steps\n")
    assert len(own_lines(done.stderr)) == 1
    manifest = check_whole(tmp_path / "traces" / "ddp", world_size=2)
    assert (manifest.world.launcher, manifest.backend) == ("hydra", "gloo")
    # After the recording its worker has two batches ready.
    assert (manifest.workload, manifest.step_kinds) == ("plain_ddp", [*KINDS[:-2], "cold", "cold"])
    assert (manifest.batch_size, manifest.batch_size_from) == (16, "loader")
    assert manifest.config["arguments"] == arguments
    (run,) = perfkit.analyze(tmp_path / "traces").runs
    assert [len(rank.steps) for rank in run.ranks] == [3, 3]
    assert {finding.code for finding in run.findings} & NOT_THE_MACHINE == set()
    for rank in run.ranks:
        assert all(step.loads.count == 1 for step in rank.steps)
        assert sum(call.count for call in rank.collectives if call.operator == "all_reduce") == 6
        assert all(call.bytes for call in rank.collectives)
    for trace in traces(tmp_path / "traces" / "ddp", manifest):
        assert annotations(trace, "ProfilerStep#") == ["ProfilerStep#3", "ProfilerStep#4", "ProfilerStep#5"]
        assert annotations(trace, "perfkit.") == ["perfkit.forward", "perfkit.backward"] * 3


@needs_mpiexec
def test_ranks_without_a_process_group_share_a_folder(tmp_path: Path) -> None:
    done = execute([*MPIEXEC, *under_perfkit(TRAIN, tmp_path, "--name", "alone")], stub_torch=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "trained\ntrained\n"
    assert len(own_lines(done.stderr)) == 1
    manifest = check_whole(tmp_path / "alone", world_size=2)
    assert (manifest.world.launcher, manifest.backend) == ("hydra", None)


def test_ranks_of_srun_without_a_process_group(tmp_path: Path) -> None:
    step = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "2"}
    ranks = [
        subprocess.Popen(
            under_perfkit(TRAIN, tmp_path, "--name", "steps"),
            env=environment(stub_torch=True)
            | step
            | {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank), "SLURM_NODEID": "0"},
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        for rank in range(2)
    ]
    errors = [process.communicate(timeout=LIMIT_S)[1] for process in ranks]
    assert [process.returncode for process in ranks] == [0, 0], errors
    assert check_whole(tmp_path / "steps", world_size=2).world.launcher == "slurm"


def test_ranks_on_this_host_end_with_the_scripts_exit_code_and_read_its_input(tmp_path: Path) -> None:
    assert fed(under_perfkit(BEHAVE, tmp_path, "-n", "2", "--", "leave")).returncode == 3
    done = fed(under_perfkit(BEHAVE, tmp_path, "-n", "2", "--", "read"))
    assert sorted(done.stdout.split("\n")) == ["", "", "read ", "read HELLO"]


@needs_mpiexec
def test_what_the_user_has_set_is_left_alone(tmp_path: Path) -> None:
    place = [*MPIEXEC, "-genv", "MASTER_ADDR", "here", *under_perfkit(str(SCRIPTS / "place.py"), tmp_path)]
    done = execute(place)
    assert sorted(done.stdout.splitlines()) == ["None None None None here None"] * 2, done.stderr


@needs_mpiexec
def test_ranks_of_mpiexec_are_told_their_place_and_a_port_that_stays_free(tmp_path: Path) -> None:
    done = execute([*MPIEXEC, *under_perfkit(str(SCRIPTS / "place.py"), tmp_path / "traces")])
    zero, one = sorted(line.split() for line in done.stdout.splitlines())
    assert len(zero) == len(one) == 6
    assert (zero[:5], one[:5]) == (["0", "2", "0", "2", "127.0.0.1"], ["1", "2", "1", "2", "127.0.0.1"])
    assert zero[5] == one[5]
    assert list((tmp_path / "traces").iterdir()) == []


@pytest.mark.slow  # two ranks for one collective
@needs_mpiexec
def test_a_script_that_goes_by_mpi_is_not_disturbed(tmp_path: Path) -> None:
    pytest.importorskip("mpi4py")
    done = execute([*MPIEXEC, *under_perfkit(str(SCRIPTS / "by_mpi.py"), tmp_path)])
    assert (done.returncode, done.stdout) == (0, "1.0\n1.0\n"), done.stderr


def as_task(rank: int) -> dict[str, str]:
    step = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "2"}
    return environment() | step | {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank), "SLURM_NODEID": "0"}


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_never_starts_is_said_within_the_limit(rank: int, tmp_path: Path) -> None:
    command = under_perfkit(str(SCRIPTS / "place.py"), tmp_path, "--timeout", "1s", "--", "wait")
    process = subprocess.Popen(
        command, env=as_task(rank), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    line = process.stderr.readline()  # the script waits until the test has read this
    output, errors = process.communicate("\n", timeout=LIMIT_S)
    assert process.returncode == 0
    assert not [line for line in own_lines(errors) if "warning" in line]
    assert line.startswith("perfkit: warning: rank ")
    if rank == 0:
        assert "rank 1 of the script did not start within --timeout 1s" in line
    else:
        assert "rank 0 has not published its address" in line
        assert output == "None None None None None None\n"


def failed_rank(errors: str) -> list[str]:
    return [line for line in own_lines(errors) if "error: rank" in line]


@pytest.mark.slow  # test_failures has failing ranks under launchers
def test_the_rank_that_failed_first_is_named_once(tmp_path: Path) -> None:
    done = execute(launched_by("perfkit", str(SCRIPTS / "fails.py"), tmp_path, "boom", "late"))
    assert done.returncode == 1
    (line,) = failed_rank(done.stderr)
    assert line.startswith(f"perfkit: error: rank 1: RuntimeError: boom ({tmp_path / 'boom' / MANIFEST_NAME})")
    assert done.stderr.splitlines()[-1] == line
    failure = read_manifest(tmp_path / "boom").failure
    assert failure is not None
    assert (failure.rank, failure.message) == (1, "RuntimeError: boom")


@pytest.mark.slow  # `make test` has a rank that fails after it imported torch
@pytest.mark.parametrize(
    ("how", "code", "message"),
    [("early", 1, "rank 1: ValueError: before torch"), ("silent", 5, "rank 1 ended with exit code 5")],
)
def test_a_rank_that_fails_before_it_imports_torch_is_named(how: str, code: int, message: str, tmp_path: Path) -> None:
    done = execute(launched_by("perfkit", str(SCRIPTS / "fails.py"), tmp_path, "early", how))
    assert done.returncode == code
    assert failed_rank(done.stderr) == [f"perfkit: error: {message}"]
    assert done.stderr.splitlines()[-1] == f"perfkit: error: {message}"


def counts(run: RunReport) -> list[Any]:
    """Return the parts of a report that do not depend on the speed of the machine."""
    return [
        (
            rank.rank,
            len(rank.steps),
            [step.loads.count for step in rank.steps],
            sorted((operator.name, operator.category, operator.count) for operator in rank.operators),
            sorted((call.operator, call.bytes, call.dtype, call.count) for call in rank.collectives),
        )
        for rank in run.ranks
    ]


@pytest.mark.slow  # two runs under torchrun
def test_an_unchanged_script_gives_the_report_of_the_same_loop_in_perfkit_profile(tmp_path: Path) -> None:
    schedule = "wait=8,warmup=1,active=8"
    arguments = ["--steps", "30", "--width", "512"]
    wrapped = [*TORCHRUN, str(SCRIPTS / "profiled_ddp.py"), "--traces", str(tmp_path / "wrapped")]
    unchanged = [*TORCHRUN, "--no-python", *under_perfkit(PLAIN_DDP, tmp_path, "--name", "unchanged")]
    outputs = []
    for command in ([*wrapped, "--schedule", schedule], [*unchanged, "--schedule", schedule, "--"]):
        done = execute([*command, *arguments])
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout)
    assert outputs[0] == outputs[1]  # the losses are the same
    reports = [perfkit.analyze(tmp_path / name).runs[0] for name in ("wrapped", "unchanged")]
    assert counts(reports[0]) == counts(reports[1])
    steps = [read_manifest(tmp_path / name).step_kinds for name in ("wrapped", "unchanged")]
    assert len(steps[0]) == len(steps[1]) == 30


@pytest.mark.slow  # imports accelerate on two ranks; `make test` has plain DDP scripts
def test_a_script_with_a_trainer_library(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    script = str(SCRIPTS / "with_accelerate.py")
    done = execute(launched_by("perfkit", script, tmp_path, "library", "--steps", "9", "--accumulate", "2"))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "trained on 2\n"
    manifest = check_whole(tmp_path / "library", world_size=2)
    assert manifest.step_kinds == KINDS  # a step of the optimizer, not of the loop
    assert manifest.config["optimizer"] == "AdamW"
    for rank in perfkit.analyze(tmp_path / "library").runs[0].ranks:
        assert [step.loads.count for step in rank.steps] == [2, 2, 2]
        assert sum(call.count for call in rank.collectives if call.operator == "all_reduce") == 3


def test_help_of_a_script() -> None:
    done = execute([str(BIN / "perfkit"), "run", TRAIN, "--help-all"])
    assert done.returncode == 0
    for option in ("--schedule", "--step-on", "--trace-dir", "--record-shapes", "--timeout", "--ranks"):
        assert option in done.stdout
