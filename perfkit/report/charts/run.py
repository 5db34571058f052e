"""The charts of a report: those of a run's subjects, and of scaling series. A table has the same numbers."""

from collections.abc import Callable, Sequence
from typing import Final

from perfkit.errors import UsageError
from perfkit.plugins import resolve
from perfkit.records.report import Report
from perfkit.records.run import RunReport
from perfkit.records.scaling import ScalingSeries
from perfkit.report.charts.scaling import pictures, throughputs, waterfalls
from perfkit.subjects.table import asked_subjects
from perfkit.tables.charts import Chart, PageCharts, RunChart


def page_charts(report: Report) -> PageCharts:
    """Return the charts of a report's page, which has cells to choose from in place of the map of ranks and steps."""
    series = report.multi_run.series if report.multi_run else []
    forecast = [one for one in series if one.forecasts]  # measured rates and ideal ones are in the pictures, as steps
    return PageCharts(
        [*pictures(series), *waterfalls(series)],
        [run_charts(run, without="heat_map") for run in report.runs],
        throughputs(forecast),
    )


_OF_SERIES: Final[dict[str, Callable[[Sequence[ScalingSeries]], list[Chart]]]] = {
    "scaling": pictures,
    "strong": lambda series: pictures([one for one in series if one.kind == "strong"]),
    "weak": lambda series: pictures([one for one in series if one.kind == "weak"]),
    "lost": waterfalls,
    "throughput": throughputs,
}
"""Charts of several runs by name: of several, `scaling` and `scaling-1` are the first on the page, then `scaling-2`."""


def figure_names() -> list[str]:
    """Return the names of all charts."""
    return [*_OF_SERIES, *subject_charts()]


def check_figure(name: str) -> None:
    """Refuse a name that no chart has.

    Raises:
        UsageError: there is none.
    """
    if _numbered(name)[0] not in figure_names():
        raise UsageError(f"no figure {name!r}: choose from {', '.join(figure_names())}")


def chart(record: Report | RunReport, name: str) -> Chart:
    """Return the chart `name` of a report or a run.

    Raises:
        UsageError: no chart has the name, or the record does not have this one.
    """
    check_figure(name)
    base, number = _numbered(name)
    if base not in _OF_SERIES:
        run, row = _only(record) if isinstance(record, Report) else record, subject_charts()[name]
        drawn = row.draw(run)
        if drawn is None:
            raise UsageError(f"{run.run}: {row.needs}")
        return drawn
    found = _of_series(record, base)
    if not found:
        kind = f"{base} " if base in ("strong", "weak") else ""
        raise UsageError(
            f"a figure of {base!r} needs a {kind}scaling series: runs that differ in their number of ranks"
        )
    if not 0 < number <= len(found):
        raise UsageError(f"no figure {name!r}: there are {len(found)} of {base!r}")
    return found[number - 1]


def which_figure(record: Report | RunReport, name: str) -> str:
    """Return which of several charts a name stands for, and what the next is called; empty if it is the only one."""
    base, number = _numbered(name)
    found = _of_series(record, base) if base in _OF_SERIES else []
    if len(found) < 2:
        return ""
    after = f"; the next is {base}-{number + 1}.svg" if number < len(found) else ""
    return f"{number} of {len(found)}, {found[number - 1].title}{after}"


def _numbered(name: str) -> tuple[str, int]:
    """Return the name of a chart without its number, and that number."""
    base, _, number = name.rpartition("-")
    return (base, int(number)) if base in _OF_SERIES and number.isdecimal() else (name, 1)


def _of_series(record: Report | RunReport, name: str) -> list[Chart]:
    multi_run = record.multi_run if isinstance(record, Report) else None
    return _OF_SERIES[name](multi_run.series if multi_run else [])


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
