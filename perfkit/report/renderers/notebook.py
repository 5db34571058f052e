"""What a report shows of itself in Jupyter: a fragment of HTML without scripts, the same tables as elsewhere."""

from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from perfkit.report import build_document
from perfkit.schema.comparison import Comparison
from perfkit.schema.history import History
from perfkit.schema.report import Report
from perfkit.schema.run import RunReport

_ROWS: Final = 5
"""Of ranked tables; the rest is in the DataFrames."""
_MOST_RUNS: Final = 20

Shown = Report | RunReport | Comparison | History


def html(record: Shown) -> str:
    """Return `record` as a fragment of HTML; what is in a trace is escaped."""
    page = Environment(
        loader=PackageLoader("perfkit.report", "assets"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    doc = build_document(record, _ROWS)
    shown = doc.sections[:_MOST_RUNS]
    left = len(doc.sections) - len(shown)
    values: dict[str, Any] = {"comparison": doc.comparison, "findings": doc.findings, "sections": shown, "left": left}
    return page.get_template("notebook.html.j2").render(values)


def text(record: Shown) -> str:
    """Return `record` in a line a run, for where only text is shown."""
    return "\n".join(f"{section.title}: {section.headline}" for section in build_document(record, _ROWS).sections)
