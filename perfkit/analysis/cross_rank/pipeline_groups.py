"""Name the process groups of the sends and receives of perfkit's own runs, which traces of gloo do not contain."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from perfkit.analysis.cross_rank.matching import RECEIVE, SEND
from perfkit.analysis.per_rank.communication.collective_calls import CollectiveCalls
from perfkit.analysis.per_rank.communication.collective_metadata import CollectiveKey
from perfkit.schema.manifest import MeshDimension


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
    lines = [group for dimension in mesh if dimension.name in ("pp", "cp") for group in dimension.groups]
    of_rank = {rank: line for line in lines for rank in line}
    return {
        rank: replace(own, kinds=[_in_group(kind, of_rank[rank]) for kind in own.kinds]) if rank in of_rank else own
        for rank, own in calls.items()
    }


def _in_group(kind: CollectiveKey, ranks: list[int]) -> CollectiveKey:
    if kind.operator not in (SEND, RECEIVE) or (kind.group, kind.members, kind.group_size) != (None, None, None):
        return kind
    return kind._replace(group_size=len(ranks), members=str(ranks))
