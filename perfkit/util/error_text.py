"""The text of an error that another program's code has raised: its `__str__` may fail, or return anything."""

from typing import Final

_MOST_CHARACTERS: Final = 10_000
"""What is kept of a longer text, of which a line on the terminal and a file would become as long."""


def text_of(value: object) -> str:
    """Return the text of an error, encodable in UTF-8, with at most 10,000 characters of it."""
    try:
        text = str(value)
    except Exception:  # noqa: BLE001  foreign code
        return "its message cannot be shown"
    if len(text) > _MOST_CHARACTERS:
        text = f"{text[:_MOST_CHARACTERS]}… ({len(text):,} characters)"
    return text.encode("utf-8", "backslashreplace").decode()
