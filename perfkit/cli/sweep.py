"""`perfkit sweep WORKLOAD`: run a set of runs, or write the job scripts that do."""

import shlex
import sys
from collections.abc import Sequence
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from perfkit.cli.config_options import Layer, command, flag, options, resolve
from perfkit.cli.run_options import check_packages, parse_job
from perfkit.errors import RunError, UsageError
from perfkit.schema.sweep import SweepPoint
from perfkit.storage.run_folder import SWEEP_NAME
from perfkit.sweep.config import EmitOptions, PointOptions, RunningOptions
from perfkit.sweep.folder import SweepFolder
from perfkit.sweep.launchers import LAUNCHERS, default_launcher, refuse_inside_launcher
from perfkit.sweep.plan import SweepSpec, arguments, combinations, plan, shuffled
from perfkit.sweep.point import Point
from perfkit.util.system_limits import count_cores

if TYPE_CHECKING:
    from perfkit.capture.training.job import Job
    from perfkit.cli import Call

_HELP: Final = """Run a workload on several numbers of ranks, with several sources and options, and keep account of it.

Options after -- are those of `perfkit run WORKLOAD`, for every run. Each run has a folder of its own below that of the
sweep, for `perfkit analyze`. A point that fails is marked and the others go on; called again, the same command runs
what is missing.

\b
perfkit sweep gpt --ranks 1,2,4 --scaling strong,weak --repeat 3
perfkit sweep transformer --source memory,hdf5 --vary num_workers=0,2 -- --preset tiny
"""

_NAMED: Final = 10
"""Failed points that the last line names."""


def _argument(name: str, kind: Any, metavar: str, default: Any = Parameter.empty) -> Parameter:
    described = Annotated[kind, typer.Argument(metavar=metavar, hidden=True)]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=described)


def _start(_call: "Call", given: dict[str, Any]) -> None:
    workload, handed_on = given.pop("workload"), tuple(given.pop("run_options", ()))
    what, how, where = resolve((PointOptions, RunningOptions, EmitOptions), [Layer("", given)])
    assert isinstance(what, PointOptions)  # noqa: S101  # resolve keeps the order
    assert isinstance(how, RunningOptions)  # noqa: S101
    assert isinstance(where, EmitOptions)  # noqa: S101
    wanted = SweepSpec(
        workload=workload,
        ranks=what.world_sizes,
        scaling=what.scalings,
        axes=what.axes,
        repeats=what.repeat,
        options=handed_on,
        trace_dir=how.trace_dir or str(Path("traces", f"sweep-{workload}")),
    )
    folder = SweepFolder(Path(wanted.trace_dir))
    if where.emit is None:
        _run(folder, wanted, how)
    else:
        _emit(folder, wanted, how, where)


app = command(
    _start,
    [
        _argument("workload", str, "WORKLOAD"),
        _argument("run_options", list[str], "[-- OPTIONS]", None),
        *options(PointOptions, "Points", {}),
        *options(RunningOptions, "Running", {}),
        *options(EmitOptions, "Job scripts", {}),
    ],
    _HELP,
)


def _run(folder: SweepFolder, wanted: SweepSpec, how: RunningOptions) -> None:
    launcher = how.launcher or default_launcher()

    def launching(point: Point) -> list[str]:
        return LAUNCHERS[launcher](point.ranks, how.launcher_tokens, point.command)

    refuse_inside_launcher()
    jobs = _jobs(wanted)
    for job in jobs:
        check_packages(job)
    points = _points(wanted, how, jobs)
    launching(points[0])  # raises if the launcher is missing, before anything is written
    _warn_of_cores(wanted.ranks, any(map(_leaves_threads, jobs)))
    if how.dry_run:
        for point in _missing(folder, points):
            typer.echo(shlex.join(launching(point)))
        return
    from perfkit.cli.sweep_progress import progress
    from perfkit.sweep.runner import execute

    with folder.locked() as lock:
        missing = _missing(folder, points)
        _say_what_is_there(folder, len(points), len(points) - len(missing), missing)
        folder.record([folder.note(point) for point in points])
        with progress(len(missing)) as show:
            noted = execute(folder, missing, launching, show, lock=lock, pause_s=how.pause_s)
    _conclude(folder, len(points), [point for point in noted if point.state == "failed"])


