"""Slices of the critical path (metrics.md section 16), for a track of each rank that it runs through."""

import numpy as np

from perfkit.analysis.cross_rank.clock_alignment import rows_by
from perfkit.analysis.per_run.critical_path.summarize import PathPieces, lag_name
from perfkit.analysis.step_graph.graph import EDGE_KINDS, StepGraph
from perfkit.timeline.collective_links import Spans
from perfkit.trace.intervals import Ints
from perfkit.util.number_ranges import Ranges


def path_slices(graph: StepGraph, steps: Ranges | None) -> dict[int, Spans]:
    """Return the slices of each rank, by the reference clock.

    A node is called what it mostly ran, a lag what it waited for.

    Args:
        graph: the graph of the run.
        steps: the steps to show; None for all.
    """
    begin, *_, end = graph.step_ends(graph.nodes.end).tolist()
    path = PathPieces(graph, begin, end)
    shown = np.array([steps is None or (number is not None and number in steps) for number in graph.steps])
    wanted = shown[graph.nodes.step[path.node]] & (path.rank >= 0)
    nodes = np.flatnonzero(wanted & (path.end > path.start))
    lags = np.flatnonzero(wanted & (path.lag_end > path.lag_start))
    start = np.concatenate((path.start[nodes], path.lag_start[lags]))
    until = np.concatenate((path.end[nodes], path.lag_end[lags]))
    kinds = graph.edges.kind[path.edge[lags]].tolist()
    label = _labels(graph, path.node[nodes]) + [lag_name(EDGE_KINDS[kind]) for kind in kinds]
    rank = np.concatenate((path.rank[nodes], path.rank[lags]))
    return {
        number: Spans(start[rows], until[rows], [label[row] for row in rows.tolist()])
        for number, rows in rows_by(rank).items()
    }


def _labels(graph: StepGraph, nodes: Ints) -> list[str]:
    """Return the name of each node's largest part."""
    order = np.lexsort((-graph.parts.ns, graph.parts.node))
    owner = graph.parts.node[order]
    largest = order[np.minimum(np.searchsorted(owner, nodes), len(order) - 1)] if len(order) else order
    names = graph.parts.name[largest].tolist()
    return [graph.names[name] if name >= 0 else "communication" for name in names]
