"""Match the collectives of a run's ranks: the one way in which reports and timelines do."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from perfkit.engine.communication.collective_calls import CollectiveCalls
from perfkit.engine.pipelines.groups import name_pipeline_groups
from perfkit.engine.ranks.clock_alignment import align
from perfkit.engine.ranks.matching import MatchedCollectives, match
from perfkit.engine.ranks.point_to_point import split_messages
from perfkit.records.cross_rank import HostClock
from perfkit.records.manifest import MeshDimension


class MatchedRun(NamedTuple):
    """The matched collectives of all ranks, and the clocks of their hosts."""

    collectives: MatchedCollectives
    clocks: list[HostClock]


def match_run(
    calls: Mapping[int, CollectiveCalls],
    hosts: Mapping[int, str | None],
    mesh: Sequence[MeshDimension],
    known_size: int | None,
) -> MatchedRun:
    """Match collectives, sends and receives.

    Args:
        calls: the collectives of each rank.
        hosts: the host of each rank.
        mesh: the run's mesh; empty if unknown.
        known_size: number of ranks, as the manifest or the headers have it; None if they do not.
    """
    matched = match(name_pipeline_groups(calls, mesh), known_size)
    clocks = align(matched, hosts)
    return MatchedRun(split_messages(matched, clocks), clocks)
