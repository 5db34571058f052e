"""The terminal, or whatever stdout is, made ready for a report."""

import io
import sys
from typing import TextIO


def standard_output(name: str) -> TextIO:
    """Return stdout for the format `name`, set so that no name in a trace can break it and data is always UTF-8."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        if name == "rich":
            sys.stdout.reconfigure(errors="replace")
        else:
            sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")
    return sys.stdout
