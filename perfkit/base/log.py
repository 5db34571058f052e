"""perfkit's log: the `logging` hierarchy under `perfkit`, as plain lines on stderr.

A warning is one line, `perfkit: warning: …`. A status line, which is always shown, has no level: `perfkit: …`. The
command line calls `configure`; a program that uses perfkit as a library configures `logging` as it likes.
"""

import logging
import sys
from typing import Final, TextIO

from perfkit.base.formatting import escape_unprintable

ROOT: Final = "perfkit"
STATUS: Final = 25
"""Level of status lines: above INFO, so that they are shown by default; below WARNING."""

_LEVELS: Final = (STATUS, logging.INFO, logging.DEBUG)
"""Lowest level that is shown, by verbosity."""


class PlainFormatter(logging.Formatter):
    """Formats a record as one line of printable text, `perfkit: LEVEL: MESSAGE`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; a record with the attribute `bare` is its message alone."""
        text = escape_unprintable(" ".join(record.getMessage().split()))
        if getattr(record, "bare", False):
            return text
        level = "" if record.levelno == STATUS else f"{record.levelname.lower()}: "
        return f"perfkit: {level}{text}"


class StderrHandler(logging.StreamHandler[TextIO]):
    """Writes to what `sys.stderr` is when a record arrives; a line that cannot be written is dropped."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)
        self.setFormatter(PlainFormatter())

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        return sys.stderr

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # logging's name
        """Do nothing: there is no other place to report it."""


def configure(verbosity: int = 0) -> None:
    """Show perfkit's log on stderr; called again it only changes the verbosity.

    Args:
        verbosity: 0 shows status lines and warnings, 1 (`-v`) also INFO, 2 (`-vv`) also DEBUG.
    """
    logger = logging.getLogger(ROOT)
    _attach_handler(logger)
    logger.setLevel(_LEVELS[max(0, min(verbosity, len(_LEVELS) - 1))])


def always_show(name: str) -> logging.Logger:
    """Return the logger `name`, below `perfkit`, whose records go to stderr and nowhere else, configured or not."""
    logger = logging.getLogger(name)
    _attach_handler(logger)
    logger.propagate = False
    root = logging.getLogger(ROOT)
    if root.level == logging.NOTSET:
        root.setLevel(STATUS)
    return logger


def _attach_handler(logger: logging.Logger) -> None:
    if not any(isinstance(handler, StderrHandler) for handler in logger.handlers):
        logger.addHandler(StderrHandler())
