"""The recommendations of a report, and the tone of its verdicts."""

from typing import Final

from perfkit.base.formatting import duration, escape_unprintable
from perfkit.records.aggregate import longest_mean_step_ns
from perfkit.records.report import BESIDES_STEPS, Insight, Report
from perfkit.records.run import Bound, RunReport
from perfkit.report.content.document import InsightItem
from perfkit.tables.aggregates import headline_step_ns
from perfkit.tables.specification import Tone

TONES: Final[dict[Bound, Tone]] = {"compute": "good", "none": "info", "unknown": "info"}
"""Of a verdict; the others are warnings."""


def advice(report: Report) -> list[InsightItem]:
    """Return the recommendations of a report; with several runs, each names its run."""
    alone = len(report.runs) == 1
    runs = {run.run: run for run in report.runs}
    promised: dict[str, float] = {}
    items = []
    for insight in report.insights:
        # Comparisons of several runs, and what is besides the steps, are no parts of one step.
        run = None if insight.rule == BESIDES_STEPS else runs.get(insight.run)
        before_ns, saving_ns = promised.get(insight.run, 0.0), insight.potential_saving_ns or 0.0
        if insight.rule == BESIDES_STEPS:
            before_ns, saving_ns = 0.0, 0.0
        overlaps = (
            run is not None and before_ns > 0 and before_ns + saving_ns > (longest_mean_step_ns(run) or float("inf"))
        )
        items.append(_item(insight, alone, run, overlaps=overlaps and saving_ns > 0))
        promised[insight.run] = promised.get(insight.run, 0.0) + saving_ns
    return items


def _item(insight: Insight, alone: bool, run: RunReport | None, *, overlaps: bool) -> InsightItem:
    # What one rank is idle for, another waits for: together, savings cannot be more than the step.
    besides = ", in part the same as above" if overlaps else ""
    where = "" if alone else f"{escape_unprintable(insight.run)}: "
    # A plug-in, or a report that is read back, may have put anything into its sentences.
    sentence, recommendation = map(escape_unprintable, (insight.sentence, insight.recommendation))
    return InsightItem(f"{where}{sentence}", recommendation, _saving(insight, run) + besides)


def _saving(insight: Insight, run: RunReport | None) -> str:
    """Return what the advice may save; `run` is the one of whose step that is a part."""
    if insight.potential_saving_ns is None:
        return ""
    saved = f"{duration(insight.potential_saving_ns)} {_of_step(insight.potential_saving_ns, run)}"
    if insight.only_finds_out:
        return f"concerns {saved}"
    if insight.predicted_for is None:
        return f"up to {saved}"
    by_replay = f"predicted by replaying the steps with {escape_unprintable(insight.predicted_for)}"
    if not insight.potential_saving_ns:
        return f"would save nothing, {by_replay}"
    # What is recommended makes it less, but seldom nothing.
    most = "up to" if insight.predicted_for.endswith("=0") else "would save"
    return f"{most} {saved}, {by_replay}"


def _of_step(saving_ns: float, run: RunReport | None) -> str:
    """Return what a saving is a part of: the mean of profiled steps, which the profiler or a slow step may lengthen.

    It is named where the saving is more than the step time that the report begins with.
    """
    headline_ns = None if run is None or not any(rank.steps for rank in run.ranks) else headline_step_ns(run)
    if run is None or headline_ns is None or saving_ns <= headline_ns:
        return "per step"
    return f"of the mean profiled step of {duration(longest_mean_step_ns(run))}"
