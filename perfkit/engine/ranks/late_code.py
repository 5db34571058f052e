"""Name the line of the program that a late rank spends more time at than the others (metrics.md section 28)."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median

from msgspec.structs import replace

from perfkit.records.aggregate import MAJORITY
from perfkit.records.common import Category
from perfkit.records.cross_rank import Straggler
from perfkit.records.rank import RankReport
from perfkit.records.samples import CodeLocation, add_code

_Function = tuple[str, str]
"""File and name."""


def name_code(stragglers: Sequence[Straggler], ranks: Sequence[RankReport]) -> list[Straggler]:
    """Return the stragglers, each with the line of the function in which it is longer by half of its lag or more.

    It is compared with the ranks that are never late; where there are none, or ranks take turns, with nothing.
    """
    by_rank = {rank.rank: rank for rank in ranks if rank.rank is not None}
    late = {row.rank for row in stragglers}
    on_time = [rank for number, rank in by_rank.items() if number not in late and rank.code]
    return [replace(row, code=_code(row, by_rank[row.rank], [] if row.in_turns else on_time)) for row in stragglers]


def _code(row: Straggler, rank: RankReport, on_time: Sequence[RankReport]) -> CodeLocation | None:
    own = _mean_ns(rank, row.category)
    usual = [_mean_ns(other, row.category) for other in on_time]
    longer = {key: ns - median([other.get(key, 0.0) for other in usual] or [0.0]) for key, ns in own.items()}
    longest = max(longer, key=lambda key: longer[key], default=None)
    if longest is None or longer[longest] < MAJORITY * row.in_category_ns * row.steps_late / row.steps:
        return None
    return add_code(code for code in _codes(rank, row.category) if _key(code) == longest)


def _codes(rank: RankReport, category: Category) -> list[CodeLocation]:
    """Return where a rank spends the time of a category; of data loading also in workers that it waits for."""
    if category == "data_loading" and rank.loading is not None and rank.loading.parts:
        return [part.code for part in rank.loading.parts if part.code is not None]
    return [one.code for one in rank.code if one.category == category]


def _key(code: CodeLocation) -> _Function:
    return code.file, code.function


def _mean_ns(rank: RankReport, category: Category) -> Mapping[_Function, float]:
    """Return the time per step of each function in a category."""
    steps, total = len(rank.steps) or 1, defaultdict[_Function, float](float)
    for code in _codes(rank, category):
        total[_key(code)] += code.ns / steps
    return total
