"""Sum the critical path of a run's steps by kind, rank, name and module (metrics.md section 16)."""

from typing import Final, NamedTuple

import numpy as np

from perfkit.engine.attribution.call_paths import sum_by
from perfkit.engine.step_graph import graph as kinds
from perfkit.engine.step_graph.graph import EDGE_KINDS, KINDS, StepGraph
from perfkit.engine.step_graph.modules import shown_paths
from perfkit.engine.step_graph.path_pieces import PathPieces, Share, lag_kinds, path_names
from perfkit.engine.step_graph.replay import UNLIMITED, slack
from perfkit.records.per_rank.work import OUTSIDE
from perfkit.records.per_rank.work_trees import Path, Weights, build_tree
from perfkit.records.per_run.critical_path import (
    CommunicationSlack,
    CriticalPath,
    DrawnPath,
    PathKindTime,
    PathModuleTime,
    PathNameTime,
    PathRankTime,
    PathSpan,
)
from perfkit.records.rank import UNKNOWN_OPERATOR
from perfkit.trace.intervals import Ints

MOST_NAMES: Final = 100
OTHER_NAMES: Final = "(others)"


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
    total = sum_by(place, ns, len(keys))
    order = np.lexsort((-ns, place, -total[place], cell))
    first = order[np.searchsorted(cell[order], np.unique(cell))]
    chosen = pieces.where(own[first])
    start = begin + np.unique(cell) * cell_ns
    return chosen._replace(start=start, end=np.append(start[1:], end))


def summarize_path(graph: StepGraph, recorded_steps: int, missing_ranks: int, unaligned: list[int]) -> CriticalPath:
    """Return the critical path within the windows of the steps.

    Args:
        graph: the graph of the run.
        recorded_steps: number of steps that the traces have.
        missing_ranks: number of ranks without a trace.
        unaligned: ranks that are left out of it.
    """
    found = PathPieces(graph)
    pieces = found.by_name()
    return CriticalPath(
        steps=list(graph.steps),
        recorded_steps=recorded_steps,
        total_ns=found.total_ns,
        kinds=_by_kind(pieces),
        ranks=_by_rank(found),
        names=_by_name(pieces, graph),
        communication=_communication(graph, found),
        modules=path_by_module(graph, pieces.module, pieces.ns),
        drawn=draw_path(graph, _to_draw(found), KINDS, path_names(graph)),
        linked=bool((graph.edges.kind == kinds.ARRIVAL).any()) if len(graph.ranks) > 1 else None,
        missing_ranks=missing_ranks,
        unaligned_ranks=unaligned,
        violated=sum(graph.violated.values()),
    )


def _to_draw(found: PathPieces) -> DrawnPieces:
    """Return nodes, each as what it mostly ran, and lags, in order of time."""
    graph = found.graph
    which = graph.edges.kind[found.edge].astype(np.int64)
    names = found.largest(graph.parts.name)
    rank = np.where(found.rank >= 0, found.rank, graph.ranks[0])
    columns = (
        (found.lag_start, found.start),
        (found.lag_end, found.end),
        (rank, rank),
        (lag_kinds()[which], found.largest(graph.parts.kind)),
        (len(graph.names) + which, np.where(names >= 0, names, len(graph.names) + len(EDGE_KINDS))),
    )
    # Each lag comes before its node.
    pieces = DrawnPieces(*(np.stack(pair, axis=1).reshape(-1) for pair in columns))
    return pieces.where(np.flatnonzero(pieces.end > pieces.start))


def _by_kind(pieces: Share) -> list[PathKindTime]:
    total_ns = sum_by(pieces.kind, pieces.ns, len(KINDS))
    order = np.argsort(-total_ns, kind="stable").tolist()
    return [PathKindTime(kind=KINDS[k], total_ns=int(total_ns[k])) for k in order if total_ns[k]]


def _by_rank(found: PathPieces) -> list[PathRankTime]:
    graph = found.graph
    place = {rank: number for number, rank in enumerate(graph.ranks)}
    # The points of no rank on a path are between two ranks' nodes, and take no time: the lag is that of the later rank.
    rank = np.array([place.get(number, 0) for number in found.rank.tolist()], np.int64)
    ns = found.end - found.start + found.lag_end - found.lag_start
    total_ns = sum_by(rank, ns, len(graph.ranks))
    order = np.argsort(-total_ns, kind="stable").tolist()
    return [PathRankTime(rank=graph.ranks[k], total_ns=int(total_ns[k])) for k in order if total_ns[k]]


