"""The line of the program that a row of the ledger is about, by samples of the main thread (metrics.md section 28).

And whether each step waits for what another rank does in some steps only, such as the collection of garbage.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from perfkit.records.aggregate import MAJORITY
from perfkit.records.cross_rank import Straggler
from perfkit.records.per_rank.loading import add_parts
from perfkit.records.per_run.ledger import LedgerCause
from perfkit.records.rank import RankReport
from perfkit.records.samples import CodeLocation, add_code

NAMED_SHARE: Final = 0.25
"""Share of a row from which its largest part is named."""
_OF_HOST: Final = ("host_work", "not_running", "allocation", "compilation")
"""Causes that are something which the host does, and not work that is not there yet."""


def code_of(cause: LedgerCause, ranks: Sequence[RankReport]) -> CodeLocation | None:
    """Return the location of most of a row; None if nothing was sampled, or nothing is large."""
    if cause == "data_loading":
        return _code_of_loading(ranks)
    rows = [row for rank in ranks if rank.steps for row in rank.idle.causes if row.cause == cause]
    return _if_large(add_code(row.code for row in rows), (row.total_ns for row in rows))


def code_of_all(late: Sequence[Straggler]) -> CodeLocation | None:
    """Return the location that all late ranks are late at."""
    texts = {row.code.text if row.code else None for row in late}
    return late[0].code if len(texts) == 1 else None


def _code_of_loading(ranks: Sequence[RankReport]) -> CodeLocation | None:
    parts = add_parts(part for rank in ranks if rank.loading is not None for part in rank.loading.parts)
    return _if_large(add_code(part.code for part in parts), (part.ns for part in parts))


def _if_large(code: CodeLocation | None, parts_ns: Iterable[int]) -> CodeLocation | None:
    return code if code is not None and code.ns >= NAMED_SHARE * sum(parts_ns) else None


def changes_ranks(cause: str, name: str, ranks: Sequence[RankReport]) -> bool:
    """Return whether in most steps one of several ranks is idle for what is so named, each in half of them at most."""
    if cause not in _OF_HOST:
        return False
    idle = [[row for row in rank.idle.causes if (row.cause, row.detail) == (cause, name)] for rank in ranks]
    counts = [sum(row.count for row in rows) for rows in idle]
    steps = max((len(rank.steps) for rank in ranks), default=0)
    there = [count for count in counts if count]
    return len(there) > 1 and max(there) <= MAJORITY * steps <= sum(there)
