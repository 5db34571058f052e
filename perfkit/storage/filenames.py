"""What the names of trace files tell."""

import re
from typing import Final

_RANK: Final = re.compile(r"rank[-_.]?(\d{1,9})(?!\d)", re.IGNORECASE)
_PLACE: Final = re.compile(r"(local|node)[-_.]?$", re.IGNORECASE)
"""Before what is a rank on its host, or the number of a host."""
_AXIS: Final = re.compile(r"(?<![a-z])[a-z]{1,2}p[-_.]?$", re.IGNORECASE)
"""Before a rank of one kind of parallelism: dp, tp, pp, cp, ep, etp."""


def rank_in_name(file: str) -> int | None:
    """Return the rank that a trace's file name tells, if it does; a name that tells different ones tells none."""
    name = file.rsplit("/", 1)[-1]
    told = {(name[: found.start()], int(found.group(1))) for found in _RANK.finditer(name)}
    told = {(before, number) for before, number in told if not _PLACE.search(before)}
    plain = {number for before, number in told if not _AXIS.search(before)}
    if not plain and len(told) == 1:  # with one kind of parallelism its ranks are those of the world
        plain = {number for _, number in told}
    return plain.pop() if len(plain) == 1 else None


def without_suffix(file: str) -> str:
    """Return a trace's file name without what says its format; other dots stay."""
    return file.removesuffix(".gz").removesuffix(".zst").removesuffix(".json")
