"""Write job scripts instead of running: one per node count, which runs its points in sequence.

All points with the same number of nodes run in one job on the same nodes, so that they differ only in what is varied.
Text from the user is quoted (`shlex`), or checked to be a single line that only the scheduler reads.
"""

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from perfkit.base.formatting import install_extra
from perfkit.errors import LaunchEnvironmentError, UsageError
from perfkit.record.distributed.known_launchers import find_launcher
from perfkit.record.distributed.launcher_env import detect_rank
from perfkit.report.output_files import writing_bytes
from perfkit.tools.sweep.config import SITES, EmitOptions, Scheduler, Site
from perfkit.tools.sweep.point import Point

PERFKIT: Final = (sys.executable, "-m", "perfkit")
"""This perfkit: a launcher's PATH may have another one."""


def find_mpiexec() -> str | None:
    """Return the mpiexec in the folder of this Python (of the mpich wheel), else the one on PATH; None if none."""
    beside = Path(sys.executable).with_name("mpiexec")
    return str(beside) if beside.exists() else shutil.which("mpiexec")


def _mpiexec(ranks: int, own: Sequence[str], arguments: Sequence[str]) -> list[str]:
    mpiexec = find_mpiexec()
    if mpiexec is None:
        raise LaunchEnvironmentError(f"--launcher mpiexec: not found on PATH: {install_extra('mpi')}, or use torchrun")
    return [mpiexec, "-n", str(ranks), *own, *PERFKIT, *arguments]


def _torchrun(ranks: int, own: Sequence[str], arguments: Sequence[str]) -> list[str]:
    # A free port: two sweeps on one machine would collide on torchrun's default.
    rendezvous = ["--nproc-per-node", str(ranks), "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"]
    return [sys.executable, "-m", "torch.distributed.run", *rendezvous, *own, "-m", "perfkit", *arguments]


def _perfkit(ranks: int, own: Sequence[str], arguments: Sequence[str]) -> list[str]:
    if own:
        raise UsageError("--launcher-options are for mpiexec and torchrun")
    run, *rest = arguments
    return [*PERFKIT, run, "-n", str(ranks), *rest]  # first: arguments of a script are last


LAUNCHERS: Final[dict[str, Callable[[int, Sequence[str], Sequence[str]], list[str]]]] = {
    "mpiexec": _mpiexec,
    "torchrun": _torchrun,
    "perfkit": _perfkit,
}
"""Name to a function of the ranks, the launcher's own options and the arguments of perfkit; it returns the command."""


def default_launcher() -> str:
    """Return mpiexec if there is one, else perfkit, which needs nothing installed."""
    return "mpiexec" if find_mpiexec() else "perfkit"


def refuse_inside_launcher() -> None:
    """Refuse to start ranks from one of several processes of a launcher.

    Raises:
        UsageError: A launcher has started several of this process.
    """
    launcher = find_launcher(os.environ)
    if launcher is not None and detect_rank(os.environ).world_size > 1:
        raise UsageError(
            f"perfkit sweep inside {launcher.name}, which has started several processes: start it once; it starts the "
            "ranks of each point itself"
        )


_POINT: Final = """\
failed=0
point() {  # FOLDER COMMAND...: a failed point does not stop the others
    if [ -e "$1" ]; then
        echo "$1: exists already"
    elif ! "${@:2}" < /dev/null; then
        echo "$1: failed"
        failed=1
    fi
}
"""


class Job(NamedTuple):
    """The points that run on one number of nodes."""

    nodes: int
    points: list[Point]
    ranks_per_node: int
    """The largest number of ranks on a node."""

    @property
    def name(self) -> str:
        """The stem of its files: `1node`, `2nodes`."""
        return "1node" if self.nodes == 1 else f"{self.nodes}nodes"


class Place(NamedTuple):
    """Where the jobs run."""

    options: EmitOptions
    site: Site | None
    hosts: Path | None
    """File with the hosts of one job; None if the scheduler assigns them."""


