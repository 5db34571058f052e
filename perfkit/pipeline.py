"""From paths to a report: the only place where reading files meets analysis."""

from pathlib import Path

from perfkit._version import __version__
from perfkit.analysis.assemble import NamedSummary, assemble
from perfkit.analysis.rank import check_step_marker, summarise
from perfkit.errors import TraceError
from perfkit.model import Finding, Report, RunReport
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
        StoreError: a manifest cannot be read.
        UsageError: `step_marker` is no regular expression.
    """
    check_step_marker(step_marker)
    runs = [_analyze_run(location, rank, step_marker) for location in discover(map(Path, paths))]
    if not any(run.ranks or run.state for run in runs):
        raise TraceError(_why_nothing(runs))
    return Report(perfkit_version=__version__, runs=runs)


def _analyze_run(location: RunLocation, rank: int | None, step_marker: str | None) -> RunReport:
    manifest = read_manifest(location.path) if location.has_manifest else None
    summaries: list[NamedSummary] = []
    lost: list[Finding] = []
    for file in location.traces:
        try:
            summaries.append(NamedSummary(file.name, summarise(read_trace(file), file.name, step_marker)))
        except TraceError as error:
            # One damaged file of many costs its rank, not the analysis.
            lost.append(Finding(code="unreadable_trace", severity="error", message=str(error), file=file.name))
    return assemble(location.name, str(location.path), summaries, manifest, rank, lost)


def _why_nothing(runs: list[RunReport]) -> str:
    messages = [finding.message for run in runs for finding in run.findings if finding.code == "unreadable_trace"]
    more = f" (and {len(messages) - 1} more unreadable traces)" if len(messages) > 1 else ""
    return messages[0] + more
