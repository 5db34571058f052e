"""The recommendations of a report, and the tone of its verdicts."""

from typing import Final

from perfkit.base.formatting import duration, escape_unprintable
from perfkit.records.report import Insight, Report
from perfkit.records.run import Bound
from perfkit.report.content.document import InsightItem
from perfkit.tables.specification import Tone

TONES: Final[dict[Bound, Tone]] = {"compute": "good", "none": "info", "unknown": "info"}
"""Of a verdict; the others are warnings."""


def advice(report: Report) -> list[InsightItem]:
    """Return the recommendations of a report; with several runs, each names its run."""
    alone = len(report.runs) == 1
    return [_item(insight, alone) for insight in report.insights]


def _item(insight: Insight, alone: bool) -> InsightItem:
    where = "" if alone else f"{escape_unprintable(insight.run)}: "
    # A plug-in, or a report that is read back, may have put anything into its sentences.
    sentence, recommendation = map(escape_unprintable, (insight.sentence, insight.recommendation))
    return InsightItem(f"{where}{sentence}", recommendation, _saving(insight))


def _saving(insight: Insight) -> str:
    """Return what the advice saves per step; empty where that is unknown, or it only leads to the reason."""
    if insight.potential_saving_ns is None or insight.only_finds_out:
        return ""
    most = "saves" if insight.predicted_for else "saves up to"
    return f"{most} {duration(insight.potential_saving_ns)}"
