"""Reporters: each writes a finished record to a stream. None of them analyses anything.

To add a format, write a function `write(record, stream, *, top)` and add a row to `FORMATS`. Other packages add formats
through the entry-point group `perfkit.reporters`: an object with the attributes of `Reporter`.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from perfkit.errors import PerfkitError, UsageError
from perfkit.plugins import Registry, resolve
from perfkit.records.benchmark import CollectiveBenchmark, InputBenchmark
from perfkit.records.comparison import Comparison, History
from perfkit.records.hang import Diagnosis
from perfkit.records.per_run.whatif import WhatIf
from perfkit.records.plan import Plan
from perfkit.records.report import Report
from perfkit.records.run import RunReport
from perfkit.records.tools import ExternalTable
from perfkit.subjects.table import asked_subjects

if TYPE_CHECKING:
    from perfkit.report.content.document import Document
    from perfkit.tables.charts import PageCharts
    from perfkit.tables.specification import Listing, Table

DEFAULT_TOP: Final = 10

LISTINGS: Final[dict[str, str]] = {
    "steps": "perfkit.subjects.steps.tables",
    "ranks": "perfkit.subjects.ranks.tables",
    "operators": "perfkit.subjects.work.tables",
    "collectives": "perfkit.subjects.collectives.tables",
    "dimensions": "perfkit.subjects.collectives.tables",
    "issued_collectives": "perfkit.subjects.sharding.tables",
    "parameter_gathers": "perfkit.subjects.sharding.tables",
    "loads": "perfkit.subjects.input.tables",
    "idle": "perfkit.subjects.idle.tables",
    "roofline": "perfkit.subjects.roofline.tables",
    "critical_path": "perfkit.subjects.critical_path.tables",
    "memory": "perfkit.subjects.memory.tables",
    "memory_holders": "perfkit.subjects.memory.tables",
    "pipelines": "perfkit.subjects.pipelines.tables",
    "findings": "perfkit.report.content.run_facts",
    "points": "perfkit.report.content.scaling",
    "options": "perfkit.report.content.options",
}
"""Tables of a report for CSV, Parquet and DataFrames, each with the module that declares it."""


class Reporter(Protocol):
    """One format of one record type; what an entry point of `perfkit.reporters` must be."""

    @property
    def record(self) -> type:
        """Record type that `write` takes, a key of `FORMATS`: `Report`, `Comparison`, `History` and others."""

    @property
    def suffixes(self) -> tuple[str, ...]:
        """File suffixes that select the format; the longest match wins."""

    @property
    def binary(self) -> bool:
        """Whether `write` takes a binary stream."""

    def write(self, record: Any, stream: Any, *, top: int) -> None:
        """Write `record` to `stream`, with at most `top` rows in its ranked tables."""


@dataclass(frozen=True, slots=True)
class BuiltinReporter:
    """A row of `FORMATS`; its module is imported on first use."""

    record: type
    target: str
    """`module:function` below `perfkit.report`."""
    suffixes: tuple[str, ...]
    binary: bool = False
    requires: str = ""
    """`module:function` that raises if a package the format needs is missing."""
    table: str = ""
    """What the format is of, if that is a single table: a key of `LISTINGS`, or `module:name` of a listing."""
    figure: str = ""
    """Likewise, of a chart: its name, for which a file is named."""

    def write(self, record: Any, stream: Any, *, top: int) -> None:
        """Write `record` to `stream`."""
        if self.table:  # all rows of it
            _load(self.target)(record, stream, listing(self.table))
        elif self.figure:
            _load(self.target)(record, stream, self.figure)
        else:
            _load(self.target)(record, stream, top=top)


_DRAWN: Final = {
    "rich": ("renderers.console:write", (".txt",)),
    "json": ("exporters.json_export:write", (".json",)),
    "markdown": ("renderers.markdown:write", (".md", ".markdown")),
    "html": ("renderers.html:write", (".html",)),
}
"""Formats of any record with a document."""


def _rows(record: type, *names: str, **others: BuiltinReporter) -> dict[str, BuiltinReporter]:
    return {name: others.get(name) or BuiltinReporter(record, *_DRAWN[name]) for name in (*names, *others)}


def _csv(table: str, suffix: str, record: type = Report) -> BuiltinReporter:
    return BuiltinReporter(record, "exporters.tables:write_csv", (suffix,), table=table)


def _parquet(table: str, suffix: str) -> BuiltinReporter:
    requires = "exporters.tables:require_pyarrow"
    return BuiltinReporter(Report, "exporters.tables:write_parquet", (suffix,), True, requires, table)


FORMATS: Final[dict[type, dict[str, BuiltinReporter]]] = {
    Report: {
        "summary": BuiltinReporter(Report, "renderers.answer:write", ()),
        **_rows(Report, "rich", "json", "markdown"),
        "csv": _csv("steps", ".csv"),
        "collectives": _csv("issued_collectives", ".collectives.csv"),
        "dimensions": _csv("dimensions", ".dimensions.csv"),
        "parameter_gathers": _csv("parameter_gathers", ".parameter_gathers.csv"),
        "idle": _csv("idle", ".idle.csv"),
        "roofline": _csv("roofline", ".roofline.csv"),
        "points": _csv("points", ".points.csv"),
        "options": _csv("options", ".options.csv"),
        "pipelines": _csv("pipelines", ".pipelines.csv"),
        **_rows(Report, "html"),
        "extrap": BuiltinReporter(Report, "exporters.extrap:write", (".extrap.jsonl",)),
        "talp": BuiltinReporter(Report, "exporters.talp:write", (".talp.json",)),
        "parquet": _parquet("steps", ".parquet"),
        "idle-parquet": _parquet("idle", ".idle.parquet"),
        "points-parquet": _parquet("points", ".points.parquet"),
        "options-parquet": _parquet("options", ".options.parquet"),
        "svg": BuiltinReporter(Report, "exporters.picture:write_svg", (".svg",), figure="scaling"),
    },
    Comparison: _rows(
        Comparison,
        *("rich", "markdown", "json", "html"),
        junit=BuiltinReporter(Comparison, "exporters.ci:write_junit", (".xml",)),
        benchmark=BuiltinReporter(Comparison, "exporters.ci:write_benchmark", (".benchmark.json",)),
    ),
    History: _rows(History, "rich", "markdown", "json", "html"),
    ExternalTable: _rows(
        ExternalTable,
        *("rich", "json"),
        csv=BuiltinReporter(ExternalTable, "exporters.tables:write_external", (".csv",)),
    ),
    Plan: _rows(Plan, "rich", "markdown", "json", "html"),
    CollectiveBenchmark: _rows(
        CollectiveBenchmark,
        *("rich", "json", "markdown", "csv", "html"),
        csv=_csv("views.collectives:MEASUREMENTS", ".csv", CollectiveBenchmark),
    ),
    InputBenchmark: _rows(
        InputBenchmark,
        *("rich", "json", "markdown", "csv", "html"),
        csv=_csv("views.input:MEASUREMENTS", ".csv", InputBenchmark),
    ),
    WhatIf: _rows(WhatIf, "rich", "markdown", "json"),
    Diagnosis: _rows(Diagnosis, "rich", "markdown", "json"),
}
"""Record type to format name to reporter."""

DOCUMENTS: Final[dict[type, str]] = {
    Report: "content.report:document",
    RunReport: "content.report:run_document",
    Comparison: "views.comparison:document",
    History: "views.history:document",
    ExternalTable: "views.external_tool:document",
    Plan: "views.plan:document",
    CollectiveBenchmark: "views.collectives:document",
    InputBenchmark: "views.input:document",
    WhatIf: "views.whatif:document",
    Diagnosis: "views.diagnosis:document",
}
"""Record type to `function(record, top) -> Document`: what the console, markdown, HTML and notebook renderers draw."""

CHARTS: Final[dict[type, str]] = {
    Report: "charts.run:page_charts",
    Comparison: "views.comparison:page_charts",
    History: "views.history:page_charts",
    CollectiveBenchmark: "views.collectives:page_charts",
    InputBenchmark: "views.input:page_charts",
    Plan: "charts.plan:page_charts",
}
"""Record type to `function(record) -> PageCharts`: the charts of its HTML page."""


def _find_problem(_name: str, candidate: Any) -> str | None:
    """Return what is wrong with a plug-in's reporter, or None."""
    if isinstance(candidate, type):
        return "is a class: the entry point must be an instance of it"
    if getattr(candidate, "record", None) not in FORMATS:
        return "has no `record` that is one of the types of perfkit.report.FORMATS"
    if not isinstance(getattr(candidate, "suffixes", None), tuple):
        return "has no tuple of `suffixes`"
    if not isinstance(getattr(candidate, "binary", None), bool):
        return "has no bool `binary`"
    return None if callable(getattr(candidate, "write", None)) else "has no method `write`"


