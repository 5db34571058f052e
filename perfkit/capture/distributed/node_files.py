"""Files that every node needs, and that one of its ranks makes."""

from collections.abc import Callable
from typing import TypeVar

from perfkit.capture.distributed.rank_group import ProcessRankGroup
from perfkit.capture.distributed.topology import Topology

T = TypeVar("T")


def prepare_on_nodes(ranks: ProcessRankGroup, topology: Topology, prepare: Callable[[], list[T]]) -> list[T]:
    """Call `prepare` first on rank 0, then on one rank of every other node; return what it returned on this node.

    If the nodes share the folder, the other nodes find rank 0's files and use them.
    """
    first = ranks.run_on(ranks.rank == 0, prepare)
    other = ranks.run_on(topology.local_rank == 0 and topology.node_rank > 0, prepare)
    own = topology.node_rank, first or other
    return next((made for node, made in ranks.all_gather(own) if made and node == own[0]), [])
