"""Single values as traces write them: an id as a number or a string, a count that may be missing."""

from typing import Any


def integer(value: Any, default: int) -> int:
    """Return an id as int64; `default` where it is missing or is none."""
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 20:
        value = int(value)
    return value if type(value) is int and 0 <= value < 2**63 else default


def natural(value: Any) -> int | None:
    """Return a count; None where it is missing or is none."""
    count = integer(value, -1)
    return None if count < 0 else count


def text(value: Any) -> str | None:
    """Return a word; None where it is missing or empty."""
    return None if value is None or value == "" else str(value)
