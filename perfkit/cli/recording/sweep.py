"""`perfkit sweep WORKLOAD|SCRIPT`: run a set of runs, or write job scripts for it."""

import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer
from msgspec.json import encode

from perfkit.base.formatting import plural
from perfkit.base.standard_streams import write_stderr
from perfkit.base.system_limits import count_cores
from perfkit.cli.config_options import Layer, command, flag, make_record, merge_layers, options, parameter
from perfkit.cli.output import JSON_HELP, report_written
from perfkit.cli.recording.run_options import check_packages, parse_job
from perfkit.cli.recording.script_options import is_script, parse_configuration
from perfkit.cli.typer_app import among, print_line
from perfkit.errors import RunError, UsageError
from perfkit.records.sweep import SweepAnswer, SweepPoint
from perfkit.storage.run_folder import SWEEP_NAME
from perfkit.tools.sweep.config import EmitOptions, PointOptions, RunningOptions
from perfkit.tools.sweep.folder import SweepFolder
from perfkit.tools.sweep.job_scripts import LAUNCHERS, default_launcher, refuse_inside_launcher
from perfkit.tools.sweep.plan import ScriptTarget, SweepSpec, arguments, combinations, plan, shuffled, world_sizes
from perfkit.tools.sweep.point import Point
from perfkit_workloads import WORKLOADS

if TYPE_CHECKING:
    from perfkit.cli import Call

_HELP: Final = """Run a workload, or your own script, at several world sizes.

What follows -- are options of `perfkit run WORKLOAD`, or the arguments of the script, in which {source}, {ranks} and
names of --vary are filled in. Each run has its own folder in the folder of the sweep, for `perfkit analyze`. A failed
point is recorded and the others continue; the same command, run again, completes what is missing.

\b
perfkit sweep train.py --ranks 1,2,4 --batch-arg --batch -- --batch 32
perfkit sweep gpt --ranks 1,2,4 --scaling strong,weak --repeat 3
perfkit sweep gpt --mesh dp=8 --mesh dp=4,tp=2 --vary dp=ddp,zero3
"""

_NAMED: Final = 10
"""Maximum number of failed points in the last line."""


def _argument(
    name: str, kind: Any, metavar: str, default: Any = Parameter.empty, values: Sequence[str] = ()
) -> Parameter:
    described = Annotated[kind, typer.Argument(metavar=metavar, hidden=True, autocompletion=among(values))]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=described)


def _start(_call: "Call", given: dict[str, Any]) -> None:
    target, after = given.pop("workload", None), tuple(given.pop("arguments", ()))
    module = given.pop("module", None)
    json = given.pop("json", False)
    checked = merge_layers((PointOptions, RunningOptions, EmitOptions), [Layer("", given)])
    points_options, running_options = make_record(PointOptions, checked), make_record(RunningOptions, checked)
    emit_options = make_record(EmitOptions, checked)
    tokens: tuple[str, ...]
    if module is not None:
        tokens, after = ("-m", module), (*([] if target is None else [target]), *after)
    elif target is None:
        raise UsageError("the workload or script is missing: perfkit sweep gpt, or perfkit sweep train.py")
    else:
        tokens = (target,)
    is_own = module is not None or (target not in WORKLOADS and is_script(target))
    spec = _spec(tokens, after, points_options, running_options, is_own=is_own)
    folder = SweepFolder(Path(spec.trace_dir))
    if json and (emit_options.emit is not None or running_options.dry_run):
        raise UsageError("--json prints what the runs measured: it has no effect with --dry-run or --emit")
    if emit_options.emit is None:
        _run(folder, spec, running_options, json=json)
    else:
        _emit(folder, spec, running_options, emit_options)


app = command(
    _start,
    [
        _argument("workload", str, "WORKLOAD|SCRIPT.py", None, values=WORKLOADS.names()),
        _argument("arguments", list[str], "[-- ARGUMENTS]", None),
        parameter(
            "module", str, typer.Option("-m", "--module", metavar="MODULE", help="Run a module, as python -m does.")
        ),
        parameter("json", bool, typer.Option("--json", help=JSON_HELP)),
        *options(PointOptions, "Points", {}),
        *options(RunningOptions, "Running", {}),
        *options(EmitOptions, "Job scripts", {}),
    ],
    _HELP,
)


