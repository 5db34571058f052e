"""`perfkit sweep` up to where processes would start; those are in tests/integration/test_sweep.py."""

import os
import shlex
from pathlib import Path

import msgspec
import pytest

from perfkit.base.system_limits import count_cores
from perfkit.cli import main
from perfkit.cli.recording.run_options import parse_job
from perfkit.record.on_demand.mailbox import Mailbox
from perfkit.records.sweep import Sweep
from perfkit.tools.sweep.plan import arguments, combinations, plan
from perfkit.tools.sweep.point import Point
from tests.support.processes.left_runs import mark_rank_0
from tests.support.reports.sweep_builders import leave_run, wanted


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("PMI", "OMPI_", "SLURM_"))]:
        monkeypatch.delenv(name)


def points_in(folder: Path) -> list[Point]:
    """Return the points of `perfkit sweep gpt` without options but this folder."""
    asked = wanted(trace_dir=str(folder))
    return plan(asked, [parse_job(arguments(asked, varied)).effective for varied in combinations(asked)])


def states(folder: Path) -> list[str]:
    return [point.state for point in msgspec.json.decode((folder / "sweep.json").read_bytes(), type=Sweep).points]


def ranks_of(command: list[str]) -> str:
    return command[command.index("-n") + 1]


def commands(text: str) -> list[list[str]]:
    return [shlex.split(line) for line in text.splitlines()]


def dry_run(folder: Path, capsys: pytest.CaptureFixture[str], *options: str) -> list[list[str]]:
    given = ["--dry-run", "--launcher", "perfkit", "--trace-dir", str(folder)]
    assert main(["sweep", "gpt", *given, *options]) == 0
    return commands(capsys.readouterr().out)


def test_without_options_there_are_two_points_in_the_default_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["sweep", "gpt", "--dry-run", "--launcher", "perfkit"]) == 0
    found = commands(capsys.readouterr().out)
    assert [ranks_of(command) for command in found] == ["1", "2"]
    assert all("traces/sweep-gpt" in command for command in found)
    assert list(tmp_path.iterdir()) == []


def test_meshes_give_the_ranks_and_those_that_do_not_work_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = "sweep gpt --dry-run --launcher perfkit --vary dp=ddp,zero3 --trace-dir"
    given = [*options.split(), str(tmp_path)]
    assert main([*given, "--mesh", "dp=2", "--mesh", "tp=3", "--mesh", "dp=2,cp=2"]) == 0
    shown = capsys.readouterr()
    found = {(next(word for word in line if "--mesh" in word), ranks_of(line)) for line in commands(shown.out)}
    assert found == {("--mesh=dp=2", "2"), ("--mesh=dp=2,cp=2", "4")}
    assert len(shown.out.splitlines()) == 3
    assert shown.err.count("left out: ") == 2
    assert "left out: --mesh tp=3: --heads 4 is not divisible by tp=3" in shown.err
    assert "left out: --dp zero3 does not work with cp in --mesh" in shown.err
    assert main([*given, "--mesh", "tp=3"]) == 2
    assert "error: --mesh tp=3: --heads 4" in capsys.readouterr().err


