"""Reporters: each takes a finished report and a stream, and writes. None of them analyses anything.

A new format is a module with `write(report, stream, *, top)` and a row in `REPORTERS`.
"""

from importlib import import_module
from typing import BinaryIO, Final, Protocol, TextIO, TypeVar, cast

from perfkit.schema.comparison import Comparison
from perfkit.schema.external_tool import ExternalTable
from perfkit.schema.history import History
from perfkit.schema.report import Report

REPORTERS: Final[dict[str, str]] = {
    "rich": "perfkit.report.renderers.console:write",
    "json": "perfkit.report.exporters.json_export:write",
    "markdown": "perfkit.report.renderers.markdown:write",
    "csv": "perfkit.report.exporters.steps_csv:write",
    "points": "perfkit.report.exporters.points_csv:write",
    "axes": "perfkit.report.exporters.axes_csv:write",
    "html": "perfkit.report.renderers.html:write",
    "extrap": "perfkit.report.exporters.extrap:write",
    "talp": "perfkit.report.exporters.talp:write",
}
"""Format to `module:function`; a module is imported when its format is asked for."""

BINARY_REPORTERS: Final[dict[str, str]] = {
    "parquet": "perfkit.report.exporters.parquet:write_steps",
    "points-parquet": "perfkit.report.exporters.parquet:write_points",
    "axes-parquet": "perfkit.report.exporters.parquet:write_axes",
}
"""The same for what is no text, and goes to files only."""

SUFFIXES: Final[dict[str, str]] = {
    ".extrap.jsonl": "extrap",
    ".talp.json": "talp",
    ".json": "json",
    ".md": "markdown",
    ".markdown": "markdown",
    ".points.csv": "points",
    ".axes.csv": "axes",
    ".csv": "csv",
    ".points.parquet": "points-parquet",
    ".axes.parquet": "axes-parquet",
    ".parquet": "parquet",
    ".html": "html",
    ".txt": "rich",
}
"""File suffix to format; the first that fits."""

COMPARISON_REPORTERS: Final[dict[str, str]] = {
    "rich": "perfkit.report.views.comparison:write_rich",
    "markdown": "perfkit.report.views.comparison:write_markdown",
    "json": "perfkit.report.exporters.json_export:write",
    "html": "perfkit.report.views.comparison:write_html",
    "junit": "perfkit.report.exporters.ci:write_junit",
    "benchmark": "perfkit.report.exporters.ci:write_benchmark",
}
"""The same for what `perfkit compare` says."""

COMPARISON_SUFFIXES: Final[dict[str, str]] = {
    ".benchmark.json": "benchmark",
    ".json": "json",
    ".md": "markdown",
    ".html": "html",
    ".xml": "junit",
    ".txt": "rich",
}
"""File suffix to format; the first that fits."""

HISTORY_REPORTERS: Final[dict[str, str]] = {
    "rich": "perfkit.report.views.history:write_rich",
    "markdown": "perfkit.report.views.history:write_markdown",
    "json": "perfkit.report.exporters.json_export:write",
    "html": "perfkit.report.views.history:write_html",
}
"""The same for what `perfkit history` says."""

HISTORY_SUFFIXES: Final[dict[str, str]] = {".json": "json", ".md": "markdown", ".html": "html", ".txt": "rich"}

PEER_REPORTERS: Final[dict[str, str]] = {
    "rich": "perfkit.report.views.external_tool:write_rich",
    "json": "perfkit.report.exporters.json_export:write",
    "csv": "perfkit.report.views.external_tool:write_csv",
}
"""The same for what `perfkit hta` says."""

PEER_SUFFIXES: Final[dict[str, str]] = {".json": "json", ".csv": "csv", ".txt": "rich"}

DEFAULT_TOP: Final = 10


T = TypeVar("T", contravariant=True)


class Reporter(Protocol[T]):
    """A function that writes a report."""

    def __call__(self, report: T, stream: TextIO, *, top: int) -> None:
        """Write `report` to `stream`, with at most `top` rows in its ranked tables."""


class BinaryReporter(Protocol):
    """A function that writes a report as bytes."""

    def __call__(self, report: Report, stream: BinaryIO) -> None:
        """Write `report` to `stream`."""


def reporter(name: str) -> Reporter[Report]:
    """Return the reporter called `name` in `REPORTERS`."""
    return cast("Reporter[Report]", _load(REPORTERS[name]))


def binary_reporter(name: str) -> BinaryReporter:
    """Return the reporter called `name` in `BINARY_REPORTERS`."""
    return cast("BinaryReporter", _load(BINARY_REPORTERS[name]))


def comparison_reporter(name: str) -> Reporter[Comparison]:
    """Return the reporter called `name` in `COMPARISON_REPORTERS`."""
    return cast("Reporter[Comparison]", _load(COMPARISON_REPORTERS[name]))


def history_reporter(name: str) -> Reporter[History]:
    """Return the reporter called `name` in `HISTORY_REPORTERS`."""
    return cast("Reporter[History]", _load(HISTORY_REPORTERS[name]))


def peer_reporter(name: str) -> Reporter[ExternalTable]:
    """Return the reporter called `name` in `PEER_REPORTERS`."""
    return cast("Reporter[ExternalTable]", _load(PEER_REPORTERS[name]))


def _load(target: str) -> object:
    module, _, function = target.partition(":")
    return getattr(import_module(module), function)