PLUGINS: Final[Registry[Reporter]] = Registry(
    "perfkit.reporters", "reporter", {}, _find_problem, reserved={name for rows in FORMATS.values() for name in rows}
)
"""Formats of other packages; those of perfkit are in `FORMATS`."""


@dataclass(frozen=True, slots=True)
class _PluginReporter:
    """A plug-in's reporter, whose failure is an error of the plug-in."""

    record: type
    suffixes: tuple[str, ...]
    binary: bool
    name: str
    reporter: Reporter

    @classmethod
    def of(cls, name: str, reporter: Reporter) -> Reporter:
        return cls(reporter.record, reporter.suffixes, reporter.binary, name, reporter)

    def write(self, record: Any, stream: Any, *, top: int) -> None:
        with PLUGINS.guarded(self.name, own=(PerfkitError, OSError)):
            self.reporter.write(record, stream, top=top)


def format_names(record: type) -> tuple[str, ...]:
    """Return the text formats of a record type, then the names of all plug-ins. Imports no plug-in."""
    return (*(name for name, row in FORMATS[record].items() if not row.binary), *PLUGINS.plugin_names())


def builtin_suffixes(record: type) -> tuple[str, ...]:
    """Return the file suffixes of a record type's built-in formats."""
    return tuple(suffix for row in FORMATS[record].values() for suffix in row.suffixes)


