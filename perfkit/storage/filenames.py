"""Parse the names of trace files."""

import re
from typing import Final

PERFETTO_SUFFIXES: Final = (".pftrace", ".perfetto-trace")
"""Of timelines in Perfetto's own format, which merging writes."""

_RANK: Final = re.compile(r"rank[-_.]?(\d{1,9})(?!\d)", re.IGNORECASE)
_LOCAL: Final = re.compile(r"(local|node)[-_.]?$", re.IGNORECASE)
"""Precedes a local rank, or the number of a node."""
_PARALLELISM: Final = re.compile(r"(?<![a-z])[a-z]{1,2}p[-_.]?$", re.IGNORECASE)
"""Precedes a rank within one kind of parallelism: dp, tp, pp, cp, ep, etp."""


def rank_in_name(file: str) -> int | None:
    """Return the rank in a trace's file name; None if it has none, or several different ones."""
    name = file.rsplit("/", 1)[-1]
    ranks = {(name[: match.start()], int(match.group(1))) for match in _RANK.finditer(name)}
    ranks = {(before, number) for before, number in ranks if not _LOCAL.search(before)}
    plain = {number for before, number in ranks if not _PARALLELISM.search(before)}
    if not plain and len(ranks) == 1:  # with only one kind of parallelism its ranks are the global ones
        plain = {number for _, number in ranks}
    return plain.pop() if len(plain) == 1 else None


def without_suffix(file: str) -> str:
    """Return a trace's file name without the suffixes of its format; other dots stay."""
    return file.removesuffix(".gz").removesuffix(".zst").removesuffix(".json").removesuffix(".sqlite")
