"""From paths to a report: the only place where reading files meets analysis."""

from collections.abc import Iterator, Sequence, Set
from concurrent.futures import Executor
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from perfkit._version import __version__
from perfkit.analysis.per_rank.summary import check_step_marker
from perfkit.analysis.per_run.manifest_checks import missing_sweep_points
from perfkit.analysis.per_run.report_builder import NamedSummary, build_run_report
from perfkit.errors import StoreError, TraceError, UsageError
from perfkit.executors import ExecutorOptions, check, open_executor
from perfkit.insights.ranking import find_insights
from perfkit.pipeline.scheduler import Progress, TraceResult, TraceScheduler, raise_if_lost
from perfkit.pipeline.summarize import Options, task_for
from perfkit.scaling.summary import scaling
from perfkit.schema.common import Finding
from perfkit.schema.manifest import RunManifest
from perfkit.schema.report import Report
from perfkit.schema.run import RunReport
from perfkit.storage import cache as results
from perfkit.storage.discovery import RunLocation, find_runs
from perfkit.storage.run_folder import read_manifest, read_sweep

_UNREADABLE: Final = ("worker_lost", "unreadable_trace", "unreadable_manifest", "not_a_trace")
"""Findings that say why there is nothing to analyse, the most telling first."""
_TELL_NOTHING: Final = {"not_a_trace", "not_a_regular_file", "no_traces"}
"""Findings of a folder that is no run."""


def analyze(
    *paths: str | Path,
    rank: int | None = None,
    step_marker: str | None = None,
    max_bytes: int | None = None,
    executor: str | Executor | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
    strict: bool = False,
    cache: bool = True,
    progress: Progress | None = None,
    by: Sequence[str] = (),
    forecast: Sequence[int] = (),
) -> Report:
    """Analyse traces, run folders, or folders of them.

    Args:
        paths: trace files (`.json`, `.json.gz`, `.json.zst`), run folders, or folders of run folders or foreign traces.
        rank: the rank of a trace that says it neither in its header nor in its name.
        step_marker: a regular expression for the names of the annotations that mark steps, instead of `ProfilerStep#N`.
        max_bytes: how much text a trace may hold, decompressed; one with more is refused. 64 GiB if None.
        executor: where the traces are read, one task a trace: a name in `perfkit.executors.EXECUTORS`, or an open
            `concurrent.futures.Executor`; if None, `processes` where that is faster. The report is the same from all.
        workers: of `processes` or a local `dask` cluster; if None, as many as cores and memory allow.
        scheduler: address of a dask scheduler.
        strict: whether a trace that cannot be analysed is an error, and not only a finding.
        cache: whether to use results of earlier analyses of the same traces, and to keep those of this one.
        progress: called with the bytes of traces that are done, and of all.
        by: options of runs, such as `source` or `compile`, to compare runs by that differ in nothing else.
        forecast: world sizes to forecast the throughput of, from runs of at least four.

    Returns:
        One report a run; see `perfkit.schema.report.Report`. `report.tables()` gives its tables as pandas DataFrames.

    Raises:
        TraceError: a path holds no trace, or none of the traces can be read; if `strict`, any of them.
        UsageError: `step_marker` is no regular expression, options do not fit together, or no runs fit `by` or
            `forecast`.
        LaunchEnvironmentError: the executor cannot be had.
        SystemExit: with `mpi`, on the ranks but 0, when they have served.
    """
    if not paths:
        raise UsageError("nothing to analyse: give a trace, a run folder, or a folder of them")
    check_step_marker(step_marker)
    choice = ExecutorOptions(workers, scheduler)
    check(executor, choice)
    with ExitStack() as stack:
        if executor == "mpi":
            # Before anything that can fail on one rank alone: the others wait in there.
            executor = stack.enter_context(open_executor("mpi", choice))
        locations = find_runs(map(Path, paths))
        options = Options(step_marker=step_marker, max_bytes=max_bytes)
        tasks = [task_for(file, options, cache) for location in locations for file in location.traces]
        outcomes = TraceScheduler(tasks, progress).done(executor, choice)
    if cache:
        results.prune(task.file for task, outcome in zip(tasks, outcomes, strict=True) if outcome.fresh)
    if strict:
        raise_if_lost(outcomes)
    followed = iter(outcomes)
    runs = [_run(location, followed, rank) for location in locations]
    telling = [run for run in runs if run.ranks or run.state or _codes(run) - _TELL_NOTHING]
    if not any(map(_tells, telling)):
        raise TraceError(_why_nothing(runs))
    together = scaling(telling, by, forecast)
    insights = find_insights(telling, together)
    return Report(
        perfkit_version=__version__,
        runs=telling,
        findings=[*_of_sweeps(locations, set(map(Path, paths))), *insights.findings],
        multi_run=together,
        insights=insights.insights,
    )


def _run(location: RunLocation, outcomes: Iterator[TraceResult], rank: int | None) -> RunReport:
    manifest, lost = _read_manifest(location)
    lost.extend(_skipped_file_findings(location.skipped_files))
    summaries: list[NamedSummary] = []
    for file in location.traces:
        done = next(outcomes)
        if done.summary:
            summaries.append(NamedSummary(file.name, done.summary))
        elif done.lost:
            lost.append(done.lost)
    return build_run_report(location.name, str(location.path), summaries, manifest, rank, lost)


def _skipped_file_findings(names: Sequence[str]) -> Iterator[Finding]:
    if names:
        listed = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
        are = "is no regular file" if len(names) == 1 else "are no regular files"
        message = f"{listed} {are} and passed over: a pipe is read only if its own path is given"
        yield Finding(code="not_a_regular_file", severity="info", message=message, file=names[0])


def _read_manifest(location: RunLocation) -> tuple[RunManifest | None, list[Finding]]:
    """Return the manifest, or None and why; the traces of a run with a bad manifest are as good as any."""
    if not location.has_manifest:
        return None, []
    try:
        return read_manifest(location.path), []
    except StoreError as error:
        return None, [Finding(code="unreadable_manifest", severity="error", message=str(error))]


def _of_sweeps(locations: Sequence[RunLocation], asked_for: Set[Path]) -> Iterator[Finding]:
    """Yield what the sweeps whose folders were searched say of runs that were not found there."""
    runs = [location.path for location in locations if location.has_manifest and location.path not in asked_for]
    for folder in dict.fromkeys(run.parent for run in runs):
        name = folder.resolve().name
        try:
            yield from missing_sweep_points(
                name, read_sweep(folder), {run.name for run in runs if run.parent == folder}
            )
        except StoreError as error:
            yield Finding(code="unreadable_sweep", severity="warning", message=str(error))


def _tells(run: RunReport) -> bool:
    """Say whether a run has something to tell: its ranks, or why they have nothing to."""
    return bool(run.ranks) or run.state == "failed" or (run.state is not None and not _codes(run) & set(_UNREADABLE))


def _codes(run: RunReport) -> set[str]:
    return {finding.code for finding in run.findings}


def _why_nothing(runs: Sequence[RunReport]) -> str:
    messages = [
        finding.message for code in _UNREADABLE for run in runs for finding in run.findings if finding.code == code
    ]
    more = f" (and {len(messages) - 1} more that cannot be read)" if len(messages) > 1 else ""
    return messages[0] + more