def _by_name(pieces: Share, graph: StepGraph) -> list[PathNameTime]:
    names = path_names(graph)
    key = pieces.kind * (len(names) + 1) + pieces.name + 1
    keys, place = np.unique(key, return_inverse=True)
    total_ns = sum_by(place.reshape(-1), pieces.ns, len(keys))
    order = np.argsort(-total_ns, kind="stable")
    order = order[total_ns[order] > 0]
    kinds_of, names_of = np.divmod(keys[order], len(names) + 1)
    columns = kinds_of, names_of, total_ns[order]
    rows = [
        PathNameTime(kind=KINDS[kind], name=names[name - 1] if name else "", total_ns=ns)
        for kind, name, ns in zip(*(column[:MOST_NAMES].tolist() for column in columns), strict=True)
    ]
    rest = sum_by(kinds_of[MOST_NAMES:], total_ns[order[MOST_NAMES:]], len(KINDS))
    return rows + [
        PathNameTime(kind=KINDS[k], name=OTHER_NAMES, total_ns=int(rest[k])) for k in np.flatnonzero(rest).tolist()
    ]


def _communication(graph: StepGraph, found: PathPieces) -> list[CommunicationSlack]:
    """Return collectives by operator and dimension: by name, where the operator is unknown."""
    nodes = graph.nodes
    rows = np.flatnonzero(nodes.kind == kinds.COMMUNICATION)
    if not len(rows):
        return []
    room, duration = slack(graph)[rows], (nodes.end - nodes.start)[rows]
    on_path_ns = np.zeros(len(nodes.start), np.int64)
    on_path_ns[found.node] = found.end - found.start
    key = (nodes.name[rows].astype(np.int64) + 1) * (len(graph.dimensions) + 1) + nodes.dimension[rows] + 1
    groups = []
    for number in _longest_groups(key, duration + on_path_ns[rows]):
        name, dimension = divmod(number, len(graph.dimensions) + 1)
        own = key == number
        known = room[own][room[own] < UNLIMITED]
        row = CommunicationSlack(
            operator=graph.names[name - 1] if name else UNKNOWN_OPERATOR,
            dimension=graph.dimensions[dimension - 1] if dimension else None,
            count=int(own.sum()),
            transfer_ns=int(duration[own].sum()),
            path_ns=int(on_path_ns[rows[own]].sum()),
            never_waited_for=int((room[own] == UNLIMITED).sum()),
            slack_ns=int(np.median(known)) if len(known) else None,
        )
        groups.append(row)
    return sorted(groups, key=lambda row: (-row.path_ns, -row.transfer_ns, row.operator, row.dimension or ""))


def _longest_groups(key: Ints, ns: Ints) -> list[int]:
    """Return the keys with the most time, at most as many as names: some programs name each kernel differently."""
    keys, place = np.unique(key, return_inverse=True)
    total_ns = sum_by(place.reshape(-1), ns, len(keys))
    longest: list[int] = keys[np.argsort(-total_ns, kind="stable")[:MOST_NAMES]].tolist()
    return longest


def path_by_module(graph: StepGraph, module: Ints, ns: Ints) -> list[PathModuleTime]:
    """Return the time on the path of modules with those within them; the roots add up to all of it.

    Args:
        graph: the graph.
        module: of each piece of the path, an index into the graph's modules, or `NO_MODULE`.
        ns: their time.
    """
    if not any(one.is_module for one in graph.modules):
        return []
    own_ns = sum_by(module, ns, len(graph.modules) + 1)  # the last is that of -1
    paths = [*shown_paths(graph.modules), (OUTSIDE,)]
    inclusive: dict[Path, Weights] = {}
    for path, time_ns in zip(paths, own_ns.tolist(), strict=True):
        for length in range(1, len(path) + 1) if time_ns else ():
            own = Weights(total_ns=time_ns, self_ns=time_ns if length == len(path) else 0)
            inclusive[path[:length]] = inclusive.get(path[:length], Weights()).plus(own)
    return [
        PathModuleTime(depth=node.depth, name=node.name, total_ns=node.total_ns, self_ns=node.self_ns)
        for node in build_tree("class", inclusive).nodes
    ]
