"""The two sides that are compared: the late ranks, and the others."""

from collections.abc import Collection, Iterable

from perfkit.insights.run_context import RunContext
from perfkit.schema.rank import RankReport


def divide(context: RunContext, late: Collection[int]) -> tuple[list[RankReport], list[RankReport]]:
    """Return the late ranks and the others, those without steps left out."""
    ranks = [rank for rank in context.run.ranks if rank.steps]
    return [rank for rank in ranks if rank.rank in late], [rank for rank in ranks if rank.rank not in late]


def count_steps(ranks: Iterable[RankReport]) -> int:
    """Return the number of their steps, summed over ranks."""
    return sum(len(rank.steps) for rank in ranks)
