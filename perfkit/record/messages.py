"""Status lines, warnings and errors of a recording: one line each on stderr, since stdout may be a script's own.

They go through the logger `perfkit.record`, which shows them whether or not the program configures `logging`.
"""

import logging
from typing import Final

from perfkit.base.formatting import escape_unprintable, text_of
from perfkit.base.log import STATUS, always_show
from perfkit.errors import PerfkitError
from perfkit.record.out_of_memory import describe_out_of_memory

_LOG: Final = always_show("perfkit.record")


def print_status(text: str, *, bare: bool = False) -> None:
    """Print a status line, `perfkit: TEXT`; `bare` leaves the prefix out."""
    _print(STATUS, text, bare=bare)


def print_warning(text: str) -> None:
    _print(logging.WARNING, text)


def print_error(text: str) -> None:
    _print(logging.ERROR, text)


def _print(level: int, text: str, *, bare: bool = False) -> None:
    """Show a line although a script has disabled logging, or all loggers that it does not name (`dictConfig`)."""
    if level >= _LOG.getEffectiveLevel():
        record = _LOG.makeRecord(_LOG.name, level, __file__, 0, "%s", (text,), None, extra={"bare": bare})
        for handler in _LOG.handlers:
            handler.handle(record)


def one_line(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if short := describe_out_of_memory(error):
        return escape_unprintable(short)
    text = escape_unprintable(" ".join(text_of(error).split()))
    if isinstance(error, PerfkitError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
