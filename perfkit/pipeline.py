"""From paths to a report: the only place where reading files meets analysis."""

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from perfkit._version import __version__
from perfkit.analysis.assemble import NamedSummary, assemble
from perfkit.analysis.rank import check_step_marker, summarise
from perfkit.comparison.compare import changes
from perfkit.comparison.compare import findings as comparability
from perfkit.comparison.gates import check_gates, parse_gate
from perfkit.errors import NotATraceError, StoreError, TraceError, UsageError
from perfkit.model import Comparison, Finding, Report, RunManifest, RunReport, Side
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


def compare(
    before: str | Path,
    after: str | Path,
    *,
    fail_on: Sequence[str] = (),
    step_marker: str | None = None,
) -> Comparison:
    """Compare two runs, or two sets of repeats.

    Args:
        before: a trace, a run folder, or a folder of repeats.
        after: likewise.
        fail_on: conditions that must not hold, see `perfkit.comparison.gates`.
        step_marker: as in `analyze`.

    Raises:
        TraceError: one side holds no trace, or none can be read.
        UsageError: a condition or `step_marker` cannot be read.
    """
    gates = [parse_gate(text) for text in fail_on]
    sides = [analyze(path, step_marker=step_marker).runs for path in (before, after)]
    traced = [[run for run in side if run.ranks] for side in sides]
    for path, side in zip((before, after), traced, strict=True):
        if not side:
            raise TraceError(f"{path}: no run there has a trace to compare")
    changed = changes(*traced)
    return Comparison(
        perfkit_version=__version__,
        before=Side(path=str(before), runs=[run.run for run in traced[0]]),
        after=Side(path=str(after), runs=[run.run for run in traced[1]]),
        changes=changed,
        gates=check_gates(gates, changed, traced[1]),
        findings=[*comparability(*traced), *_of_runs(sides)],
    )


def _of_runs(sides: list[list[RunReport]]) -> list[Finding]:
    """Return what the runs' own reports warn of, with the run it is about."""
    return [
        replace(finding, message=f"{run.run}: {finding.message}")
        for side in sides
        for run in side
        for finding in run.findings
        if finding.severity != "info"
    ]


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
