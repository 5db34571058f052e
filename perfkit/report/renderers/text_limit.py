"""Limits how much of one text the terminal shows: a name in a trace may have any length."""

from typing import Final

from rich.text import Text

MOST_CHARACTERS: Final = 2_000
"""Of one cell or sentence. Characters, not cells: marks of no width count too."""


def limited(text: str) -> str:
    """Return `text`, or its start and an ellipsis if it is longer than `MOST_CHARACTERS`."""
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 1]}…"


def limited_text(text: str, style: str = "") -> Text:
    """Return as much of `text` as the terminal shows, for rich."""
    return Text(limited(text), style=style)