def _spec(
    tokens: tuple[str, ...], after: tuple[str, ...], points: PointOptions, running: RunningOptions, *, is_own: bool
) -> SweepSpec:
    """Return the sweep of a workload, or of a script or module of the user's own."""
    script = ScriptTarget(tokens=tokens, arguments=after, batch_arg=points.batch_arg) if is_own else None
    if script is None and (points.batch_arg is not None or points.run_options is not None):
        name = "--run-options" if points.batch_arg is None else "--batch-arg"
        raise UsageError(f"{name} is for scripts: a workload has its own options, after --")
    named = parse_configuration([*tokens, *points.run_tokens])["workload"] if script else tokens[0]
    return SweepSpec(
        workload=named,
        ranks=points.world_sizes,
        scaling=points.scalings,
        axes=points.axes if script is None else points.of_script(),
        repeats=points.repeat,
        options=after if script is None else points.run_tokens,
        trace_dir=running.trace_dir or str(Path("traces", f"sweep-{named}")),
        script=script,
    )


def _run(folder: SweepFolder, spec: SweepSpec, running_options: RunningOptions, *, json: bool) -> None:
    # A script finds its ranks as under torchrun: those that `perfkit run -n` starts do.
    launcher = running_options.launcher or (default_launcher() if spec.script is None else "perfkit")

    def launching(point: Point) -> list[str]:
        return LAUNCHERS[launcher](point.ranks, running_options.launcher_tokens, point.command)

    refuse_inside_launcher()
    jobs = _jobs(spec)
    for job in jobs:
        if job is not None:
            job.check()
    points = _points(spec, running_options, jobs)
    launching(points[0])  # raises if the launcher is missing, before anything is written
    _warn_of_cores(sorted({point.ranks for point in points}), _threads(jobs, spec))
    if running_options.dry_run:
        for point in _missing(folder, points):
            typer.echo(shlex.join(launching(point)))
        return
    from perfkit.cli.progress import Lines
    from perfkit.tools.sweep.runner import execute

    with folder.locked() as lock:
        missing = _missing(folder, points)
        _report_existing(folder, len(points), len(points) - len(missing), missing)
        folder.write_records([folder.record_of(point) for point in points])
        show = Lines(len(missing), folder.path)
        outcomes = execute(folder, missing, launching, show, lock=lock, pause_s=running_options.pause_s)
    from perfkit.tools.sweep.answer import answer

    found = answer(folder, points, spec.axes)
    if json:
        print_line(encode(found).decode())
    else:
        _print_answer(found)
    sys.stdout.flush()
    _raise_if_failed(folder, len(points), [point for point in outcomes if point.state == "failed"])


def _emit(folder: SweepFolder, spec: SweepSpec, running_options: RunningOptions, emit_options: EmitOptions) -> None:
    from perfkit.tools.sweep.job_scripts import check_jobs, write_scripts

    for name in ("launcher", "launcher_options", "dry_run"):
        if getattr(running_options, name):
            raise UsageError(f"{flag(name)} has no effect with --emit: remove one of them")
    points = _points(spec, running_options, _jobs(spec))
    check_jobs(points, emit_options)
    with folder.locked():
        running = [point for point in points if folder.state(point) == "running"]
        missing = [point for point in points if folder.state(point) in ("absent", "failed")]
        submits = write_scripts(folder.jobs, missing, emit_options, running_options.pause_s)
        if submits:
            report_written(folder.jobs, plural(len(submits), "job script"))
        _report_existing(folder, len(points), len(points) - len(missing) - len(running), missing)
        for point in missing:
            folder.move_aside(point)
        folder.write_records([folder.record_of(point) for point in points])
    for point in running:
        _print_status(
            f"{folder.find(point)} is running, or was killed on another host or in its first step: skipped; move it "
            "away to run it again"
        )
    for submit in submits:
        typer.echo(shlex.join(submit))


class _Job(NamedTuple):
    """What `perfkit run` would make of a combination of options."""

    effective: Mapping[str, Any]
    check: Callable[[], None]
    """Raises if a package is missing."""
    leaves_threads: bool
    """Whether the threads of a rank depend on the number of ranks."""


def _jobs(spec: SweepSpec) -> list[_Job | None]:
    """Return the job of each combination of options, checked for each number of ranks; None for one to leave out.

    Raises:
        UsageError: A job is invalid; of those with a mesh, all are.
    """
    found = [_job_or_error(spec, varied) for varied in combinations(spec)]
    errors = [one for one in found if isinstance(one, UsageError)]
    if len(errors) == len(found) or (errors and not any(axis.option == "mesh" for axis in spec.axes)):
        raise errors[0]
    for message in dict.fromkeys(map(str, errors)):
        _print_status(f"left out: {message}")
    return [None if isinstance(one, UsageError) else one for one in found]


