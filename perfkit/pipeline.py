"""From paths to a report: the only place where reading files meets analysis."""

from collections.abc import Sequence
from pathlib import Path

from perfkit._version import __version__
from perfkit.analysis.assemble import NamedSummary, assemble
from perfkit.analysis.rank import check_step_marker, summarise
from perfkit.errors import NotATraceError, StoreError, TraceError, UsageError
from perfkit.model import Finding, Report, RunManifest, RunReport
from perfkit.trace.discover import RunLocation, discover
from perfkit.trace.reader import read_trace
from perfkit.trace.store import read_manifest


def analyze(*paths: str | Path, rank: int | None = None, step_marker: str | None = None) -> Report:
    """Analyse traces, run folders, or folders of them.

    Args:
        paths: trace files (`.json`, `.json.gz`), run folders, or folders of run folders or foreign traces.
        rank: the rank of a trace that says it neither in its header nor in its name.
        step_marker: a regular expression for the names of the annotations that mark steps, instead of `ProfilerStep#N`.

    Returns:
        One report a run; see `perfkit.model.Report`. `report.tables()` gives its tables as pandas DataFrames.

    Raises:
        TraceError: a path holds no trace, or none of the traces can be read.
        UsageError: `step_marker` is no regular expression.
    """
    if not paths:
        raise UsageError("nothing to analyse: give a trace, a run folder, or a folder of them")
    check_step_marker(step_marker)
    runs = [_analyze_run(location, rank, step_marker) for location in discover(map(Path, paths))]
    telling = [run for run in runs if run.ranks or run.state or _codes(run) - {"not_a_trace", "no_traces"}]
    if not any(run.ranks or run.state for run in telling):
        raise TraceError(_why_nothing(runs))
    return Report(perfkit_version=__version__, runs=telling)


def _analyze_run(location: RunLocation, rank: int | None, step_marker: str | None) -> RunReport:
    manifest, lost = _read_manifest(location)
    summaries: list[NamedSummary] = []
    for file in location.traces:
        try:
            summaries.append(NamedSummary(file.name, summarise(read_trace(file), file.name, step_marker)))
        except TraceError as error:
            # One damaged file of many costs its rank, not the analysis.
            foreign = isinstance(error, NotATraceError)
            code, severity = ("not_a_trace", "info") if foreign else ("unreadable_trace", "error")
            lost.append(Finding(code=code, severity=severity, message=str(error), file=file.name))  # type: ignore[arg-type]
    return assemble(location.name, str(location.path), summaries, manifest, rank, lost)


def _read_manifest(location: RunLocation) -> tuple[RunManifest | None, list[Finding]]:
    """Return the manifest, or None and why; the traces of a run with a bad manifest are as good as any."""
    if not location.has_manifest:
        return None, []
    try:
        return read_manifest(location.path), []
    except StoreError as error:
        return None, [Finding(code="unreadable_manifest", severity="error", message=str(error))]


def _codes(run: RunReport) -> set[str]:
    return {finding.code for finding in run.findings}


def _why_nothing(runs: Sequence[RunReport]) -> str:
    codes = ("unreadable_trace", "unreadable_manifest", "not_a_trace")
    messages = [finding.message for code in codes for run in runs for finding in run.findings if finding.code == code]
    more = f" (and {len(messages) - 1} more that cannot be read)" if len(messages) > 1 else ""
    return messages[0] + more
