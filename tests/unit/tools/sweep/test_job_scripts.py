import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from perfkit.errors import UsageError
from perfkit.tools.sweep.config import SITES, EmitOptions
from perfkit.tools.sweep.job_scripts import PERFKIT, make_jobs, write_scripts
from perfkit.tools.sweep.point import Point
from tests.support.processes.launching import LIMIT_S
from tests.support.reports.sweep_builders import points_of, wanted

NASTY = 'it\'s $(touch broken) `touch broken`; touch broken & "x" \\ *\nnext'


def emit(folder: Path, points: list[Point], pause_s: float = 0.0, **options: Any) -> dict[str, str]:
    """Return the scripts that are written, by name; every one is checked by bash."""
    submits = write_scripts(folder, points, EmitOptions(**options), pause_s)
    texts = {}
    for submit in submits:
        script = Path(submit[-1])
        subprocess.run(["bash", "-n", str(script)], check=True)
        assert os.access(script, os.X_OK)
        texts[script.name] = script.read_text()
    return texts


def launches(script: str) -> list[list[str]]:
    """Return the commands of a script's points, without perfkit's own part."""
    commands = [shlex.split(line)[2:] for line in script.splitlines() if line.startswith("point ")]
    return [command[: command.index(PERFKIT[0])] for command in commands]


def requests(script: str, prefix: str) -> list[str]:
    return [line.removeprefix(prefix + " ") for line in script.splitlines() if line.startswith(prefix + " ")]


def test_polaris_binds_each_rank_next_to_its_gpu(tmp_path: Path) -> None:
    points = points_of(wanted(ranks=(1, 2, 4, 8)))
    scripts = emit(tmp_path, points, emit="pbs", site="polaris", account="proj", queue="debug", walltime="1:00:00")
    assert list(scripts) == ["1node.sh", "2nodes.sh"]
    # GPU 3 is beside cores 0-7 and GPU 0 beside 24-31; local rank i has GPU i.
    bind = ["--depth", "8", "--cpu-bind"]
    assert launches(scripts["1node.sh"]) == [
        ["mpiexec", "-n", "1", "-ppn", "1", *bind, "list:24-31"],
        ["mpiexec", "-n", "2", "-ppn", "2", *bind, "list:24-31:16-23"],
        ["mpiexec", "-n", "4", "-ppn", "4", *bind, "list:24-31:16-23:8-15:0-7"],
    ]
    assert launches(scripts["2nodes.sh"]) == [["mpiexec", "-n", "8", "-ppn", "4", *bind, "list:24-31:16-23:8-15:0-7"]]
    assert requests(scripts["2nodes.sh"], "#PBS") == [
        "-N sweep-2n",
        "-j oe",
        "-l select=2:system=polaris",
        "-l place=scatter",
        "-l filesystems=home:eagle",
        "-l walltime=1:00:00",
        "-A proj",
        "-q debug",
    ]


def test_aurora_has_one_rank_per_tile_and_leaves_the_system_its_cores(tmp_path: Path) -> None:
    scripts = emit(tmp_path, points_of(wanted(ranks=(12, 24))), emit="pbs", site="aurora")
    cores = "1-8:9-16:17-24:25-32:33-40:41-48:53-60:61-68:69-76:77-84:85-92:93-100"
    assert launches(scripts["2nodes.sh"]) == [
        ["mpiexec", "-n", "24", "-ppn", "12", "--depth", "8", "--cpu-bind", f"list:{cores}"]
    ]
    assert "export ZE_FLAT_DEVICE_HIERARCHY=FLAT\n" in scripts["1node.sh"]


@pytest.mark.parametrize("name", SITES)
def test_the_cores_of_a_site_belong_to_one_rank_each(name: str) -> None:
    spans = [tuple(map(int, text.split("-"))) for text in SITES[name].cores]
    cores = [core for first, last in spans for core in range(first, last + 1)]
    assert len(cores) == len(set(cores)) == SITES[name].depth * len(spans)


def test_a_directive_replaces_that_of_the_site(tmp_path: Path) -> None:
    (script,) = emit(
        tmp_path, points_of(wanted()), emit="pbs", site="polaris", directive=("-l filesystems=home", "-m n")
    ).values()
    assert [line for line in requests(script, "#PBS") if "filesystems" in line] == ["-l filesystems=home"]
    assert requests(script, "#PBS")[-1] == "-m n"


def test_pbs_elsewhere(tmp_path: Path) -> None:
    (script,) = emit(tmp_path, points_of(wanted()), emit="pbs", ranks_per_node=4, cores_per_rank=6).values()
    assert requests(script, "#PBS")[2:] == ["-l select=1:ncpus=12:mpiprocs=2"]
    assert launches(script)[1] == ["mpiexec", "-n", "2", "-ppn", "2", "--depth", "6", "--cpu-bind", "depth"]


