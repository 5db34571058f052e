"""Which ranks form a pipeline, and the groups of the sends and receives of perfkit's own runs.

Traces of gloo do not contain the latter.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from perfkit.engine.communication.collective_calls import CollectiveCalls
from perfkit.engine.communication.collective_metadata import CollectiveKey
from perfkit.engine.communication.dimensions import PIPELINE, listed_ranks
from perfkit.engine.communication.message_batches import RECEIVE, SEND
from perfkit.engine.pipelines.actions import PipelineActions
from perfkit.engine.ranks.linked_ranks import connected
from perfkit.records.manifest import MeshDimension


def name_pipeline_groups(
    calls: Mapping[int, CollectiveCalls], mesh: Sequence[MeshDimension]
) -> Mapping[int, CollectiveCalls]:
    """Return the collectives of all ranks, with the group of each send and receive whose trace does not tell it.

    In a run with a mesh, only the stages of a pipeline send and receive, or the ranks that share a sequence: no run has
    both.

    Args:
        mesh: the run's mesh; empty if it has none.
    """
    lines = groups_along(mesh, PIPELINE, "cp")
    of_rank = {rank: line for line in lines for rank in line}
    return {
        rank: replace(own, kinds=[_in_group(kind, of_rank[rank]) for kind in own.kinds]) if rank in of_rank else own
        for rank, own in calls.items()
    }


def groups_along(mesh: Sequence[MeshDimension], *names: str) -> list[list[int]]:
    """Return the ranks of each group along dimensions of a mesh."""
    return [list(group) for dimension in mesh if dimension.name in names for group in dimension.groups]


def find_pipeline_groups(mesh: Sequence[MeshDimension], kinds: Iterable[CollectiveKey]) -> list[list[int]]:
    """Return the ranks of each group of pipeline stages, first stage first; empty if they are unknown.

    Args:
        mesh: the run's mesh; empty if unknown.
        kinds: the collectives of all ranks, of which those of pipelines may list the members.
    """
    if of_mesh := groups_along(mesh, PIPELINE):
        return of_mesh
    listed = {kind.members for kind in kinds if kind.dimension == PIPELINE and kind.members is not None}
    groups = {tuple(sorted(ranks)) for members in listed if (ranks := listed_ranks(members))}
    # The first and the last stage may have a separate group, in which positions are not stages: it comes later.
    return [list(group) for group in sorted(groups, key=lambda group: (-len(group), group))]


def _in_group(kind: CollectiveKey, ranks: list[int]) -> CollectiveKey:
    if kind.operator not in (SEND, RECEIVE) or (kind.group, kind.members, kind.group_size) != (None, None, None):
        return kind
    return kind._replace(group_size=len(ranks), members=str(ranks))


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
