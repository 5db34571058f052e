"""Records of a pipeline: its bubble, and the work of its stages (metrics.md section 13)."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace


class PipelineRank(Struct, frozen=True, kw_only=True):
    """One rank of a pipeline; times are summed over the measured steps."""

    rank: int
    stages: list[int]
    """In order of the pipeline."""
    wall_ns: int
    compute_ns: int
    bubble_ns: int
    """Exposed waiting for other stages."""
    ideal_ns: int | None
    """The part of the bubble that the schedule has with equal stages; None if it is unknown, as are the next two."""
    imbalance_ns: int | None
    """What unequal stages and micro-batches add to it; negative on a stage that others wait for."""
    communication_ns: int | None
    """The rest of the bubble: transfers, what stages communicate with data-parallel ranks, and the host's work between
    micro-batches."""
    other_communication_ns: int
    """Exposed communication that is not the bubble, such as sends and other dimensions."""
    other_ns: int
    """Exposed copies, data loading and idle time."""


class PipelineStage(Struct, frozen=True, kw_only=True):
    """One stage; times are means per micro-batch."""

    stage: int
    rank: int
    layers: int | None
    """Number of the model's layers in it; None if unknown."""
    forward_ns: float
    backward_ns: float
    """Gradients of its input and of its weights."""


class LayerMove(Struct, frozen=True, kw_only=True):
    """One layer of a heavy stage, moved to another stage."""

    to_stage: int
    gain_ns: float
    """By how much the median step would be shorter, by replay."""


class StageExcess(Struct, frozen=True, kw_only=True):
    """How much longer a stage's micro-batches take than those of the others."""

    stage: int
    rank: int
    excess: float
    """As a share of the median of the other stages."""


class HeavyStage(Struct, frozen=True, kw_only=True):
    """The stage whose micro-batches take longest, if they take longer than those of the others beyond chance."""

    stage: int
    rank: int
    excess: float
    """How much longer, as a share of the median of the other stages."""
    gain_ns: float
    """By how much the median step would be shorter if all stages were equal, by replay; 0 if the bubble has room for
    the longer stage, as it may in an interleaved schedule."""
    layer_move: LayerMove | None
    """What moving a layer gives; None if it gives nothing, or the layers are unknown."""
    also: list[StageExcess] = []
    """Other stages of which the same is true, in order of the pipeline."""

    @property
    def all(self) -> list[StageExcess]:
        """This stage and the others, in order of the pipeline."""
        own = StageExcess(stage=self.stage, rank=self.rank, excess=self.excess)
        return sorted([own, *self.also], key=lambda one: one.stage)


class Pipeline(Struct, frozen=True, kw_only=True):
    """Stages that pass micro-batches to each other."""

    schedule: str | None
    """As in `--pp-schedule`; None if it is another, or the traces do not tell it."""
    stages: int
    micro_batches: int
    steps: int
    """Number of measured steps: those that all ranks recorded, without the first of each trace."""
    ranks: list[PipelineRank]
    """In order of their first stage."""
    stage_times: list[PipelineStage]
    """In order of the pipeline."""
    heavy: HeavyStage | None = None
    """None if no stage is longer beyond chance, or all equally."""
    reason: str | None = None
    """Why the bubble is not split."""

    @property
    def bubble_share(self) -> float:
        """The bubble as a share of the step, over all ranks."""
        return _share(sum(rank.bubble_ns for rank in self.ranks), self)

    @property
    def ideal_share(self) -> float | None:
        """The ideal bubble as a share of the step; None if unknown."""
        ideal = [rank.ideal_ns for rank in self.ranks if rank.ideal_ns is not None]
        return _share(sum(ideal), self) if len(ideal) == len(self.ranks) else None


def _share(ns: int, pipeline: Pipeline) -> float:
    wall_ns = sum(rank.wall_ns for rank in pipeline.ranks)
    return ns / wall_ns if wall_ns else 0.0


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
