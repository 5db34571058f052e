"""Analyse the traces under paths into a report: the only place where file I/O meets analysis."""

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Sequence, Set
from concurrent.futures import Executor
from contextlib import ExitStack
from functools import cache as once
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from perfkit._version import __version__
from perfkit.accelerators import accelerators
from perfkit.base.executors import ExecutorOptions, check, open_executor
from perfkit.engine.kinds.kernel_rules import add_rule_uses, unused_rules
from perfkit.engine.run_context import RunContext
from perfkit.engine.runs.jobs import Job, split_jobs
from perfkit.engine.runs.rank_reports import NamedSummary
from perfkit.engine.trace_summary import check_markers
from perfkit.errors import StoreError, TraceError, UsageError
from perfkit.pipeline.monitor import with_incidents, with_monitor
from perfkit.pipeline.other_files import ReadLogs, load_comm_logs, load_memory_snapshot, with_comm_logs, with_snapshot
from perfkit.pipeline.run_report import BuiltRun, build_run, raise_if_lost, with_findings, with_folders
from perfkit.pipeline.scheduler import Progress, TraceResult, TraceScheduler
from perfkit.pipeline.summarize import Options, task_for
from perfkit.pipeline.words import find_insights
from perfkit.records.benchmark import CollectiveBenchmark
from perfkit.records.common import Finding, Observation
from perfkit.records.manifest import RunManifest
from perfkit.records.per_rank.memory import MemorySnapshot
from perfkit.records.report import Report
from perfkit.records.roofline import DevicePeaks
from perfkit.records.run import RunReport
from perfkit.report.wording import worded
from perfkit.report.wording.findings import word, word_all
from perfkit.storage.device_table_file import DeviceTable, load_device_table
from perfkit.storage.discovery import RunLocation, find_runs
from perfkit.storage.kernel_rules_file import KernelRules, load_kernel_rules
from perfkit.storage.run_folder import read_manifest, read_sweep
from perfkit.subjects.table import SUBJECTS, is_advised, with_needed

_UNREADABLE: Final = ("worker_lost", "unreadable_trace", "unreadable_manifest", "not_a_trace")
"""Findings that explain why nothing can be analysed, the most informative first."""
_NOT_A_RUN: Final = {"not_a_trace", "not_a_regular_file", "no_traces"}
"""Findings of a folder that is not a run."""


class _OtherFiles(Struct, frozen=True):
    """What is read besides traces."""

    benchmark: CollectiveBenchmark | None
    snapshot: MemorySnapshot | None
    logs: ReadLogs | None