class SchedulerKind(NamedTuple):
    """The differences between schedulers."""

    submit: tuple[str, ...]
    """Command that submits a script."""
    prefix: str
    request: Callable[[Job, EmitOptions, Site | None], Iterator[str]]
    """Yields the directives, without the prefix."""
    launch: Callable[[Point, int, Place], list[str]]
    """Returns the launcher command before `perfkit`, given the ranks per node."""


def make_jobs(points: Sequence[Point], ranks_per_node: int) -> list[Job]:
    """Return the jobs that run the points, smallest first.

    Raises:
        UsageError: A point needs several nodes and does not fill the last one.
    """
    by_nodes: dict[int, list[Point]] = {}
    for point in points:
        if point.ranks > ranks_per_node and point.ranks % ranks_per_node:
            raise UsageError(f"--ranks {point.ranks}: not a multiple of {ranks_per_node} ranks per node")
        by_nodes.setdefault(-(-point.ranks // ranks_per_node), []).append(point)
    return [
        Job(nodes, own, min(ranks_per_node, max(point.ranks for point in own)))
        for nodes, own in sorted(by_nodes.items())
    ]


def check_jobs(points: Sequence[Point], options: EmitOptions) -> None:
    """Check that scripts can be written.

    Raises:
        UsageError: The ranks do not fill the nodes, a file does not exist, or there are too few hosts.
    """
    _hosts(options, make_jobs(points, _ranks_per_node(options)))
    _existing(options.setup, "--setup")


def write_scripts(folder: Path, points: Sequence[Point], options: EmitOptions, pause_s: float) -> list[list[str]]:
    """Write the scripts that run the points; return the commands that submit or start them.

    Raises:
        UsageError: As in `check_jobs`.
        StoreError: A script cannot be written.
    """
    assert options.emit is not None  # noqa: S101  # the caller has checked it
    kind, site = KINDS[options.emit], None if options.site is None else SITES[options.site]
    jobs = make_jobs(points, _ranks_per_node(options))
    hosts = _hosts(options, jobs)
    setup = _existing(options.setup, "--setup")
    submits = []
    for job in jobs:
        place = Place(options, site, folder.absolute() / f"{job.name}.hosts" if hosts else None)
        if place.hosts is not None:
            _write(place.hosts, "".join(f"{host}\n" for host in hosts[: job.nodes]))
        script = folder / f"{job.name}.sh"
        _write(script, _script(job, kind, place, setup, pause_s), executable=True)
        submits.append([*kind.submit, str(script)])
    return submits


def _script(job: Job, kind: SchedulerKind, place: Place, setup: Path | None, pause_s: float) -> str:
    header = [f"{kind.prefix} {line}" for line in kind.request(job, place.options, place.site)]
    before = [f"cd {shlex.quote(os.getcwd())} || exit 1"]
    if setup is not None:
        before.append(f". {shlex.quote(str(setup))} || exit 1")
    if place.site is not None:
        before += [f"export {name}={shlex.quote(value)}" for name, value in place.site.environment]
    pause = f"sleep {pause_s:g}\n" if pause_s else ""
    lines = [shlex.join(["point", *_command(point, job, kind, place)]) + "\n" for point in job.points]
    return "\n".join(["#!/bin/bash -l", *header, "", *before, "", _POINT, pause.join(lines) + "exit $failed\n"])


def _command(point: Point, job: Job, kind: SchedulerKind, place: Place) -> list[str]:
    """Return the run folder of a point, and the command that creates it."""
    folder = Path(point.trace_dir, point.name)
    return [str(folder), *kind.launch(point, -(-point.ranks // job.nodes), place), *PERFKIT, *point.command]


def _pbs(job: Job, options: EmitOptions, site: Site | None) -> Iterator[str]:
    yield f"-N sweep-{job.nodes}n"
    yield "-j oe"
    if site is None:
        cores = job.ranks_per_node * (options.cores_per_rank or 1)
        yield f"-l select={job.nodes}:ncpus={cores}:mpiprocs={job.ranks_per_node}"
    else:
        yield ":".join(filter(None, [f"-l select={job.nodes}", site.chunk]))
        given = {text.partition("=")[0] for text in options.directive}
        yield from (line for line in site.directives if line.partition("=")[0] not in given)
    if options.walltime is not None:
        yield f"-l walltime={options.walltime}"
    if options.account is not None:
        yield f"-A {options.account}"
    if options.queue is not None:
        yield f"-q {options.queue}"
    yield from options.directive


def _pals(point: Point, per_node: int, place: Place) -> list[str]:
    launch = ["mpiexec", "-n", str(point.ranks), "-ppn", str(per_node)]
    if place.site is not None:
        bound = ":".join(place.site.cores[:per_node])
        return [*launch, "--depth", str(place.site.depth), "--cpu-bind", f"list:{bound}"]
    if place.options.cores_per_rank is not None:
        return [*launch, "--depth", str(place.options.cores_per_rank), "--cpu-bind", "depth"]
    return launch


def _slurm(job: Job, options: EmitOptions, site: Site | None) -> Iterator[str]:  # noqa: ARG001  # no Slurm site yet
    yield f"--job-name=sweep-{job.nodes}n"
    yield f"--nodes={job.nodes}"
    yield f"--ntasks-per-node={job.ranks_per_node}"
    if options.cores_per_rank is not None:
        yield f"--cpus-per-task={options.cores_per_rank}"
    yield "--exclusive"
    if options.walltime is not None:
        yield f"--time={options.walltime}"
    if options.account is not None:
        yield f"--account={options.account}"
    if options.queue is not None:
        yield f"--partition={options.queue}"
    yield from options.directive


def _srun(point: Point, per_node: int, place: Place) -> list[str]:
    nodes = point.ranks // per_node
    launch = ["srun", f"--nodes={nodes}", f"--ntasks={point.ranks}", f"--ntasks-per-node={per_node}"]
    if place.options.cores_per_rank is not None:
        # Since Slurm 22.05 srun does not inherit it from sbatch.
        launch += [f"--cpus-per-task={place.options.cores_per_rank}", "--cpu-bind=cores"]
    return launch


def _no_request(_job: Job, _options: EmitOptions, _site: Site | None) -> Iterator[str]:
    yield from ()


def _hydra(point: Point, per_node: int, place: Place) -> list[str]:
    launch = [find_mpiexec() or "mpiexec", "-f", str(place.hosts), "-n", str(point.ranks), "-ppn", str(per_node)]
    bound = place.options.cores_per_rank
    return launch if bound is None else [*launch, "-bind-to", f"core:{bound}"]


KINDS: Final[dict[Scheduler, SchedulerKind]] = {
    "pbs": SchedulerKind(("qsub",), "#PBS", _pbs, _pals),
    "slurm": SchedulerKind(("sbatch",), "#SBATCH", _slurm, _srun),
    "hostfile": SchedulerKind(("bash",), "#", _no_request, _hydra),
}


def _ranks_per_node(options: EmitOptions) -> int:
    site = None if options.site is None else len(SITES[options.site].cores)
    ranks = options.ranks_per_node or site
    assert ranks is not None  # noqa: S101  # `EmitOptions` has checked it
    return ranks


def _hosts(options: EmitOptions, jobs: Sequence[Job]) -> list[str]:
    """Return the hosts of `--hostfile`."""
    path = _existing(options.hostfile, "--hostfile")
    if path is None:
        return []
    lines = (line.partition("#")[0].strip() for line in path.read_text(encoding="utf-8", errors="replace").splitlines())
    hosts = [line for line in lines if line]
    most = max((job.nodes for job in jobs), default=0)
    if len(hosts) < most:
        raise UsageError(f"--hostfile {path}: {len(hosts)} hosts, but the largest point needs {most}")
    return hosts


def _existing(text: str | None, option: str) -> Path | None:
    if text is None:
        return None
    path = Path(text).absolute()
    if not path.is_file():
        raise UsageError(f"{option} {text}: no such file")
    return path


def _write(path: Path, text: str, *, executable: bool = False) -> None:
    with writing_bytes(path, mode=0o777 if executable else 0o666) as stream:
        stream.write(text.encode())
