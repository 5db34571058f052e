"""From paths to what changed between their runs: two sides, or a history."""

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from perfkit._version import __version__
from perfkit.comparison.changes import changes, findings
from perfkit.comparison.gates import check_gates, parse_gate
from perfkit.comparison.history import config_histories
from perfkit.errors import TraceError
from perfkit.pipeline.analyze import analyze
from perfkit.schema.common import Finding
from perfkit.schema.comparison import Comparison, Side
from perfkit.schema.history import History, HistoryBy
from perfkit.schema.run import RunReport


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
        gates=check_gates(gates, changed, *sides),
        findings=[*findings(*traced), *_of_runs(sides)],
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


def history(*paths: str | Path, by: HistoryBy = "run", step_marker: str | None = None) -> History:
    """Set runs in the order in which they were made, those of one configuration together.

    Args:
        paths: run folders, or folders of them.
        by: what a point is: a run, or all runs of one commit.
        step_marker: as in `analyze`.

    Raises:
        TraceError: none of the runs says when it was made and how, or none can be read.
        UsageError: `step_marker` cannot be read.
    """
    found = config_histories(analyze(*paths, step_marker=step_marker).runs, by)
    if not found.configurations:
        more = f" (and {len(found.findings) - 1} more)" if len(found.findings) > 1 else ""
        raise TraceError(f"no run to put into a history: {found.findings[0].message}{more}")
    return found
