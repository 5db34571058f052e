"""The charts of a run: those of its subjects. A table of the report has the same numbers."""

from typing import TYPE_CHECKING

from perfkit.errors import UsageError
from perfkit.plugins import resolve
from perfkit.records.report import Report
from perfkit.records.run import RunReport
from perfkit.report.charts.scaling import series_charts
from perfkit.subjects.table import asked_subjects
from perfkit.tables.charts import Chart, PageCharts, RunChart

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def page_charts(report: Report) -> PageCharts:
    """Return the charts of a report's page, which has cells to choose from in place of the map of ranks and steps."""
    series = report.multi_run.series if report.multi_run else []
    return PageCharts(series_charts(series), [run_charts(run, without="heat_map") for run in report.runs])


def plot(record: Report | RunReport, name: str) -> "Figure":
    """Return the chart `name` of a run as a plotly figure.

    Raises:
        UsageError: the run has no such chart, or there are several runs.
    """
    run, row = _only(record) if isinstance(record, Report) else record, subject_charts()[name]
    drawn = row.draw(run)
    if drawn is None:
        raise UsageError(f"{run.run}: {row.needs}")
    return drawn.figure()


def _only(report: Report) -> RunReport:
    if len(report.runs) == 1:
        return report.runs[0]
    raise UsageError(f"the report has {len(report.runs)} runs: plot one of them, such as report.runs[0]")


def run_charts(run: RunReport, without: str | None = None) -> list[Chart]:
    """Return the charts of a run, in the order of its subjects."""
    rows = subject_charts()
    return [drawn for name, row in rows.items() if name != without and (drawn := row.draw(run))]


def subject_charts() -> dict[str, RunChart]:
    """Return the charts of all subjects by name."""
    found = (resolve(subject.charts) for _, subject in asked_subjects(None) if subject.charts)
    return {name: row for charts in found for name, row in charts.items()}
