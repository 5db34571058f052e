"""The graph of one trace's steps in compact columns, as input of the cross-rank analysis."""

from typing import Any, Final, NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from perfkit.engine.step_graph.graph import Edges, Nodes, Parts
from perfkit.engine.step_graph.modules import GraphModule
from perfkit.trace.intervals import Ints

_DTYPES: Final = (
    (np.int64, np.int64, np.int8, np.int32, np.int32, np.int8, np.int32, np.int16, np.int64),
    (np.int32, np.int32, np.int64, np.int8),
    (np.int32, np.int8, np.int32, np.int64, np.int32, np.int32),
    (np.int64,) * 3,
    (np.int8,),
)
"""Of the columns of `RankGraph.tables`."""


class CollectiveNodes(NamedTuple):
    """Nodes of collectives; columns of shape (c,), in order of issue."""

    order: Ints
    """Place among the trace's collectives in order of issue, as in `CollectiveCalls`."""
    joined: Ints
    """Point at which the rank joins."""
    transfer: Ints
    """From there to the end, as long as no other rank is known."""


class Columns(NamedTuple):
    """The columns of a `RankGraph`, of all or of some of its steps."""

    nodes: Nodes
    edges: Edges
    parts: Parts
    tie: NDArray[np.int8]
    collectives: CollectiveNodes
    boundaries: Ints


class RankGraph(Struct, frozen=True, kw_only=True):
    """Nodes of one trace's steps and what they depend on, by the clock of the trace.

    Node 0 is the origin. Lags are the least that a dependency takes where it does not decide.
    """

    steps: list[int | None]
    """Numbers of the steps: consecutive ones of the trace."""
    names: list[str]
    scopes: list[tuple[str, ...]]
    dimensions: list[str]
    lanes: list[str]
    lane_devices: list[int]
    """Of each lane, the number of its device among the rank's; -1 of those of the host."""
    boundaries: list[int]
    """Nodes at which the steps begin, and the last one ends."""
    tables: list[list[bytearray]]
    """The columns of `Nodes`, `Edges`, `Parts` and `CollectiveNodes`, and the order of points at one instant."""
    modules: list[GraphModule] = []
    """What parts belong to."""

    def columns(self, first: int = 0, last: int | None = None) -> Columns:
        """Return the columns of the steps `[first, last)` of it; all without arguments."""
        columns: list[list[NDArray[Any]]] = [
            [np.frombuffer(column, dtype) for column, dtype in zip(*table, strict=True)]
            for table in zip(self.tables, _DTYPES, strict=True)
        ]
        nodes, edges, parts, calls, (tie,) = columns
        boundaries = np.array(self.boundaries, np.int64)
        whole = Columns(Nodes(*nodes), Edges(*edges), Parts(*parts), tie, CollectiveNodes(*calls), boundaries)
        last = len(self.steps) if last is None else last
        return whole if (first, last) == (0, len(self.steps)) else _of_steps(whole, first, last)


def _of_steps(whole: Columns, first: int, last: int) -> Columns:
    """Return the nodes of some steps; what depended on others depends on the origin."""
    boundaries = whole.boundaries[first : last + 1]
    kept = (whole.nodes.step >= first) & (whole.nodes.step < last)
    kept[0] = True
    kept[boundaries] = True
    place = np.cumsum(kept) - 1
    edges = whole.edges.where(kept[whole.edges.source] & kept[whole.edges.target])
    parts = whole.parts.where(kept[whole.parts.node])
    calls = whole.collectives
    known = kept[calls.joined] & kept[calls.transfer]
    nodes = whole.nodes.where(kept)
    return Columns(
        nodes._replace(step=np.clip(nodes.step - np.int32(first), 0, last - first - 1)),
        edges._replace(source=place[edges.source].astype(np.int32), target=place[edges.target].astype(np.int32)),
        parts._replace(node=place[parts.node].astype(np.int32)),
        whole.tie[kept],
        CollectiveNodes(calls.order[known], place[calls.joined[known]], place[calls.transfer[known]]),
        place[boundaries],
    )


def packed(*tables: tuple[NDArray[Any], ...]) -> list[list[bytearray]]:
    """Return `RankGraph.tables`."""
    return [
        [bytearray(column.astype(dtype, copy=False)) for column, dtype in zip(table, dtypes, strict=True)]
        for table, dtypes in zip(tables, _DTYPES, strict=True)
    ]
