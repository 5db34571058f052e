"""What a comparison comes to, as facts: which side is faster, whether that is more than noise, what else differs."""

from perfkit.base.statistics.bootstrap import FEWEST_RUNS
from perfkit.records.common import Finding
from perfkit.records.comparison import SAMPLES_DIFFER, STEP_WORK_CODES, Change, Comparison
from perfkit.records.facts import Fact, fact

IN_SUMMARY = {*STEP_WORK_CODES, "too_few_repeats", "configurations_differ", "devices_differ", "versions_differ"}
"""Findings that the summary tells."""


def step_work_of(report: Comparison) -> Finding | None:
    """Return the finding that steps do other work after than before, if there is one."""
    return next((finding for finding in report.findings if finding.code in STEP_WORK_CODES), None)


def result(report: Comparison) -> Fact | None:
    """Return which side is faster; None if steps do other work, and rates tell nothing either."""
    work = step_work_of(report)
    if work is not None and work.code != SAMPLES_DIFFER:
        return None
    return fact("compared", change=_compared(report), is_plain=report.measured_on == "plain")


def noise(report: Comparison) -> Fact | None:
    """Return whether the change is more than noise; None without one."""
    change = _compared(report)
    if change is None or change.ratio is None or result(report) is None:
        return None
    runs = [len(side.runs) for side in (report.before, report.after)]
    return fact("beyond_noise", change=change, runs=runs, fewest=FEWEST_RUNS, assumed_noise=report.assumed_noise)


def what_changed(report: Comparison) -> Fact:
    """Return what else differs, and the category whose time per step changed most, if steps do the same work."""
    category = None if step_work_of(report) else _most_changed(report)
    return fact("changed", differences=report.differences, category=category)


def _compared(report: Comparison) -> Change | None:
    metric = "samples_per_s" if step_work_of(report) else "step_time"
    return next((change for change in report.changes if change.name == metric), None)


def _most_changed(report: Comparison) -> Change | None:
    known = [one for one in report.changes if one.kind == "category" and None not in (one.before, one.after)]
    changed = [one for one in known if one.before != one.after]
    return max(changed, key=lambda one: abs((one.after or 0) - (one.before or 0)), default=None)