def analyze(
    *paths: str | Path | Iterable[str | Path],
    rank: int | None = None,
    step_marker: str | None = None,
    data_marker: str | None = None,
    kernel_rules: KernelRules = None,
    device_table: DeviceTable = None,
    max_bytes: int | None = None,
    executor: str | Executor | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
    strict: bool = False,
    cache: bool = True,
    progress: Progress | None = None,
    by: Sequence[str] = (),
    forecast: Sequence[int] = (),
    collectives: str | Path | None = None,
    memory_snapshot: str | Path | None = None,
    comm_log: str | Path | Iterable[str | Path] = (),
    page_steps: Container[int] | None = None,
    subjects: Collection[str] | None = None,
) -> Report:
    """Analyse traces, run folders, or folders of them.

    Args:
        paths: trace files (`.json`, `.json.gz`, `.json.zst`), run folders, or folders of run folders or foreign traces;
            also lists of them.
        rank: the rank of a trace that has none in its header or name.
        step_marker: a regular expression for the names of the annotations that mark steps, instead of `ProfilerStep#N`.
        data_marker: a regular expression for the names of annotations and Python functions that load data, besides
            torch's `DataLoader` and `perfkit.data_loading`.
        kernel_rules: rules for the names of device kernels, which come before perfkit's own, or the TOML file that
            contains them (`perfkit.storage.kernel_rules_file`).
        device_table: peaks of devices, which come before perfkit's own, or the TOML file that contains them
            (`perfkit.storage.device_table_file`).
        max_bytes: limit for the decompressed text of a trace; None for 64 GiB.
        executor: where the traces are read, one task per trace: a name in `EXECUTORS`, or an open
            `concurrent.futures.Executor`; if None, `processes` if that is faster. The report is the same from all.
        workers: size of `processes` or of a local `dask` cluster; None for as many as cores and memory allow.
        scheduler: address of a running dask scheduler.
        strict: raise an error for a trace that cannot be analysed, is damaged, or has invalid events, and for any
            finding of severity error.
        cache: use results of earlier analyses of the same traces, and store new ones.
        progress: called with the bytes of finished traces, and of all.
        by: options, such as `source` or `compile`, by which to compare runs that differ in nothing else.
        forecast: world sizes to forecast the throughput for, from runs of at least four.
        collectives: file of `perfkit collectives -o FILE.json`, to compare the runs' collectives with.
        memory_snapshot: pickle of `torch.cuda.memory._dump_snapshot` by a rank of the run, of which there may be only
            one. It is read without executing anything.
        comm_log: logs of NCCL or RCCL (`NCCL_DEBUG=INFO`), or oneCCL (`CCL_LOG_LEVEL=info`), of the run, of which there
            may be only one, or folders of them; those in a run's own folder (`nccl*.log`, `*.nccl.log`) are read
            without this.
        page_steps: numbers of the steps whose timelines a page is to have: collectives are linked across ranks in them.
            None for the longest step and one of median length.
        subjects: names of the subjects to compute (`perfkit.subjects.table.SUBJECTS`); None for all. Recommendations
            need those of the short answer, at least.

    Returns:
        One report per run, see `perfkit.records.report.Report`; `report.tables()` returns its tables as DataFrames.

    Raises:
        TraceError: a path has no trace, or none of the traces can be read; with `strict`, if any cannot, is damaged
            or has invalid events, or if a finding is an error; `memory_snapshot` is none; `comm_log` contains none.
        UsageError: a marker is not a regular expression, `kernel_rules` or `device_table` are invalid, options are
            incompatible, no runs fit `by` or `forecast`, or several are there with `memory_snapshot` or `comm_log`.
        StoreError: `collectives` cannot be read.
        LaunchEnvironmentError: the executor is not available.
        SystemExit: with `mpi`, on all ranks but 0, when all work is done.
    """
    given = flat_paths(paths)
    if not given:
        raise UsageError("nothing to analyse: give a trace, a run folder, or a folder of them")
    check_markers(step_marker, data_marker)
    others = _load_other_files(collectives, memory_snapshot, flat_paths([comm_log]))
    rules, devices = load_kernel_rules(kernel_rules), once(partial(load_device_table, device_table))
    if device_table is not None:
        devices()  # an error in the user's own comes before any reading; perfkit's is decoded when it is needed
    accelerators()  # warns, once, of plug-ins that cannot be loaded: workers are silent
    asked = _checked(subjects)
    advised = is_advised(asked)
    if (by or forecast) and not advised:
        raise UsageError("--by and --forecast compare whole runs: remove --section")
    options = Options(
        step_marker=step_marker,
        data_marker=data_marker,
        max_bytes=max_bytes,
        kernel_rules=rules,
        subjects=asked,
    )
    locations, outcomes = _read(given, options, cache, executor, ExecutorOptions(workers, scheduler), progress)
    outcome_iterator = iter(outcomes)
    by_location = [_runs(location, outcome_iterator, rank, options, devices, page_steps) for location in locations]
    runs = with_folders([run for of_location in by_location for run in of_location], with_monitor)
    relevant = _with_other_files(_relevant(with_folders(runs, with_incidents)), others)
    found = [*_several_jobs(locations, by_location), *_sweep_findings(locations, set(given))]
    uses = add_rule_uses(outcome.summary.rule_uses for outcome in outcomes if outcome.summary)
    report = replace(
        _together(relevant, found, by, forecast) if advised else _report(relevant, found), kernel_rules=uses
    )
    report.findings.extend(word_all(unused_rules(uses)))
    if strict:
        raise_if_lost(report)
    return report