def _job_or_error(spec: SweepSpec, varied: Mapping[str, str]) -> _Job | UsageError:
    if spec.script is not None:
        effective = parse_configuration(arguments(spec, varied))
        return _Job(effective, lambda: None, "OMP_NUM_THREADS" not in os.environ and not _has_accelerator())
    try:
        job = parse_job(arguments(spec, varied))
        for ranks in world_sizes(spec, varied):
            job.check_world(ranks)
    except UsageError as error:
        return error
    by_ranks = job.run.threads is None and (
        job.run.device == "cpu" or (job.run.device == "auto" and not _has_accelerator())
    )
    return _Job(job.effective, partial(check_packages, job), by_ranks)


def _points(spec: SweepSpec, running_options: RunningOptions, jobs: Sequence[_Job | None]) -> list[Point]:
    """Return the points in the order in which they run."""
    points = plan(spec, [None if job is None else job.effective for job in jobs])
    return shuffled(points, running_options.order_seed or 0) if running_options.random_order else points


def _has_accelerator() -> bool:
    """Return whether this machine has one. Does not import torch."""
    return any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/kfd").exists()


def _threads(jobs: Sequence[_Job | None], spec: SweepSpec) -> str | None:
    """Return how to fix the threads of a rank where they depend on the number of ranks: the begin of the remedy."""
    if not any(job is not None and job.leaves_threads for job in jobs):
        return None
    return "add --threads {} after --" if spec.script is None else "set OMP_NUM_THREADS={}"


def _missing(folder: SweepFolder, points: Sequence[Point]) -> list[Point]:
    """Return the points that are not complete. No other process runs one: the folder is locked."""
    return [point for point in points if folder.state(point) != "completed"]


def _report_existing(folder: SweepFolder, total: int, complete: int, missing: Sequence[Point]) -> None:
    _print_status(f"{folder.path}: {plural(total, 'point')}" + (f", {complete} complete already" if complete else ""))
    again = sum(folder.state(point) != "absent" for point in missing)
    if again:
        many = "s failed or were interrupted and run again; their old folders are in"
        one = " failed or was interrupted and runs again; its old folder is in"
        _print_status(f"{again} point{one if again == 1 else many} {folder.earlier}")


def _warn_of_cores(ranks: Sequence[int], remedy: str | None) -> None:
    """Warn about effects of this machine that would look like scaling."""
    cores = count_cores()
    if ranks[-1] > cores:
        _print_status(f"warning: {ranks[-1]} ranks share {cores} cores: their times show the sharing, not scaling")
    threads = [max(1, cores // count) for count in ranks]
    if remedy is not None and len(set(threads)) > 1:
        _print_status(
            f"warning: each rank has {threads[0]} threads with --ranks {ranks[0]} and {threads[-1]} with --ranks "
            f"{ranks[-1]}: for equal numbers {remedy.format(threads[-1])}"
        )


def _print_answer(found: SweepAnswer) -> None:
    """Print which points are complete, what they measured, and what to look at next."""
    from perfkit.tools.sweep.answer import table

    complete = sum(point.state == "completed" for point in found.points)
    total = len(found.points)
    of = plural(total, "point") if complete == total else f"{complete} of {plural(total, 'point')}"
    lines = table(found.configurations, _NAMED)
    next_ = [f"{'Next:' if not number else '     '} {command}" for number, command in enumerate(found.commands)]
    parts = [[f"{found.folder}: {of} complete"], lines, found.sentences, next_ if complete else []]
    print_line("\n\n".join("\n".join(part) for part in parts if part))


def _raise_if_failed(folder: SweepFolder, total: int, failed: Sequence[SweepPoint]) -> None:
    if failed:
        more = [f"{len(failed) - _NAMED} more"] if len(failed) > _NAMED else []
        names = ", ".join([*(point.run for point in failed[:_NAMED]), *more])
        raise RunError(f"{len(failed)} of {plural(total, 'point')} failed: {names}; see {folder.path / SWEEP_NAME}")


def _print_status(text: str) -> None:
    write_stderr(f"perfkit: {text}")
