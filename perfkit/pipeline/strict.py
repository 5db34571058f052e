"""Refuse a report of which a part is lost, for `--strict`."""

from typing import Final

from perfkit.errors import TraceError
from perfkit.records.common import Finding
from perfkit.records.report import Report

_LOSSES: Final = frozenset({"damaged_trace", "skipped_events", "repaired_events"})
"""Warnings about events that are missing, or of which a part is: what is repaired loses its duration, for example.

What is read without a loss, such as times in quotes, has no finding.
"""


def raise_if_lost(report: Report) -> None:
    """Raise a TraceError if a part of any trace is lost, or any finding is an error."""
    findings = [*report.findings, *(finding for run in report.runs for finding in run.findings)]
    # Several jobs in a folder share the findings about its files.
    lost = list(dict.fromkeys(_sentence(one) for one in findings if one.severity == "error" or one.code in _LOSSES))
    if lost:
        more = f" (and {len(lost) - 1} more)" if len(lost) > 1 else ""
        raise TraceError(f"--strict: {lost[0]}{more}")


def _sentence(finding: Finding) -> str:
    """Return the message after the file's name, which a warning about a trace lacks."""
    return f"{finding.file}: {finding.message}" if finding.code in _LOSSES else finding.message