def _checked(subjects: Collection[str] | None) -> tuple[str, ...] | None:
    """Return names of subjects.

    Raises:
        UsageError: there is no such subject.
    """
    for name in [subjects] if isinstance(subjects, str) else subjects or ():
        if isinstance(subjects, str) or name not in SUBJECTS:
            raise UsageError(f"subjects={subjects!r}: expected names of {', '.join(SUBJECTS.names())}")
    return None if subjects is None else tuple(subjects)


def _report(runs: list[RunReport], found: Iterable[Observation], **more: Any) -> Report:
    return Report(perfkit_version=__version__, runs=runs, findings=word_all(found), **more)


def _together(
    runs: list[RunReport], found: Iterable[Observation], by: Sequence[str], forecast: Sequence[int]
) -> Report:
    """Return the report with what to do, and, of several runs or options, with what they show together."""
    multi_run = None
    if len(runs) > 1 or by or forecast:
        from perfkit.subjects.scaling.option_comparison import profiled_order_findings
        from perfkit.subjects.scaling.series import why_no_series
        from perfkit.subjects.scaling.summary import scaling

        multi_run = worded(scaling(runs, by, forecast))
        reason = why_no_series(runs) if len(runs) > 1 else None
        order = profiled_order_findings(runs, multi_run.option_comparisons) if multi_run else ()
        found = [*found, *order, *([reason] if reason else [])]
    insights = find_insights(runs, multi_run)
    report = _report(runs, found, multi_run=multi_run, insights=insights.insights)
    report.findings.extend(insights.findings)
    return report


def _load_other_files(
    collectives: str | Path | None, memory_snapshot: str | Path | None, log_files: Sequence[Path]
) -> _OtherFiles:
    benchmark = snapshot = None
    if collectives is not None:
        from perfkit.storage.report_file import load_collectives

        benchmark = load_collectives(collectives)
    if memory_snapshot is not None:
        snapshot = load_memory_snapshot(memory_snapshot)
    return _OtherFiles(benchmark, snapshot, load_comm_logs(log_files) if log_files else None)


def _with_other_files(runs: list[RunReport], others: _OtherFiles) -> list[RunReport]:
    if others.benchmark is not None:
        from perfkit.subjects.collectives.measured_bandwidth import bandwidth_shares

        for place, run in enumerate(runs):
            shares, limits = bandwidth_shares(run, others.benchmark)
            runs[place] = with_findings(replace(run, bandwidth_shares=shares), limits)
    if others.snapshot is not None:
        runs = with_snapshot(runs, others.snapshot)
    return with_comm_logs(runs, others.logs)


def _relevant(runs: Sequence[RunReport]) -> list[RunReport]:
    """Return the runs without folders that are none.

    Raises:
        TraceError: None of them can be analysed.
    """
    relevant = [run for run in runs if run.ranks or run.state or run.monitor or _codes(run) - _NOT_A_RUN]
    if not any(map(_is_informative, relevant)):
        raise TraceError(_no_data_message(runs))
    return relevant


def _read(
    given: Sequence[Path],
    options: Options,
    cache: bool,
    executor: str | Executor | None,
    executor_options: ExecutorOptions,
    progress: Progress | None,
) -> tuple[list[RunLocation], list[TraceResult]]:
    """Return the folders of runs under paths, and the summary of each of their traces in the same order."""
    check(executor, executor_options)
    with ExitStack() as stack:
        if executor == "mpi":
            # Before anything that can fail on one rank alone, because the other ranks wait in it.
            executor = stack.enter_context(open_executor("mpi", executor_options))
        locations = find_runs(given)
        tasks = [
            task_for(file, _with_needed(options, location), cache) for location in locations for file in location.traces
        ]
        outcomes = TraceScheduler(tasks, progress).done(executor, executor_options)
    return locations, outcomes


def _with_needed(options: Options, location: RunLocation) -> Options:
    """Add the subjects that are needed to compare traces, where there are several, and the graph of the ledger."""
    asked = options.subjects
    if asked is None:
        return options
    ledger = ("critical-path",) if is_advised(asked) else ()
    needed = with_needed(asked) if len(location.traces) > 1 else asked
    return replace(options, subjects=tuple(dict.fromkeys((*(needed or ()), *ledger))))


