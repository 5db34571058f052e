"""Text on the terminal: its styles, its length, and lines in which figures keep their units."""

import re
from io import StringIO
from typing import Final, TextIO

from rich.console import Console
from rich.text import Text

from perfkit.tables.specification import Tone

MIN_WIDTH: Final = 80
"""Columns. Narrower terminals wrap: numbers are never cut."""
STYLES: Final[dict[Tone, str]] = {
    "plain": "",
    "strong": "bold",
    "faint": "dim",
    "good": "green",
    "info": "cyan",
    "warning": "yellow",
    "error": "bold red",
}
MOST_CHARACTERS: Final = 2_000
"""Of one cell or sentence. Characters, not cells: marks of no width count too."""
UNBROKEN: Final = "\ue000"
"""Stands for a space at which a line is not broken: rich breaks at a no-break space too."""
_QUANTITY: Final = re.compile(r"\d (?=%|[nµm]?s\b|[kMGT]?B\b)[^ ]+")


def open_console(stream: TextIO, width: int | None) -> Console:
    """Return a console that writes to `stream`, in a notebook too; `width` None is that of the terminal.

    Text in memory has no colours, even if the environment asks for them, as that of a Jupyter kernel does.
    """
    in_memory = isinstance(stream, StringIO) and not stream.isatty()
    console = Console(
        file=stream,
        width=width,
        color_system=None if in_memory else "auto",
        highlight=False,
        markup=False,
        emoji=False,
        force_jupyter=False,
    )
    console.width = max(MIN_WIDTH, console.width)
    return console


def limited(text: str) -> str:
    """Return `text`, or its start and an ellipsis if it is longer than `MOST_CHARACTERS`."""
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 1]}…"


def limited_text(text: str, style: str = "") -> Text:
    """Return as much of `text` as the terminal shows, for rich."""
    return Text(limited(text), style=style)


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
