"""The bubble of pipelines, as a row of the ledger (metrics.md section 10)."""

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from perfkit.records.cross_rank import CrossRankSummary, Straggler
from perfkit.records.per_run.pipeline import Pipeline, PipelineRank, heavy_in_all


def bubble_share(pipelines: Sequence[Pipeline], ranks: int, compared: CrossRankSummary | None) -> float:
    """Return the share of the step that is the bubble of pipelines, without waiting for late ranks; 0 if unknown.

    Args:
        pipelines: those of the run.
        ranks: number of ranks with a trace; if some are in no pipeline, the bubble is not the run's.
        compared: the comparison of ranks, with those that are late.
    """
    rows = [rank for pipeline in pipelines for rank in pipeline.ranks]
    wall_ns = sum(row.wall_ns for row in rows)
    if len(rows) < ranks or not wall_ns:
        return 0.0
    late = [row.rank for row in late_besides_stages(pipelines, compared)]
    own = without_late(pipelines, late, (compared.stragglers_gain_ns or 0) if compared else 0)
    return sum(rank.bubble_ns for pipeline in own for rank in pipeline.ranks) / wall_ns


def late_besides_stages(pipelines: Sequence[Pipeline], compared: CrossRankSummary | None) -> list[Straggler]:
    """Return the ranks that are late for another reason than that their stage is heavy."""
    late = compared.stragglers if compared and compared.stragglers_gain_ns else []
    return [] if explains_stragglers(pipelines, [row.rank for row in late]) else late


def without_late(pipelines: Sequence[Pipeline], late: Collection[int], gain_ns: int) -> list[Pipeline]:
    """Return the pipelines with bubbles in which nobody waits for late ranks, those of no late rank first.

    Each of the others waits for what the late ranks cost: in its bubble, as far as it does not wait in other
    communication.

    Args:
        pipelines: those of a run.
        late: the late ranks.
        gain_ns: what the mean step could save without their delays.
    """
    rows = [(pipeline.steps, row) for pipeline in pipelines for row in pipeline.ranks]
    usual_ns = min((row.other_communication_ns / steps for steps, row in rows), default=0.0)

    def without(row: PipelineRank, steps: int) -> PipelineRank:
        elsewhere_ns = row.other_communication_ns - round(steps * usual_ns)
        waited_ns = 0 if row.rank in late else max(0, steps * gain_ns - elsewhere_ns)
        return replace(row, bubble_ns=max(0, row.bubble_ns - waited_ns))

    made = [replace(one, ranks=[without(row, one.steps) for row in one.ranks]) for one in pipelines] if late else []
    return sorted(made, key=lambda one: any(row.rank in late for row in one.ranks)) if late else list(pipelines)


def explains_stragglers(pipelines: Sequence[Pipeline], late: Collection[int]) -> bool:
    """Return whether the ranks that are late are all those of stages that are heavy in all pipelines.

    A rank that is later than another one at its stage is so for another reason.
    """
    heavy = heavy_in_all(pipelines)
    if heavy is None:
        return False
    heavy_stages = {one.stage for one in heavy.all}
    ranks_at: dict[int, set[int]] = {}
    for own in pipelines:
        for one in own.heavy.all if own.heavy else ():
            if one.stage in heavy_stages:
                ranks_at.setdefault(one.stage, set()).add(one.rank)
    of_stages = [ranks for ranks in ranks_at.values() if not ranks.isdisjoint(late)]
    return bool(late) and set(late) == set().union(*of_stages)
