"""The line of the program that a row of the ledger is about: by samples of the main thread (metrics.md section 28)."""

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from perfkit.records.per_rank.loading import add_parts
from perfkit.records.per_run.ledger import LedgerCause
from perfkit.records.rank import RankReport
from perfkit.records.samples import CodeLocation, add_code

NAMED_SHARE: Final = 0.25
"""Share of a row from which its largest part is named."""


class _Late(Protocol):
    @property
    def code(self) -> CodeLocation | None: ...


def code_of(cause: LedgerCause, ranks: Sequence[RankReport], late: Sequence[_Late]) -> CodeLocation | None:
    """Return the location of most of a row; None if nothing was sampled, or nothing is large.

    Args:
        cause: of the row.
        ranks: the reports of all ranks.
        late: the late ranks, of their row.
    """
    if late:
        return _code_of_all(late)
    if cause == "data_loading":
        return _code_of_loading(ranks)
    rows = [row for rank in ranks if rank.steps for row in rank.idle.causes if row.cause == cause]
    return _if_large(add_code(row.code for row in rows), (row.total_ns for row in rows))


def _code_of_all(late: Sequence[_Late]) -> CodeLocation | None:
    """Return the location that all late ranks are late at."""
    texts = {row.code.text if row.code else None for row in late}
    return late[0].code if len(texts) == 1 else None


def _code_of_loading(ranks: Sequence[RankReport]) -> CodeLocation | None:
    parts = add_parts(part for rank in ranks if rank.loading is not None for part in rank.loading.parts)
    return _if_large(add_code(part.code for part in parts), (part.ns for part in parts))


def _if_large(code: CodeLocation | None, parts_ns: Iterable[int]) -> CodeLocation | None:
    return code if code is not None and code.ns >= NAMED_SHARE * sum(parts_ns) else None
