"""Compare the runs under paths: two sides, or a history."""

from collections.abc import Iterable, Sequence
from math import inf
from os import PathLike
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from perfkit._version import __version__
from perfkit.engine.kinds.kernel_rules import add_rule_uses, unused_rules
from perfkit.errors import TraceError, UsageError
from perfkit.pipeline.analyze import analyze
from perfkit.records.aggregate import common_kind, steps_ns
from perfkit.records.common import Finding, worst_first
from perfkit.records.comparison import Comparison, History, HistoryBy, Side
from perfkit.records.run import RunReport
from perfkit.report.wording import worded
from perfkit.report.wording.findings import word_all
from perfkit.storage.kernel_rules_file import KernelRules
from perfkit.subjects.comparison.changes import changes, differences, disagreement, few_runs, findings, step_work
from perfkit.subjects.comparison.gates import check_gates, parse_gate
from perfkit.subjects.comparison.history import config_histories, excluded_runs

_JOBS_AS_RUNS: Final = "several_jobs"
"""The finding of a folder whose jobs count as repeats."""


def compare(
    before: str | Path,
    after: str | Path,
    *,
    fail_on: Sequence[str] = (),
    step_marker: str | None = None,
    data_marker: str | None = None,
    kernel_rules: KernelRules = None,
    assume_noise: float | None = None,
) -> Comparison:
    """Compare two runs, or two sets of repeats.

    Args:
        before: a trace, a run folder, or a folder of repeats.
        after: the same for the runs to compare with them.
        fail_on: conditions that fail the comparison, see `perfkit.subjects.comparison.gates`.
        step_marker: as in `analyze`, as are `data_marker` and `kernel_rules`.
        assume_noise: relative difference between runs that is noise, such as 0.03, if a side has fewer than three runs.

    Raises:
        TraceError: a side has no readable trace.
        UsageError: a condition, a marker, `kernel_rules` or `assume_noise` is invalid.
    """
    if assume_noise is not None and not 0 <= assume_noise < inf:
        raise UsageError(f"assume_noise={assume_noise}: expected a fraction such as 0.03")
    sides_given: tuple[object, ...] = (before, after)
    for given in sides_given:
        if not isinstance(given, str | PathLike):
            kind = type(given).__name__
            raise UsageError(f"compare: each side is one path, a run or a folder of repeats, not a {kind}")
    gates = [parse_gate(text) for text in fail_on]
    reports = [
        analyze(path, step_marker=step_marker, data_marker=data_marker, kernel_rules=kernel_rules)
        for path in (before, after)
    ]
    sides = [report.runs for report in reports]
    compared = _comparable(sides, (before, after), own_clock=step_marker is None)
    # Another marker marks other steps than those that the run itself timed.
    measured_on = None if step_marker else common_kind([run for side in compared for run in side])
    changed = worded(changes(compared[0], compared[1], measured_on, assume_noise))
    return Comparison(
        perfkit_version=__version__,
        before=Side(path=str(before), runs=[run.run for run in compared[0]]),
        after=Side(path=str(after), runs=[run.run for run in compared[1]]),
        measured_on="plain" if measured_on == "plain" else "recorded",
        assumed_noise=assume_noise if few_runs(compared[0], compared[1]) else None,
        changes=changed,
        differences=differences(compared[0], compared[1]),
        gates=worded(check_gates(gates, changed, *sides)),
        findings=worst_first(
            [
                *word_all(step_work(*compared)),
                *word_all(disagreement(changed)),
                *word_all(findings(compared[0], compared[1], assume_noise)),
                *(finding for report in reports for finding in report.findings if finding.code == _JOBS_AS_RUNS),
                *word_all(unused_rules(add_rule_uses(report.kernel_rules for report in reports))),
                *_run_findings(sides),
            ]
        ),
    )


def _comparable(
    sides: Sequence[Sequence[RunReport]], paths: Sequence[str | Path], *, own_clock: bool
) -> list[list[RunReport]]:
    """Return the runs that have traces; if a side has none, what both have: steps timed without the profiler.

    Args:
        own_clock: whether steps are those that a run timed itself.

    Raises:
        TraceError: A side has neither, or not what the other has.
    """
    traced = [[run for run in side if run.ranks] for side in sides]
    if all(traced):
        return traced
    if not own_clock:
        path = next(path for path, side in zip(paths, traced, strict=True) if not side)
        raise TraceError(f"{path}: none of its runs has a trace, in which --step-marker would mark steps")
    timed = [
        [replace(run, ranks=[], data_loading=None, efficiency=None) for run in side if steps_ns(run, "plain")]
        for side in sides
    ]
    for path, other, with_trace, with_times in zip(paths, paths[::-1], traced, timed, strict=True):
        if not with_trace and not with_times:
            raise TraceError(f"{path}: none of its runs has a trace to compare, or steps timed without the profiler")
        if not with_times:
            raise TraceError(f"{path}: none of its runs has steps timed without the profiler, and {other} has no trace")
    return timed


def _run_findings(sides: list[list[RunReport]]) -> list[Finding]:
    """Return the warnings and errors of the runs' reports, prefixed with the run."""
    return [
        replace(finding, message=f"{run.run}: {finding.message}")
        for side in sides
        for run in side
        for finding in run.findings
        if finding.severity != "info"
    ]


def history(
    *paths: str | Path | Iterable[str | Path],
    by: HistoryBy = "run",
    step_marker: str | None = None,
    data_marker: str | None = None,
    kernel_rules: KernelRules = None,
) -> History:
    """Order runs by time, grouped by configuration.

    Args:
        paths: run folders, or folders of them; also lists.
        by: whether a point is one run, or all runs of a commit.
        step_marker: as in `analyze`, as are `data_marker` and `kernel_rules`.

    Raises:
        TraceError: no run has a readable trace and a manifest with time and configuration.
        UsageError: a marker or `kernel_rules` is invalid.
    """
    report = analyze(*paths, step_marker=step_marker, data_marker=data_marker, kernel_rules=kernel_rules)
    result = worded(config_histories(report.runs, by, own_clock=step_marker is None))
    excluded = word_all(excluded_runs(report.runs))
    if not result.configurations:
        more = f" (and {len(excluded) - 1} more)" if len(excluded) > 1 else ""
        raise TraceError(f"no run to put into a history: {excluded[0].message}{more}")
    return replace(result, findings=[*excluded, *word_all(unused_rules(report.kernel_rules))])