def _emit(folder: SweepFolder, wanted: SweepSpec, how: RunningOptions, where: EmitOptions) -> None:
    from perfkit.sweep.job_scripts import check_jobs, write_scripts

    for name in ("launcher", "launcher_options", "dry_run"):
        if getattr(how, name):
            raise UsageError(f"{flag(name)} has no effect with --emit: leave one of them out")
    points = _points(wanted, how, _jobs(wanted))
    check_jobs(points, where)
    with folder.locked():
        running = [point for point in points if folder.state(point) == "running"]
        missing = [point for point in points if folder.state(point) in ("absent", "failed")]
        submits = write_scripts(folder.jobs, missing, where, how.pause_s)
        _say_what_is_there(folder, len(points), len(points) - len(missing) - len(running), missing)
        for point in missing:
            folder.set_aside(point)
        folder.record([folder.note(point) for point in points])
    for point in running:
        _say(f"{folder.find(point)} is running, or was killed: left out; move it away to have it run again")
    for submit in submits:
        typer.echo(shlex.join(submit))


def _jobs(wanted: SweepSpec) -> list["Job"]:
    """Return the job of each combination of options, checked for the smallest number of ranks."""
    jobs = [parse_job(arguments(wanted, varied)) for varied in combinations(wanted)]
    for job in jobs:
        job.run.check_world(wanted.ranks[0])
    return jobs


def _points(wanted: SweepSpec, how: RunningOptions, jobs: Sequence["Job"]) -> list[Point]:
    """Return the points in the order in which they run."""
    points = plan(wanted, [job.effective for job in jobs])
    return shuffled(points, how.order_seed or 0) if how.random_order else points


def _leaves_threads(job: "Job") -> bool:
    """Return whether a run may be on the CPU and divide the cores among its ranks. Does not import torch."""
    accelerator = any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/kfd").exists()
    return job.run.threads is None and (job.run.device == "cpu" or (job.run.device == "auto" and not accelerator))


def _missing(folder: SweepFolder, points: Sequence[Point]) -> list[Point]:
    """Return the points to run here, where nobody else runs any."""
    return [point for point in points if folder.state(point) != "completed"]


def _say_what_is_there(folder: SweepFolder, total: int, complete: int, missing: Sequence[Point]) -> None:
    _say(f"{folder.path}: {_count(total)}" + (f", {complete} complete already" if complete else ""))
    again = sum(folder.state(point) != "absent" for point in missing)
    if again:
        many = "s failed or were interrupted and run again; what is left of them"
        one = " failed or was interrupted and runs again; what is left of it"
        _say(f"{again} point{one if again == 1 else many} is in {folder.earlier}")


def _warn_of_cores(ranks: Sequence[int], threads_by_ranks: bool) -> None:
    """Say what on this machine would pass for scaling."""
    cores = count_cores()
    if ranks[-1] > cores:
        _say(f"warning: {ranks[-1]} ranks share {cores} cores: their times tell of the sharing, not of scaling")
    threads = [max(1, cores // count) for count in ranks]
    if threads_by_ranks and len(set(threads)) > 1:
        _say(
            f"warning: a rank has {threads[0]} threads with --ranks {ranks[0]} and {threads[-1]} with --ranks "
            f"{ranks[-1]}: for the same everywhere put --threads {threads[-1]} after --"
        )


def _conclude(folder: SweepFolder, total: int, failed: Sequence[SweepPoint]) -> None:
    if failed:
        more = [f"{len(failed) - _NAMED} more"] if len(failed) > _NAMED else []
        names = ", ".join([*(point.run for point in failed[:_NAMED]), *more])
        raise RunError(f"{len(failed)} of {_count(total)} failed: {names}; {folder.path / SWEEP_NAME} says why")
    typer.echo(f"{folder.path}: {_count(total)} complete; to compare them: perfkit analyze {folder.path}")


def _count(points: int) -> str:
    return "1 point" if points == 1 else f"{points} points"


def _say(text: str) -> None:
    sys.stderr.write(f"perfkit: {text}\n")
