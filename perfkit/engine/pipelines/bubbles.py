"""Split the bubble of each rank of a pipeline into ideal, imbalance and communication (metrics.md section 13)."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from perfkit.engine.communication.collective_calls import CollectiveCalls
from perfkit.engine.communication.dimensions import PIPELINE
from perfkit.engine.pipelines.actions import PipelineActions
from perfkit.engine.pipelines.balance import find_heavy_stage, mean_by, stage_times
from perfkit.engine.pipelines.groups import find_lines, groups_along
from perfkit.engine.pipelines.replay import Action, Plan, make_plan, replay
from perfkit.engine.pipelines.schedules import recognise_schedule
from perfkit.engine.pipelines.steps import PipelineSteps, RankActions, gather_steps
from perfkit.records.facts import Statement, fact
from perfkit.records.manifest import MeshDimension
from perfkit.records.per_run.pipeline import Pipeline, PipelineRank
from perfkit.records.rank import RankReport, StepBreakdown
from perfkit.records.trace_header import RecordedPipeline

_MOST_ACTIONS: Final = 100_000
"""Most actions of a pipeline's step that are replayed."""
_MOST_STAGES: Final = 1_024
_MOST_CELLS: Final = 8
"""Most stages times micro-batches of a step, per action: each stage computes each micro-batch in two or three."""


def find_pipelines(
    actions: Mapping[int, Sequence[PipelineActions]],
    calls: Mapping[int, CollectiveCalls],
    reports: Sequence[RankReport],
    mesh: Sequence[MeshDimension],
) -> list[Pipeline]:
    """Return the pipelines of a run, those with the largest bubbles first.

    Args:
        mesh: the run's mesh; empty if unknown.
    """
    actions = _placed(actions, mesh)
    steps = {rank.rank: {step.step: step for step in rank.steps} for rank in reports if rank.rank in actions}
    found = []
    for line in find_lines(actions, calls, mesh):
        traced = {rank: actions[rank] for rank in line if rank in actions}
        gathered = gather_steps(traced)
        if gathered is not None:
            recorded = [one.recorded for traces in traced.values() for one in traces if one.recorded]
            breakdowns = {rank: [steps[rank][number] for number in gathered.number] for rank in traced}
            found.append(_pipeline(gathered, breakdowns, len(line), recorded))
    return sorted(found, key=lambda one: -one.bubble_share)


def _placed(
    actions: Mapping[int, Sequence[PipelineActions]], mesh: Sequence[MeshDimension]
) -> Mapping[int, Sequence[PipelineActions]]:
    """Return the actions with the stages that their traces do not name; without those whose stage is unknown."""
    stage_of = {rank: stage for line in groups_along(mesh, PIPELINE) for stage, rank in enumerate(line)}
    return {
        rank: [one if one.names_stages else one.at_stage(stage_of[rank]) for one in traces]
        for rank, traces in actions.items()
        if rank in stage_of or all(one.names_stages for one in traces)
    }


def _pipeline(
    steps: PipelineSteps,
    breakdowns: Mapping[int, Sequence[StepBreakdown]],
    ranks: int,
    recorded: Sequence[RecordedPipeline],
) -> Pipeline:
    """Return the record of one pipeline.

    Args:
        ranks: number of its ranks, traced or not.
        recorded: what the traces' headers tell of it; empty in traces of other programs.
    """
    every = [action for own in steps.ranks.values() for action in own.order]
    stages = recorded[0].stages if recorded else 1 + max(action.stage for action in every)
    by_stage = sorted((own.order for own in steps.ranks.values()), key=lambda order: min(one.stage for one in order))
    missing, is_small = ranks - len(steps.ranks), _is_small(every)
    why = fact("actions_not_annotated" if is_small else "too_many_actions")
    if missing > 0:
        why = fact("traces_of", traces=len(steps.ranks), ranks=ranks)
    plan = make_plan([own.order for own in steps.ranks.values()], stages) if is_small and not missing else None
    parts = _split(plan, steps) if plan else dict.fromkeys(steps.ranks)
    layers = {stage.index: stage.layers for one in recorded for stage in one.own}
    times = stage_times(steps, layers) if is_small else []
    rows = [_rank(rank, own, breakdowns[rank], parts[rank]) for rank, own in steps.ranks.items()]
    return Pipeline(
        schedule=recorded[0].schedule if recorded else recognise_schedule(by_stage) if not missing else None,
        stages=stages,
        micro_batches=len({action.micro_batch for action in every}),
        steps=len(steps.number),
        ranks=sorted(rows, key=lambda row: row.stages),
        stage_times=times,
        heavy=find_heavy_stage(plan, steps, times) if plan else None,
        reason=None if plan else Statement(why),
    )


def _is_small(actions: Sequence[Action]) -> bool:
    """Return whether a step can be replayed in seconds; a trace may name any stages and micro-batches."""
    stages, batches = {action.stage for action in actions}, {action.micro_batch for action in actions}
    few = len(actions) <= _MOST_ACTIONS and len(stages) <= _MOST_STAGES
    return few and len(stages) * len(batches) <= _MOST_CELLS * len(actions)


class _Parts(NamedTuple):
    """Parts of a rank's bubble, summed over the steps (ns)."""

    ideal: int
    imbalance: int
    communication: int


def _split(plan: Plan, steps: PipelineSteps) -> Mapping[int, _Parts | None]:
    """Return the parts of each rank's bubble, which add up to it."""
    work_ns = np.concatenate([own.work_ns for own in steps.ranks.values()])
    kinds = np.array([action.kind for own in steps.ranks.values() for action in own.order], np.int64)
    equal_ns = mean_by(kinds, work_ns)
    ideal_ns, actual_ns = replay(plan, equal_ns), replay(plan, work_ns)
    parts: dict[int, _Parts | None] = {}
    first = 0
    for rank, own in steps.ranks.items():
        rows = slice(first, first := first + len(own.order))
        ideal = int((ideal_ns - equal_ns[rows].sum(axis=0)).sum())
        actual = int((actual_ns - work_ns[rows].sum(axis=0)).sum())
        parts[rank] = _Parts(ideal, actual - ideal, int(own.bubble_ns.sum()) - actual)
    return parts


def _rank(rank: int, own: RankActions, steps: Sequence[StepBreakdown], parts: _Parts | None) -> PipelineRank:
    exposed = [step.exposed_ns for step in steps]
    bubble_ns = int(own.bubble_ns.sum())
    return PipelineRank(
        rank=rank,
        stages=sorted({action.stage for action in own.order}),
        wall_ns=sum(step.wall_ns for step in steps),
        compute_ns=sum(one.compute for one in exposed),
        bubble_ns=bubble_ns,
        ideal_ns=parts.ideal if parts else None,
        imbalance_ns=parts.imbalance if parts else None,
        communication_ns=parts.communication if parts else None,
        other_communication_ns=sum(one.communication for one in exposed) - bubble_ns,
        other_ns=sum(one.memcpy + one.data_loading + one.overhead for one in exposed),
    )
