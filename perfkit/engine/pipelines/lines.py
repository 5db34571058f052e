"""Find which ranks form a pipeline."""

from collections.abc import Iterable, Mapping, Sequence

from perfkit.engine.communication.collective_calls import CollectiveCalls
from perfkit.engine.pipelines.actions import PipelineActions
from perfkit.engine.pipelines.groups import PIPELINE, find_pipeline_groups
from perfkit.engine.ranks.linked_ranks import connected
from perfkit.records.manifest import MeshDimension


def find_lines(
    actions: Mapping[int, Sequence[PipelineActions]],
    calls: Mapping[int, CollectiveCalls],
    mesh: Sequence[MeshDimension],
) -> list[list[int]]:
    """Return the ranks of each pipeline.

    They are those of its group, by the mesh or as the traces list it; else those that send to each other; else all, if
    no stage occurs twice.

    A pipeline of which any rank computes a micro-batch is returned with all its ranks, traced or not.

    Args:
        actions: what the ranks compute in pipelines, by rank.
        calls: their collectives, by rank.
        mesh: the run's mesh; empty if unknown.
    """
    every = [(rank, kind) for rank in actions for kind in calls[rank].kinds]
    lines = _disjoint(find_pipeline_groups(mesh, (kind for _, kind in every)))
    if not lines:
        kinds = [(rank, kind) for rank, kind in every if kind.dimension in (None, PIPELINE)]
        lines = connected(actions, [(rank, kind.peer) for rank, kind in kinds if kind.peer not in (None, rank)])
    if all(len(line) == 1 for line in lines) and _are_distinct(actions.values()):
        lines = [sorted(actions)]
    return [line for line in lines if len(line) > 1 and any(rank in actions for rank in line)]


def _disjoint(groups: Iterable[list[int]]) -> list[list[int]]:
    """Return the groups whose ranks are in none before: a group of the first and last stage alone is no pipeline."""
    lines: list[list[int]] = []
    for group in groups:
        if not {rank for line in lines for rank in line} & set(group):
            lines.append(group)
    return lines


def _are_distinct(actions: Iterable[Sequence[PipelineActions]]) -> bool:
    """Return whether each stage is on one rank only."""
    stages = [stage for of_rank in actions for stage in {s for one in of_rank for s in one.action("stage").tolist()}]
    return len(stages) == len(set(stages))
