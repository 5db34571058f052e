import re
from typing import Any

import pytest

from perfkit.errors import UsageError
from perfkit.tools.sweep.config import EmitOptions, PointOptions, RunningOptions
from perfkit.tools.sweep.job_scripts import LAUNCHERS, PERFKIT, find_mpiexec
from perfkit.tools.sweep.plan import Axis

PBS: dict[str, Any] = {"emit": "pbs", "ranks_per_node": 4}


def test_options_are_parsed() -> None:
    points = PointOptions(ranks="4,1", scaling="strong,weak", source="memory,hdf5", vary=("compile=false,true",))
    assert points.world_sizes == (1, 4)
    assert points.scalings == ("strong", "weak")
    assert points.axes == (Axis("source", ("memory", "hdf5")), Axis("compile", ("false", "true")))
    assert RunningOptions(pause="1.5s").pause_s == 1.5
    assert RunningOptions(launcher_options="--bind-to none -x 'a b'").launcher_tokens == (
        "--bind-to",
        "none",
        "-x",
        "a b",
    )


@pytest.mark.parametrize(
    ("kind", "given", "why"),
    [
        (PointOptions, {"scaling": "weak,mid"}, "--scaling weak,mid: 'mid' is not one of strong, weak"),
        (PointOptions, {"vary": ("source=hdf5",)}, "--vary source: use --source"),
        (PointOptions, {"ranks": "x"}, "--ranks x"),
        (PointOptions, {"ranks": "2", "mesh": ("dp=2",)}, "--ranks: the sizes of each --mesh give its number of ranks"),
        (PointOptions, {"mesh": ("dp=2", "dp=2")}, "--mesh dp=2 is given twice"),
        (PointOptions, {"mesh": ("xp=2",)}, "--mesh xp=2: unknown dimension 'xp'"),
        (PointOptions, {"vary": ("mesh=dp=2",)}, "--vary mesh: use --mesh, once for each"),
        (RunningOptions, {"order_seed": 3}, "--order-seed has no effect without --random-order"),
        (RunningOptions, {"pause": "10"}, "--pause: '10' is not a duration"),
        (RunningOptions, {"launcher_options": "'"}, "--launcher-options '"),
        (EmitOptions, {"account": "x"}, "--account is for job scripts: add --emit"),
        (EmitOptions, {"ranks_per_node": 2}, "--ranks-per-node is for job scripts"),
        (EmitOptions, {"directive": ("-x",)}, "--directive is for job scripts"),
        (EmitOptions, {"emit": "pbs"}, "--emit needs the number of ranks per node: add --ranks-per-node or --site"),
        (EmitOptions, {"emit": "pbs", "site": "nowhere"}, "--site nowhere: unknown site; choose from polaris, aurora"),
        (EmitOptions, {"emit": "slurm", "site": "polaris"}, "--site polaris uses pbs: use --emit pbs"),
        (EmitOptions, {"emit": "pbs", "site": "polaris", "cores_per_rank": 2}, "--cores-per-rank: --site polaris"),
        (EmitOptions, {"emit": "pbs", "site": "polaris", "ranks_per_node": 5}, "nodes of polaris have at most 4"),
        (EmitOptions, {"emit": "hostfile", "ranks_per_node": 2}, "--emit hostfile needs hosts"),
        (EmitOptions, PBS | {"hostfile": "x"}, "--hostfile: pbs assigns the hosts"),
        (
            EmitOptions,
            {"emit": "hostfile", "ranks_per_node": 2, "hostfile": "x", "queue": "q"},
            "--queue is for schedulers only",
        ),
        (EmitOptions, PBS | {"walltime": "60"}, "--walltime 60: write it as hours:minutes:seconds"),
        (EmitOptions, PBS | {"account": "a b"}, "--account a b"),
        (EmitOptions, PBS | {"queue": "q\nrm x"}, "--queue q"),
        (EmitOptions, PBS | {"directive": ("-l x\nrm -rf y",)}, "--directive -l x"),
        (EmitOptions, PBS | {"directive": ("rm",)}, "--directive rm"),
    ],
)
def test_invalid_options_are_refused(kind: Any, given: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=re.escape(why)):
        kind(**given)


def test_each_launcher_gets_the_ranks_and_the_command() -> None:
    assert LAUNCHERS["perfkit"](2, (), ["run", "gpt"]) == [*PERFKIT, "run", "-n", "2", "gpt"]
    torchrun = LAUNCHERS["torchrun"](2, ("--start-method", "fork"), ["run", "gpt"])
    assert torchrun[1:5] == ["-m", "torch.distributed.run", "--nproc-per-node", "2"]
    assert torchrun[-6:] == ["--start-method", "fork", "-m", "perfkit", "run", "gpt"]
    with pytest.raises(UsageError, match="--launcher-options are for mpiexec and torchrun"):
        LAUNCHERS["perfkit"](2, ("-x",), [])


@pytest.mark.skipif(find_mpiexec() is None, reason="no mpiexec")
def test_mpiexec_of_this_python_comes_first() -> None:
    assert LAUNCHERS["mpiexec"](3, ("-l",), ["run"]) == [find_mpiexec(), "-n", "3", "-l", *PERFKIT, "run"]
