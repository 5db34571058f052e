"""Wraps text on the terminal so that figures keep their units."""

import re
from typing import Final

from rich.console import Console
from rich.text import Text

from perfkit.report.renderers.text_limit import limited

UNBROKEN: Final = "\ue000"
"""Stands for a space at which a line is not broken: rich breaks at a no-break space too."""
_QUANTITY: Final = re.compile(r"\d (?=%|[nµm]?s\b|[kMGT]?B\b)[^ ]+")


def wrap(text: Text, console: Console, width: int) -> list[Text]:
    """Return the lines of a text, at most `width` cells wide, none of which ends between a figure and its unit.

    A very long text is cut.
    """
    whole = text.copy()
    whole.plain = _QUANTITY.sub(lambda found: found[0].replace(" ", UNBROKEN), limited(whole.plain))
    lines = list(whole.wrap(console, width))
    for line in lines:
        line.plain = line.plain.replace(UNBROKEN, " ")
        line.rstrip()
    return lines