def reporter(record: type, name: str) -> Reporter:
    """Return the reporter of a record type called `name`.

    Raises:
        UsageError: `name` is unknown, or the plug-in of that name writes another record type.
        PluginError: the plug-in cannot be loaded.
        LaunchEnvironmentError: the format needs a package that is not installed.
    """
    builtin = FORMATS[record].get(name)
    if builtin:
        if builtin.requires:
            _load(builtin.requires)()
        return builtin
    if name not in PLUGINS.plugin_names():
        raise UsageError(f"unknown output format {name!r}: choose from {', '.join(format_names(record))}")
    plugin = PLUGINS.load(name)
    if plugin.record is not record:
        raise UsageError(f"format {name!r} writes a {plugin.record.__name__}, not a {record.__name__}")
    return _PluginReporter.of(name, plugin)


def reporter_for(record: type, path: Path) -> Reporter:
    """Return the reporter that the suffix of `path` selects. Plug-ins are loaded if no built-in format has the suffix.

    Raises:
        UsageError: no format has the suffix.
        LaunchEnvironmentError: the format needs a package that is not installed.
    """
    builtin = _longest_match(path, ((name, row) for name, row in FORMATS[record].items()))
    if builtin:
        chosen = reporter(record, builtin[0])
        return _of_figure(chosen, path) if isinstance(chosen, BuiltinReporter) and chosen.figure else chosen
    plugins = [(name, plugin) for name, plugin in PLUGINS.load_plugins() if plugin.record is record]
    if found := _longest_match(path, iter(plugins)):
        return _PluginReporter.of(*found)
    if path.suffix.lower() == ".png" and record is Report:
        raise UsageError(
            f"-o {path}: no PNG from the command line: write .svg, or press PNG beside a chart of the page"
        )
    suffixes = (*builtin_suffixes(record), *(suffix for _, plugin in plugins for suffix in plugin.suffixes))
    raise UsageError(f"-o {path}: unknown output format: use {', '.join(suffixes)}")


def _of_figure(row: BuiltinReporter, path: Path) -> BuiltinReporter:
    """Return the format of the chart that a file is named after: `scaling.svg`, `talk.scaling.svg`.

    Raises:
        UsageError: no chart has the name.
    """
    name = path.stem.rpartition(".")[2]
    _load("charts.run:check_figure")(name)
    return replace(row, figure=name)


def _longest_match(path: Path, rows: Iterator[tuple[str, Reporter]]) -> tuple[str, Reporter] | None:
    name = path.name.lower()
    matches = [(len(suffix), row) for row in rows for suffix in row[1].suffixes if name.endswith(suffix.lower())]
    return max(matches, key=lambda match: match[0])[1] if matches else None


def build_document(record: Any, top: int) -> "Document":
    """Return what is shown of a record, with at most `top` rows in its ranked tables."""
    document: Document = _load(DOCUMENTS[type(record)])(record, top)
    return document


def subject_tables(run: RunReport, top: int, subjects: Collection[str] | None = None) -> "list[Table]":
    """Return the tables of a run about some subjects (None: all), with at most `top` rows in ranked ones."""
    found = (subject.tables for _, subject in asked_subjects(subjects) if subject.tables)
    return [table for tables in found for table in resolve(tables)(run, top) if table]


def listing(name: str) -> "Listing":
    """Return a table for files: one of `LISTINGS`, or `module:name` of another."""
    found = _load(name) if ":" in name else resolve(f"{LISTINGS[name]}:LISTINGS")[name]
    listing: Listing = found
    return listing


def build_charts(record: Any) -> "PageCharts":
    """Return the charts of a record's page."""
    charts: PageCharts = _load(CHARTS[type(record)])(record)
    return charts


def _load(target: str) -> Any:
    """Return what `module:name` below `perfkit.report` names; the module is imported on first use."""
    return resolve(f"perfkit.report.{target}")
