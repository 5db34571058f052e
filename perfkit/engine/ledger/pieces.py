"""The mean step of a run in pieces: by what ran, and on which rank.

They are those of the critical path. Where there is no graph of the steps, they are those of the mean over ranks, which
knows no path: what ranks wait for each other is communication.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np

from perfkit.engine.step_graph.graph import KINDS, StepGraph
from perfkit.engine.step_graph.path_pieces import BESIDE, PathPieces
from perfkit.records.per_rank.idle import CAUSES
from perfkit.records.per_run.ledger import LedgerCause
from perfkit.records.rank import RankReport
from perfkit.trace.intervals import combinations

HOST: Final = "launch_bound"
"""What operators and calls that issue a device's work are, where it waits for them."""


class Piece(NamedTuple):
    """A part of the mean step."""

    cause: LedgerCause
    rank: int | None
    """None if it is of none, or of one of unknown number."""
    name: str
    """What ran; empty if unknown."""
    ns: float


def path_pieces(graphs: Sequence[StepGraph]) -> list[Piece]:
    """Return the pieces of the critical path, per step; see `_of_path`."""
    ns: dict[Piece, float] = defaultdict(float)
    for graph in graphs:
        for piece in _of_path(graph):
            ns[piece._replace(ns=0.0)] += piece.ns
    steps = sum(len(graph.steps) for graph in graphs)
    return [piece._replace(ns=whole_ns / steps) for piece, whole_ns in ns.items()]


def _of_path(graph: StepGraph) -> list[Piece]:
    """Return the pieces of the critical path, of all steps together.

    Where the path runs through a host whose device works meanwhile, that is the device's time: a step loses to the host
    what its device does not work.
    """
    found = PathPieces(graph)
    share, beside_ns = found.by_name(), found.beside_device()
    length_ns = np.concatenate((found.end - found.start, found.lag_end - found.lag_start))
    own = 1 - beside_ns.sum(axis=0) / np.maximum(length_ns, 1)
    device, place = np.nonzero(beside_ns)
    rank = found.rank[place % len(found.rank)]
    keys = np.stack((share.kind, share.rank, share.name))
    of_device = np.stack((np.array(BESIDE)[device], rank, np.full(len(rank), -1)))
    distinct, number = combinations(np.concatenate((keys, of_device), axis=1))
    ns = np.concatenate((share.ns * own[share.place], beside_ns[device, place]))
    total_ns = np.bincount(number, weights=ns, minlength=distinct.shape[1])
    return [
        _piece(KINDS[kind], rank, graph.names[name] if 0 <= name < len(graph.names) else "", ns)
        for (kind, rank, name), ns in zip(distinct.T.tolist(), total_ns.tolist(), strict=True)
        if ns
    ]


def _piece(kind: str, rank: int, name: str, ns: float) -> Piece:
    cause = HOST if kind in ("host", "point") else kind
    return Piece(cause, rank if rank >= 0 else None, name, ns)


def mean_pieces(ranks: Sequence[RankReport]) -> list[Piece]:
    """Return the pieces of the mean step over ranks, some of which have steps."""
    count = sum(len(rank.steps) for rank in ranks)
    pieces: dict[tuple[LedgerCause, int | None], float] = defaultdict(float)
    for rank in ranks:
        for step in rank.steps:
            exposed, idle_ns = step.exposed_ns, step.idle_ns
            for category in ("compute", "communication", "memcpy", "data_loading"):
                pieces[category, rank.rank] += getattr(exposed, category) / count
            for cause in CAUSES:
                pieces[cause, rank.rank] += getattr(idle_ns, cause) / count
            pieces["unknown", rank.rank] += (exposed.overhead - sum(getattr(idle_ns, c) for c in CAUSES)) / count
    return [Piece(cause, rank, "", ns) for (cause, rank), ns in pieces.items() if ns > 0]


def scaled(pieces: Iterable[Piece], step_ns: float) -> list[Piece]:
    """Return pieces that add up to a step."""
    listed = list(pieces)
    whole_ns = sum(piece.ns for piece in listed)
    return [piece._replace(ns=piece.ns * step_ns / whole_ns) for piece in listed] if whole_ns else []
