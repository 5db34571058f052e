"""The verdict about a pipeline's bubble (metrics.md section 10)."""

from collections.abc import Collection, Sequence
from typing import Final

from msgspec import Struct

from perfkit.schema.per_run.heavy_stages import heavy_clause, heavy_in_all
from perfkit.schema.per_run.pipeline import Pipeline
from perfkit.util.formatting import escape_unprintable

_MAJORITY: Final = 0.5
"""Share of exposed communication from which the bubble is named in its place."""


class Bubble(Struct, frozen=True, kw_only=True):
    """The bubble of a run's pipelines."""

    share: float
    """Share of the step, over all ranks of pipelines."""
    details: str
    """What it consists of, in words."""


def find_bubble(pipelines: Sequence[Pipeline], ranks: int) -> Bubble | None:
    """Return the bubble if it is most of the exposed communication; None if it is not.

    Args:
        pipelines: those of the run.
        ranks: number of ranks with a trace; if some are in no pipeline, the bubble is not the run's.
    """
    rows = [rank for pipeline in pipelines for rank in pipeline.ranks]
    bubble_ns, wall_ns = sum(row.bubble_ns for row in rows), sum(row.wall_ns for row in rows)
    communication_ns = bubble_ns + sum(row.other_communication_ns for row in rows)
    if len(rows) < ranks or not wall_ns or bubble_ns <= _MAJORITY * communication_ns:
        return None
    return Bubble(share=bubble_ns / wall_ns, details=_details(pipelines))


def explains_stragglers(pipelines: Sequence[Pipeline], late: Collection[int]) -> bool:
    """Return whether the ranks that are late are those of stages that are heavy in all pipelines."""
    heavy = heavy_in_all(pipelines)
    if heavy is None:
        return False
    stages = {one.stage for one in heavy.all}
    ranks = {one.rank for own in pipelines if own.heavy for one in own.heavy.all if one.stage in stages}
    return bool(late) and ranks.issuperset(late)


def _details(pipelines: Sequence[Pipeline]) -> str:
    first = pipelines[0]
    schedule = f"{escape_unprintable(first.schedule)}, " if first.schedule else ""
    batches = f"{first.micro_batches} micro-batch{'es' if first.micro_batches != 1 else ''}"
    what = f"{schedule}{first.stages} stages, {batches}"
    heavy = heavy_in_all(pipelines)
    longer = f"; {heavy_clause(heavy)} than the others" if heavy else ""
    rows = [rank for pipeline in pipelines for rank in pipeline.ranks]
    ideal_ns = [rank.ideal_ns for rank in rows if rank.ideal_ns is not None]
    if len(ideal_ns) < len(rows):
        return what + longer
    share = sum(ideal_ns) / sum(rank.wall_ns for rank in rows)
    return f"{what}: {100 * share:.0f} % with equal stages and free transfers{longer}"
