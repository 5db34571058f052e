"""The two sides that are compared: late ranks, and the others of those that collectives link with them."""

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Final, NamedTuple

from perfkit.insights.run_context import RunContext
from perfkit.schema.cross_rank import Straggler
from perfkit.schema.rank import RankReport
from perfkit.util.formatting import rank_list

_MOST_OF_LAG: Final = 1.5
"""Mean excess over the lag, a median, beyond which single steps take most of it: they are not why a rank is late."""


class Sides(NamedTuple):
    """Ranks that are compared, each with steps."""

    own: list[RankReport]
    others: list[RankReport]
    lag_ns: float
    """What the former need longer per step, on average."""
    whom: str
    """The latter in words."""


def compare(context: RunContext, rows: Sequence[Straggler], late: Sequence[Straggler]) -> Sides | None:
    """Return some late ranks and those that are not late; None where their means do not show why they are.

    Args:
        context: the run.
        rows: the late ranks of one category that are compared.
        late: all late ranks.
    """
    stages = _stages(context)
    if stages is None:
        return None
    by_rank = {rank.rank: rank for rank in context.run.ranks if rank.steps and rank.rank is not None}
    own = [by_rank[row.rank] for row in rows if row.rank in by_rank]
    linked = {rank for row in rows for rank in row.delays} or set(by_rank)
    at = [stages.get(row.rank) for row in rows]
    prompt = set(by_rank) - {row.rank for row in late}
    compared = [number for number in prompt & linked if stages.get(number) in at]
    others = [by_rank[number] for number in compared]
    lag_ns, category = fmean(row.lag_ns for row in rows), rows[0].category
    if not own or not others or _mean_ns(own, category) - _mean_ns(others, category) > _MOST_OF_LAG * lag_ns:
        return None
    return Sides(own, others, lag_ns, "the others" if prompt == set(compared) else rank_list(compared))


def _stages(context: RunContext) -> dict[int, list[int]] | None:
    """Return the stages of each rank of a pipeline, which differ by design; None if they are unknown."""
    pipelined = any("pp" in one.parts for one in context.dimensions())
    stages = {row.rank: row.stages for pipeline in context.run.pipelines for row in pipeline.ranks}
    return None if pipelined and not stages else stages


def _mean_ns(ranks: Iterable[RankReport], category: str) -> float:
    return fmean(getattr(step.exposed_ns, category) for rank in ranks for step in rank.steps)


def count_steps(ranks: Iterable[RankReport]) -> int:
    """Return the number of their steps, summed over ranks."""
    return sum(len(rank.steps) for rank in ranks)
