"""What the names of trace files tell."""

import re
from typing import Final

_RANK: Final = re.compile(r"rank[-_.]?(\d{1,9})(?!\d)", re.IGNORECASE)


def rank_in_name(file: str) -> int | None:
    """Return the rank that a trace's file name tells, if it does."""
    found = _RANK.search(file.rsplit("/", 1)[-1])
    return int(found.group(1)) if found else None


def without_suffix(file: str) -> str:
    """Return a trace's file name without what says its format; other dots stay."""
    return file.removesuffix(".gz").removesuffix(".zst").removesuffix(".json")
