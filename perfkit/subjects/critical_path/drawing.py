"""The critical path of one step as a bounded number of spans, to draw (metrics.md section 16)."""

from typing import Final, NamedTuple

import numpy as np

from perfkit.engine.step_graph.graph import StepGraph
from perfkit.records.per_run.critical_path import DrawnPath, PathSpan
from perfkit.trace.intervals import Ints

MOST_SPANS: Final = 300


class DrawnPieces(NamedTuple):
    """Pieces of a path in order of time, each of which begins where the one before ends; columns of shape (p,)."""

    start: Ints
    end: Ints
    rank: Ints
    kind: Ints
    """Index into `KINDS`."""
    name: Ints

    def where(self, rows: Ints) -> "DrawnPieces":
        """Return some of the pieces."""
        return DrawnPieces(*(column[rows] for column in self))


def draw_path(graph: StepGraph, pieces: DrawnPieces, kinds: tuple[str, ...], names: list[str]) -> DrawnPath | None:
    """Return the path of the step of median length; None if nothing of it takes time.

    Args:
        graph: the graph.
        pieces: of the path of all steps.
        kinds: what `pieces.kind` refers to.
        names: likewise `pieces.name`.
    """
    bounds = graph.step_ends(graph.nodes.end)
    lengths = np.diff(bounds)
    step = int(np.argsort(lengths, kind="stable")[(len(lengths) - 1) // 2])
    begin, end = int(bounds[step]), int(bounds[step + 1])
    cut = pieces._replace(start=np.clip(pieces.start, begin, end), end=np.clip(pieces.end, begin, end))
    cut = cut.where(np.flatnonzero(cut.end > cut.start))
    if not len(cut.start):
        return None
    cell_ns = 0
    if len(_merged(cut)[0].start) > MOST_SPANS:
        cell_ns = -(-(end - begin) // MOST_SPANS)
        cut = _in_cells(cut, cell_ns)
    merged, longest = _merged(cut)
    columns = zip(*(column.tolist() for column in merged._replace(name=cut.name[longest])), strict=True)
    return DrawnPath(
        step=graph.steps[step],
        total_ns=end - begin,
        cell_ns=cell_ns,
        spans=[
            PathSpan(rank=rank, kind=kinds[kind], name=names[name], start_ns=start - begin, ns=until - start)
            for start, until, rank, kind, name in columns
        ],
    )


def _merged(pieces: DrawnPieces) -> tuple[DrawnPieces, Ints]:
    """Return pieces of which those of one rank and kind that follow each other are one, and the longest of each."""
    opens = np.ones(len(pieces.start), np.bool_)
    opens[1:] = (pieces.rank[1:] != pieces.rank[:-1]) | (pieces.kind[1:] != pieces.kind[:-1])
    first = np.flatnonzero(opens)
    group = np.cumsum(opens) - 1
    by_length = np.lexsort((pieces.start, pieces.start - pieces.end, group))
    longest = by_length[np.searchsorted(group[by_length], np.arange(len(first)))]
    merged = pieces.where(first)
    return merged._replace(end=np.append(merged.start[1:], pieces.end[-1:])), longest


def _in_cells(pieces: DrawnPieces, cell_ns: int) -> DrawnPieces:
    """Return one piece per cell of time: the rank and kind that take most of it, and the longest piece of these."""
    begin, end = int(pieces.start[0]), int(pieces.end[-1])
    edges = np.unique(np.concatenate((np.arange(begin, end, cell_ns), pieces.start)))
    until = np.append(edges[1:], end)
    own = np.searchsorted(pieces.start, edges, side="right") - 1
    cell, ns = (edges - begin) // cell_ns, until - edges
    codes = int(pieces.kind.max()) + 1
    key = (cell * (int(pieces.rank.max()) + 1) + pieces.rank[own]) * codes + pieces.kind[own]
    keys, place = np.unique(key, return_inverse=True)
    total = np.zeros(len(keys), np.int64)
    np.add.at(total, place, ns)
    order = np.lexsort((-ns, place, -total[place], cell))
    first = order[np.searchsorted(cell[order], np.unique(cell))]
    chosen = pieces.where(own[first])
    start = begin + np.unique(cell) * cell_ns
    return chosen._replace(start=start, end=np.append(start[1:], end))
