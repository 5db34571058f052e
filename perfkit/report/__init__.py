"""Reporters: each takes a finished report and a stream, and writes. None of them analyses anything.

A new format is a module with `write(report, stream, *, top)` and a row in `REPORTERS`.
"""

from importlib import import_module
from typing import Final, Protocol, TextIO, cast

from perfkit.model import Report

REPORTERS: Final[dict[str, str]] = {
    "rich": "perfkit.report.console:write",
    "json": "perfkit.report.report_json:write",
    "markdown": "perfkit.report.markdown:write",
    "csv": "perfkit.report.steps_csv:write",
}
"""Format to `module:function`; a module is imported when its format is asked for."""

SUFFIXES: Final[dict[str, str]] = {
    ".json": "json",
    ".md": "markdown",
    ".markdown": "markdown",
    ".csv": "csv",
    ".txt": "rich",
}
"""File suffix to format."""

DEFAULT_TOP: Final = 10


class Reporter(Protocol):
    """A function that writes a report."""

    def __call__(self, report: Report, stream: TextIO, *, top: int) -> None:
        """Write `report` to `stream`, with at most `top` rows in its ranked tables."""


def reporter(name: str) -> Reporter:
    """Return the reporter called `name` in `REPORTERS`."""
    module, _, function = REPORTERS[name].partition(":")
    return cast("Reporter", getattr(import_module(module), function))
