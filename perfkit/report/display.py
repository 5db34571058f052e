"""Display of records in notebooks: fragments of HTML without scripts, text, plotly figures, pandas tables.

What a display needs is imported on use.
"""

from typing import TYPE_CHECKING, Any, Final

from perfkit.records.comparison import Comparison, History
from perfkit.records.report import Report
from perfkit.records.run import RunReport
from perfkit.report import build_document

if TYPE_CHECKING:
    from perfkit.report.dataframes import DataFrames

_ROWS: Final = 5
"""Rows in ranked tables; the DataFrames have all."""
_MOST_RUNS: Final = 20

Shown = Report | RunReport | Comparison | History


def html(record: Shown) -> str:
    """Return a record as a fragment of HTML; text from a trace is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    from perfkit.tables.labels import COLOURS

    page = Environment(
        loader=PackageLoader("perfkit.report", "assets"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    doc = build_document(record, _ROWS)
    values = {"comparison": doc.comparison, "findings": doc.findings, "sections": doc.sections[:_MOST_RUNS]}
    left = max(0, len(doc.sections) - _MOST_RUNS)
    return page.get_template("notebook.html.j2").render(**values, left=left, colours=COLOURS)


def text(record: Shown) -> str:
    """Return a record as plain text, one line per run."""
    return "\n".join(f"{section.title}: {section.headline}" for section in build_document(record, _ROWS).sections)


def figure(record: Any, name: Any) -> Any:
    """Return a chart of a record as a plotly figure."""
    if isinstance(record, History):
        from perfkit.report.views.history import plot_steps

        return plot_steps(record)
    from perfkit.report.charts.run import plot

    return plot(record, name)


def tables(record: Any) -> "DataFrames":
    """Return the tables of a report as pandas DataFrames."""
    from perfkit.report.dataframes import dataframes

    return dataframes(record)
