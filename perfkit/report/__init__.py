"""Reporters: each takes a finished report and a stream, and writes. None of them analyses anything.

A new format is a module with `write(report, stream, *, top)` and a row in `REPORTERS`.
"""

from importlib import import_module
from typing import BinaryIO, Final, Protocol, TextIO, TypeVar, cast

from perfkit.model.comparison import Comparison
from perfkit.model.history import History
from perfkit.model.peer import PeerTable
from perfkit.model.report import Report

REPORTERS: Final[dict[str, str]] = {
    "rich": "perfkit.report.console:write",
    "json": "perfkit.report.report_json:write",
    "markdown": "perfkit.report.markdown:write",
    "csv": "perfkit.report.steps_csv:write",
    "points": "perfkit.report.points_csv:write",
    "axes": "perfkit.report.axes_csv:write",
    "html": "perfkit.report.html:write",
    "extrap": "perfkit.report.extrap:write",
    "talp": "perfkit.report.talp:write",
}
"""Format to `module:function`; a module is imported when its format is asked for."""

BINARY_REPORTERS: Final[dict[str, str]] = {
    "parquet": "perfkit.report.parquet:write_steps",
    "points-parquet": "perfkit.report.parquet:write_points",
    "axes-parquet": "perfkit.report.parquet:write_axes",
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
    "rich": "perfkit.report.comparison:write_rich",
    "markdown": "perfkit.report.comparison:write_markdown",
    "json": "perfkit.report.report_json:write",
    "html": "perfkit.report.comparison:write_html",
    "junit": "perfkit.report.gates:write_junit",
    "benchmark": "perfkit.report.gates:write_benchmark",
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
    "rich": "perfkit.report.history:write_rich",
    "markdown": "perfkit.report.history:write_markdown",
    "json": "perfkit.report.report_json:write",
    "html": "perfkit.report.history:write_html",
}
"""The same for what `perfkit history` says."""

HISTORY_SUFFIXES: Final[dict[str, str]] = {".json": "json", ".md": "markdown", ".html": "html", ".txt": "rich"}

PEER_REPORTERS: Final[dict[str, str]] = {
    "rich": "perfkit.report.peer:write_rich",
    "json": "perfkit.report.report_json:write",
    "csv": "perfkit.report.peer:write_csv",
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


def peer_reporter(name: str) -> Reporter[PeerTable]:
    """Return the reporter called `name` in `PEER_REPORTERS`."""
    return cast("Reporter[PeerTable]", _load(PEER_REPORTERS[name]))


def _load(target: str) -> object:
    module, _, function = target.partition(":")
    return getattr(import_module(module), function)
