"""Display of records in notebooks: fragments of HTML without scripts, text, plotly figures, pandas tables.

What a display needs is imported on use.
"""

from io import StringIO
from typing import TYPE_CHECKING, Any, Final

from perfkit.records.comparison import History
from perfkit.records.report import Report
from perfkit.records.run import RunReport
from perfkit.report import build_document

if TYPE_CHECKING:
    from perfkit.report.dataframes import DataFrames

_ROWS: Final = 5
"""Rows in ranked tables; the DataFrames have all."""
_MOST_RUNS: Final = 20


def html(record: Any) -> str:
    """Return a record as a fragment of HTML; text from a trace is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    from perfkit.tables.labels import COLOURS

    page = Environment(
        loader=PackageLoader("perfkit.report", "assets"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    doc = build_document(record, _ROWS)
    values = {"headlines": doc.headlines, "comparison": doc.opening + doc.comparison}
    values |= {"findings": doc.first + doc.findings, "sections": doc.sections[:_MOST_RUNS]}
    left = max(0, len(doc.sections) - _MOST_RUNS)
    return page.get_template("notebook.html.j2").render(**values, left=left, colours=COLOURS)


def text(record: Any) -> str:
    """Return the summary of a record as plain text, as wide as the terminal."""
    from perfkit.report.renderers import answer, console

    stream = StringIO()
    if isinstance(record, Report | RunReport):
        report = record if isinstance(record, Report) else Report(perfkit_version="", runs=[record])
        answer.write(report, stream, top=_ROWS)
    else:
        console.write_summary(record, stream)
    return "\n".join(line.rstrip() for line in stream.getvalue().rstrip().splitlines())


def figure(record: Any, name: Any) -> Any:
    """Return a chart of a record as a plotly figure."""
    if isinstance(record, History):
        from perfkit.report.views.history import plot_steps

        return plot_steps(record)
    from perfkit.report.charts.run import chart

    return chart(record, name).figure()


def tables(record: Any) -> "DataFrames":
    """Return the tables of a report as pandas DataFrames."""
    from perfkit.report.dataframes import dataframes

    return dataframes(record)
