"""The two sides that are compared: late ranks, and the others of those that collectives link with them."""

from collections.abc import Iterable, Sequence
from statistics import fmean

from perfkit.insights.run_context import RunContext
from perfkit.schema.cross_rank import Straggler
from perfkit.schema.rank import RankReport


def divide(context: RunContext, late: Sequence[Straggler]) -> tuple[list[RankReport], list[RankReport]]:
    """Return the late ranks and the others, those without steps left out."""
    numbers = {row.rank for row in late}
    linked = {rank for row in late for rank in row.delays}  # empty: all
    ranks = [rank for rank in context.run.ranks if rank.steps]
    others = [rank for rank in ranks if rank.rank not in numbers and (not linked or rank.rank in linked)]
    return [rank for rank in ranks if rank.rank in numbers], others


def count_steps(ranks: Iterable[RankReport]) -> int:
    """Return the number of their steps, summed over ranks."""
    return sum(len(rank.steps) for rank in ranks)


def mean_lag_ns(late: Sequence[Straggler]) -> float:
    """Return what late ranks need longer per step, on average."""
    return fmean(row.lag_ns for row in late)
