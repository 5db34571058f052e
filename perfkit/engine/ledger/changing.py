"""Whether each step waits for what another rank does in some steps only, such as the collection of garbage."""

from collections.abc import Sequence
from typing import Final

from perfkit.records.aggregate import MAJORITY
from perfkit.records.rank import RankReport

_OF_HOST: Final = ("host_work", "not_running", "allocation", "compilation")
"""Causes that are something which the host does, and not work that is not there yet."""


def changes_ranks(cause: str, name: str, ranks: Sequence[RankReport]) -> bool:
    """Return whether in most steps one of several ranks is idle for what is so named, each in half of them at most."""
    if cause not in _OF_HOST:
        return False
    idle = [[row for row in rank.idle.causes if (row.cause, row.detail) == (cause, name)] for rank in ranks]
    counts = [sum(row.count for row in rows) for rows in idle]
    steps = max((len(rank.steps) for rank in ranks), default=0)
    there = [count for count in counts if count]
    return len(there) > 1 and max(there) <= MAJORITY * steps <= sum(there)