def test_slurm(tmp_path: Path) -> None:
    points = points_of(wanted(ranks=(2, 4)))
    options: dict[str, Any] = {
        "emit": "slurm",
        "ranks_per_node": 2,
        "queue": "gpu",
        "account": "p",
        "walltime": "9:59:00",
    }
    script = emit(tmp_path, points, **options, cores_per_rank=8, directive=("--gpus-per-node=2",))["2nodes.sh"]
    assert requests(script, "#SBATCH") == [
        "--job-name=sweep-2n",
        "--nodes=2",
        "--ntasks-per-node=2",
        "--cpus-per-task=8",
        "--exclusive",
        "--time=9:59:00",
        "--account=p",
        "--partition=gpu",
        "--gpus-per-node=2",
    ]
    srun = ["srun", "--nodes=2", "--ntasks=4", "--ntasks-per-node=2", "--cpus-per-task=8", "--cpu-bind=cores"]
    assert launches(script) == [srun]


def test_each_job_gets_as_many_hosts_as_nodes(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("# ours\nalpha\n\nbeta # the other\ngamma\n")
    options: dict[str, Any] = {"emit": "hostfile", "ranks_per_node": 2, "hostfile": str(hosts)}
    script = emit(tmp_path / "jobs", points_of(wanted(ranks=(2, 4))), **options)["2nodes.sh"]
    assert launches(script)[0][1:] == ["-f", str(tmp_path / "jobs" / "2nodes.hosts"), "-n", "4", "-ppn", "2"]
    assert (tmp_path / "jobs" / "2nodes.hosts").read_text() == "alpha\nbeta\n"
    with pytest.raises(UsageError, match="3 hosts, but the largest point needs 4"):
        emit(tmp_path / "jobs", points_of(wanted(ranks=(8,))), **options)


def test_ranks_fill_their_nodes() -> None:
    jobs = make_jobs(points_of(wanted(ranks=(1, 3, 4, 8))), 4)
    assert [(job.nodes, [point.ranks for point in job.points], job.ranks_per_node) for job in jobs] == [
        (1, [1, 3, 4], 4),
        (2, [8], 4),
    ]
    with pytest.raises(UsageError, match=re.escape("--ranks 6: not a multiple of 4 ranks per node")):
        make_jobs(points_of(wanted(ranks=(6,))), 4)


@pytest.mark.parametrize("option", ["setup", "hostfile"])
def test_a_missing_file_is_refused_before_anything_is_written(option: str, tmp_path: Path) -> None:
    given: dict[str, Any] = {"emit": "hostfile", "ranks_per_node": 2, "hostfile": __file__, option: "no/such"}
    with pytest.raises(UsageError, match=f"--{option} no/such: no such file"):
        emit(tmp_path / "jobs", points_of(wanted()), **given)
    assert not (tmp_path / "jobs").exists()


def script_of_nasty_points(tmp_path: Path) -> tuple[Path, Path, list[Point]]:
    """Return a script and the file that its launcher, which is none, writes the arguments of each point to."""
    folder = tmp_path / NASTY.replace("/", "")
    folder.mkdir()
    (folder / "set up.sh").write_text("export SET_UP=yes\n")
    points = points_of(wanted(options=("--text", NASTY), trace_dir=str(folder)))
    options = EmitOptions(emit="pbs", ranks_per_node=2, setup=str(folder / "set up.sh"))
    ((_, script),) = write_scripts(folder / "jobs", points, options, 0.01)
    seen = tmp_path / "seen"
    mpiexec = tmp_path / "bin" / "mpiexec"
    mpiexec.parent.mkdir()
    code = f'cat\nprintf "%s\\0" "$SET_UP" "$@" >> {seen}\ncase "$2" in 1) exit 3;; esac\n'
    mpiexec.write_text(f"#!/bin/bash\n{code}")
    mpiexec.chmod(0o755)
    return Path(script), seen, points


def test_a_script_passes_every_argument_unchanged(tmp_path: Path) -> None:
    script, seen, points = script_of_nasty_points(tmp_path)
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    done = subprocess.run(
        # As PBS does: the script comes by stdin, which no point may read from.
        ["bash"],
        input=script.read_text(),
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    arguments = seen.read_text().split("\0")[:-1]
    expected = [["yes", "-n", str(point.ranks), "-ppn", str(point.ranks), *PERFKIT, *point.command] for point in points]
    assert arguments == [token for command in expected for token in command]
    assert not list(tmp_path.rglob("broken")) + list(Path.cwd().glob("broken"))
    # The first point failed, the second ran all the same.
    assert done.returncode == 1
    assert f"{points[0].name}: failed" in done.stdout


def test_a_script_that_is_submitted_twice_runs_no_point_twice(tmp_path: Path) -> None:
    script, seen, points = script_of_nasty_points(tmp_path)
    for point in points:
        Path(point.trace_dir, point.name).mkdir()
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", str(script)],
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0
    assert done.stdout.count("exists already") == 2
    assert not seen.exists()


def test_a_pause_separates_points(tmp_path: Path) -> None:
    (script,) = emit(tmp_path, points_of(wanted(ranks=(1, 2, 4))), pause_s=10.0, emit="pbs", ranks_per_node=4).values()
    kinds = [line.split()[0] for line in script.splitlines() if line.startswith(("point ", "sleep "))]
    assert kinds == ["point", "sleep", "point", "sleep", "point"]
    assert "sleep 10\n" in script
