"""Stages of pipelines that are heavier than the others: which of a run's, and in words."""

from collections.abc import Sequence

from msgspec.structs import replace

from perfkit.schema.per_run.pipeline import HeavyStage, Pipeline
from perfkit.util.formatting import ranges


def heavy_in_all(pipelines: Sequence[Pipeline]) -> HeavyStage | None:
    """Return the heaviest stage of a run with the others, as far as they are heavy in all its pipelines.

    A stage that is heavy in one of several pipelines only is on a slow rank, which is not said here. Neither is by how
    much it is heavier in one than in another: the pipeline counts whose heaviest stage is least heavy.
    """
    found = [pipeline.heavy for pipeline in pipelines if pipeline.heavy is not None]
    if not found or len(found) < len(pipelines):
        return None
    common = set.intersection(*({one.stage, *(other.stage for other in one.also)} for one in found))
    made = [
        replace(one, also=[other for other in one.also if other.stage in common])
        for one in found
        if one.stage in common
    ]
    return min(made, key=lambda one: one.excess, default=None)


def heavy_names(heavy: HeavyStage) -> str:
    """Return which stages are heavy: `stages 1, 3`."""
    return f"stage{'s' if heavy.also else ''} {ranges(one.stage for one in heavy.all)}"


def heavy_clause(heavy: HeavyStage) -> str:
    """Return which stages take how much longer: `stages 1, 3 take 30 % to 50 % longer`."""
    shares = [f"{100 * bound(one.excess for one in heavy.all):.0f} %" for bound in (min, max)]
    takes = "take" if heavy.also else "takes"
    return f"{heavy_names(heavy)} {takes} {' to '.join(dict.fromkeys(shares))} longer"
