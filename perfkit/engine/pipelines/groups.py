"""Which ranks form a pipeline, and the groups of the sends and receives of perfkit's own runs.

Traces of gloo do not contain the latter.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from perfkit.engine.communication.collective_calls import CollectiveCalls
from perfkit.engine.communication.collective_metadata import CollectiveKey
from perfkit.engine.communication.dimensions import listed_ranks
from perfkit.engine.ranks.matching import RECEIVE, SEND
from perfkit.records.manifest import MeshDimension

PIPELINE: Final = "pp"
"""The dimension of pipelines."""


def name_pipeline_groups(
    calls: Mapping[int, CollectiveCalls], mesh: Sequence[MeshDimension]
) -> Mapping[int, CollectiveCalls]:
    """Return the collectives of all ranks, with the group of each send and receive whose trace does not tell it.

    In a run with a mesh, only the stages of a pipeline send and receive, or the ranks that share a sequence: no run has
    both.

    Args:
        calls: their collectives, by rank.
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
