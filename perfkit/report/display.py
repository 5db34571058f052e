"""Display of records in notebooks: HTML and text, plotly figures, pandas tables."""

from typing import TYPE_CHECKING, Any

from perfkit.records.comparison import History

if TYPE_CHECKING:
    from perfkit.report.dataframes import DataFrames


def html(record: Any) -> str:
    """Return a record as a fragment of HTML."""
    from perfkit.report.renderers import notebook

    return notebook.html(record)


def text(record: Any) -> str:
    """Return a record as plain text, one line per run."""
    from perfkit.report.renderers import notebook

    return notebook.text(record)


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
