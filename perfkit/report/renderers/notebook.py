"""Renders records for Jupyter: a fragment of HTML without scripts, with the same tables as elsewhere."""

from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from perfkit.records.comparison import Comparison, History
from perfkit.records.report import Report
from perfkit.records.run import RunReport
from perfkit.report import build_document
from perfkit.tables.labels import COLOURS

_ROWS: Final = 5
"""Rows in ranked tables; the DataFrames have all."""
_MOST_RUNS: Final = 20

Shown = Report | RunReport | Comparison | History


def html(record: Shown) -> str:
    """Return `record` as a fragment of HTML; text from a trace is escaped."""
    page = Environment(
        loader=PackageLoader("perfkit.report", "assets"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    doc = build_document(record, _ROWS)
    shown = doc.sections[:_MOST_RUNS]
    left = len(doc.sections) - len(shown)
    values: dict[str, Any] = {"comparison": doc.comparison, "findings": doc.findings, "sections": shown, "left": left}
    values["colours"] = COLOURS
    return page.get_template("notebook.html.j2").render(values)


def text(record: Shown) -> str:
    """Return `record` as plain text, one line per run."""
    return "\n".join(f"{section.title}: {section.headline}" for section in build_document(record, _ROWS).sections)