def test_a_random_order_differs_and_is_reproducible(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--ranks", "1,2,4", "--repeat", "4")
    plain = dry_run(tmp_path, capsys, *options)
    first, same, other = (
        dry_run(tmp_path, capsys, *options, "--random-order", *seed) for seed in ((), (), ("--order-seed", "1"))
    )
    assert sorted(first) == sorted(other) == sorted(plain)
    assert first == same
    assert len({str(order) for order in (plain, first, other)}) == 3


def test_what_is_complete_is_not_run_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = dry_run(tmp_path, capsys)
    leave_run(tmp_path, points_in(tmp_path)[0])
    assert dry_run(tmp_path, capsys) == [two]
    assert len(dry_run(tmp_path, capsys, "--repeat", "2")) == 3
    # The value that is the default is the point that is there, though its name would now say it.
    varied = dry_run(tmp_path, capsys, "--vary", "compile=false,true")
    assert [("--compile" in command, ranks_of(command)) for command in varied] == [
        (False, "2"),
        (True, "1"),
        (True, "2"),
    ]
    assert one not in varied


def test_effects_that_look_like_scaling_give_warnings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cores = count_cores()
    given = ["sweep", "gpt", "--dry-run", "--launcher", "perfkit", "--trace-dir", str(tmp_path)]
    assert main([*given, "--ranks", f"1,{cores + 1}", "--", "--device", "cpu"]) == 0
    output = capsys.readouterr().err
    assert f"warning: {cores + 1} ranks share {cores} cores" in output
    assert ("add --threads 1 after --" in output) == (cores > 1)
    assert main([*given, "--ranks", "1", "--", "--device", "cpu", "--threads", "1"]) == 0
    assert capsys.readouterr().err == ""


def test_a_point_that_has_died_is_run_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (point,) = points_in(tmp_path)[:1]
    leave_run(tmp_path, point, "running")
    given = ["sweep", "gpt", "--emit", "pbs", "--ranks-per-node", "2", "--trace-dir", str(tmp_path)]
    for which, skipped in (("running", True), ("of another host", True), ("ended", False)):
        Mailbox(tmp_path / point.name).folder.mkdir(exist_ok=True)
        mark_rank_0(tmp_path / point.name, which)
        assert main(given) == 0
        assert (which, "is running, or was killed on another host" in capsys.readouterr().err) == (which, skipped)
    assert [path.name for path in (tmp_path / ".earlier").iterdir()] == [f"{point.name}.1"]


def test_job_scripts_contain_missing_points_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done, failed, running, absent = points_in(tmp_path) + [point.as_repeat(2) for point in points_in(tmp_path)]
    for point, state in ((done, "completed"), (failed, "failed"), (running, "running")):
        leave_run(tmp_path, point, state)
    given = ["sweep", "gpt", "--repeat", "2", "--emit", "pbs", "--ranks-per-node", "2", "--trace-dir", str(tmp_path)]
    assert main(given) == 0
    printed = capsys.readouterr()
    assert commands(printed.out) == [["qsub", str(tmp_path / "jobs" / "1node.sh")]]
    script = (tmp_path / "jobs" / "1node.sh").read_text()
    assert [point.name in script for point in (done, failed, running, absent)] == [False, True, False, True]
    # What runs, or may run, is nobody's to take away; what failed makes way.
    assert f"{tmp_path / running.name} is running, or was killed on another host or in its first step" in printed.err
    assert (tmp_path / running.name).exists()
    assert [path.name for path in (tmp_path / ".earlier").iterdir()] == [f"{failed.name}.1"]
    assert states(tmp_path) == ["completed", "planned", "planned", "planned"]


@pytest.mark.parametrize(
    ("options", "code", "why"),
    [
        (["--emit", "pbs", "--ranks-per-node", "2", "--dry-run"], 2, "--dry-run has no effect with --emit"),
        (["--emit", "pbs", "--ranks-per-node", "2", "--launcher", "torchrun"], 2, "--launcher has no effect with"),
        (["--emit", "pbs", "--ranks-per-node", "2", "--ranks", "3"], 2, "--ranks 3: not a multiple of 2"),
        (["--emit", "pbs", "--ranks-per-node", "2", "--setup", "no"], 2, "--setup no: no such file"),
        (["--steps", "3"], 2, "No such option: --steps"),
        (["--repeat", "0"], 2, "--repeat = 0"),
        (["--", "--stpes", "3"], 2, "No such option: --stpes"),
        (["--", "--inject=rank=1,phase=backward,delay=5ms"], 2, "--inject rank=1,phase=backward,delay=5ms: this run"),
        (["--source", "tape"], 2, "Invalid value for '--source': 'tape' is not one of"),
        (["--vary", "compile"], 2, "--vary compile: write it as OPTION=VALUE,VALUE"),
    ],
)
def test_invalid_options_leave_no_folder(
    options: list[str], code: int, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", "gpt", "--trace-dir", str(tmp_path / "s"), *options]) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"perfkit: error: {why}")
    assert not (tmp_path / "s").exists()


def test_a_sweep_inside_a_launcher_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = {"PMI_RANK": "0", "PMI_SIZE": "2", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2"}
    for name, value in place.items():
        monkeypatch.setenv(name, value)
    assert main(["sweep", "gpt", "--trace-dir", str(tmp_path / "s")]) == 2
    assert "perfkit sweep inside hydra, which has started several processes" in capsys.readouterr().err
    assert not (tmp_path / "s").exists()