def flat_paths(paths: Iterable[str | Path | Iterable[str | Path]]) -> list[Path]:
    return [
        Path(path)
        for one in paths
        for path in ((one,) if isinstance(one, str | PathLike) or not isinstance(one, Iterable) else one)
    ]


def _runs(
    location: RunLocation,
    outcomes: Iterator[TraceResult],
    rank: int | None,
    options: Options,
    devices: Callable[[], Sequence[DevicePeaks]],
    page_steps: Container[int] | None,
) -> list[RunReport]:
    """Return the run of a folder, or one run per job whose traces are there."""
    manifest, lost = _read_manifest(location)
    if names := location.skipped_files:
        lost.append(word(Observation("not_a_regular_file", {"names": names}, file=names[0])))
    if location.captures:
        lost.append(word(Observation("has_captures", {"folder": location.path, "names": location.captures})))
    summaries: list[NamedSummary] = []
    for file in location.traces:
        done = next(outcomes)
        if done.summary:
            summaries.append(NamedSummary(file.name, done.summary))
        elif done.lost:
            lost.append(done.lost)
    jobs = [Job("", summaries)] if manifest else split_jobs(summaries)
    return [
        _with_predictions(
            build_run(
                f"{location.name} ({job.label})" if job.label else location.name,
                str(location.path),
                RunContext(job.traces, manifest, rank, devices, page_steps, options.step_marker),
                lost,
                options.subjects,
            ),
            options,
        )
        for job in jobs
    ]


def _with_predictions(built: BuiltRun, options: Options) -> RunReport:
    """Return the report with what its graph predicts. Graphs are large: that of one run is kept at a time."""
    savings = []
    if built.graphs:
        from perfkit.engine.whatif.savings import predicted_savings

        savings = predicted_savings(built.graphs, built.report)
    marked = {"step_marker": options.step_marker, "data_marker": options.data_marker}
    return replace(built.report, **marked, predicted_savings=savings)


def _several_jobs(
    locations: Sequence[RunLocation], by_location: Sequence[Sequence[RunReport]]
) -> Iterator[Observation]:
    for location, runs in zip(locations, by_location, strict=True):
        if len(runs) > 1:
            labels = [run.run.removeprefix(location.name).strip(" ()") for run in runs]
            yield Observation("several_jobs", {"folder": location.name, "labels": labels})


def _read_manifest(location: RunLocation) -> tuple[RunManifest | None, list[Finding]]:
    """Return the manifest, or None and a finding; the traces of a run with a bad manifest are analysed all the same."""
    if not location.has_manifest:
        return None, []
    try:
        return read_manifest(location.path), []
    except StoreError as error:
        return None, [word(Observation("unreadable_manifest", {"error": str(error)}))]


def _sweep_findings(locations: Sequence[RunLocation], given_paths: Set[Path]) -> Iterator[Observation]:
    """Yield findings about runs of a sweep that are missing in its folder, for folders that were searched."""
    from perfkit.engine.runs.manifest_checks import missing_sweep_points

    runs = [location.path for location in locations if location.has_manifest and location.path not in given_paths]
    for folder in dict.fromkeys(run.parent for run in runs):
        name = folder.resolve().name
        try:
            yield from missing_sweep_points(
                name, read_sweep(folder), {run.name for run in runs if run.parent == folder}
            )
        except StoreError as error:
            yield Observation("unreadable_sweep", {"error": str(error)})


def _is_informative(run: RunReport) -> bool:
    """Return whether a run has ranks or logs of the monitor, or explains why it has none."""
    if run.ranks or run.monitor is not None or run.state == "failed":
        return True
    return run.state is not None and not _codes(run) & set(_UNREADABLE)


def _codes(run: RunReport) -> set[str]:
    return {finding.code for finding in run.findings}


def _no_data_message(runs: Sequence[RunReport]) -> str:
    messages = [
        finding.message
        for code in (*_UNREADABLE, "monitor_log_unread")
        for run in runs
        for finding in run.findings
        if finding.code == code
    ]
    more = f" (and {len(messages) - 1} more that cannot be read)" if len(messages) > 1 else ""
    return messages[0] + more
