"""Read the traces of one run."""

from pathlib import Path
from typing import NamedTuple

from perfkit.base.executors import ExecutorOptions
from perfkit.engine.runs.jobs import check_one_job
from perfkit.engine.runs.rank_reports import NamedSummary
from perfkit.engine.trace_summary import check_markers
from perfkit.errors import TraceError
from perfkit.pipeline.scheduler import Progress, TraceScheduler
from perfkit.pipeline.summarize import Options, task_for
from perfkit.records.common import Finding
from perfkit.records.manifest import RunManifest
from perfkit.storage.discovery import RunLocation, find_run
from perfkit.storage.run_folder import read_manifest


class LoadedRun(NamedTuple):
    """What the traces of one folder, or one trace, contain."""

    location: RunLocation
    summaries: list[NamedSummary]
    """At least one."""
    manifest: RunManifest | None
    lost: list[Finding]
    """About traces that could not be read."""


def load_run(path: str | Path, options: Options, cache: bool, progress: Progress | None) -> LoadedRun:
    """Read the traces of a run.

    Args:
        path: a run folder, or a trace.
        options: how traces are read.
        cache: use results of earlier analyses of the same traces, and store new ones.
        progress: called with the bytes of finished traces, and of all.

    Raises:
        TraceError: there is no such trace, or none can be read.
        UsageError: several runs or jobs in the folder, or `options` have an invalid marker.
        StoreError: the manifest cannot be read.
    """
    location = find_run(Path(path))
    summaries, lost = load_summaries(location, options, cache, progress)
    manifest = read_manifest(location.path) if location.has_manifest else None
    check_one_job(Path(path), summaries, manifest is not None)
    return LoadedRun(location, summaries, manifest, lost)


def load_summaries(
    location: RunLocation, options: Options, cache: bool, progress: Progress | None
) -> tuple[list[NamedSummary], list[Finding]]:
    """Return the summaries of a run's traces, at least one, and findings about traces that could not be read.

    Raises:
        TraceError: none can be read.
        UsageError: `options` have an invalid marker.
    """
    check_markers(options.step_marker, options.data_marker)
    tasks = [task_for(file, options, cache) for file in location.traces]
    outcomes = TraceScheduler(tasks, progress).done(None, ExecutorOptions())
    named = zip(location.traces, outcomes, strict=True)
    summaries = [NamedSummary(file.name, done.summary) for file, done in named if done.summary]
    lost = [done.lost for done in outcomes if done.lost]
    if not summaries:
        raise TraceError(lost[0].message)
    return summaries, lost
