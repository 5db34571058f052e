"""The single changes that are tried without a given one: everything that the run's time consists of."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from perfkit.engine.step_graph.graph import (
    COMMUNICATION,
    COMPUTE,
    DATA_LOADING,
    FIRST_CAUSE,
    HOST,
    KINDS,
    LAUNCH,
    MEMCPY,
    SYNCHRONISATION,
    StepGraph,
)
from perfkit.engine.whatif.changes import NO_INPUT, NO_SYNCHRONISATION, free_transfers, healthy_ranks, no_idle
from perfkit.engine.whatif.effects.effect import calls_of_cause, glob_of, names_by_time
from perfkit.records.run import RunReport

MOST_RANKED: Final = 10
_NAMES: Final = 8
"""Operators or kernels, and details of idle time, that are tried."""
_RANKS: Final = 8
_SHORT: Final = "5us"
_NAMED: Final = tuple(KINDS.index(cause) for cause in ("synchronisation", "host_work", "not_running"))
"""Causes of idle time whose details are names of the program."""


def candidates(graph: StepGraph, run: RunReport) -> list[str]:
    """Return the changes to try; not all of them need apply."""
    return list(dict.fromkeys(_candidates(graph, run)))


def _candidates(graph: StepGraph, run: RunReport) -> Iterator[str]:
    kind = graph.parts.kind
    for rank in _late_ranks(graph, run):
        yield healthy_ranks([rank])
    transfers = graph.nodes.kind == COMMUNICATION
    for dimension in np.unique(graph.nodes.dimension[transfers]).tolist():
        yield free_transfers(graph.dimensions[dimension] if dimension >= 0 else None)
    if (kind == DATA_LOADING).any():
        yield NO_INPUT
    if (graph.edges.kind == SYNCHRONISATION).any():
        yield NO_SYNCHRONISATION
    if (graph.edges.kind == LAUNCH).any():
        yield f"kernels<{_SHORT}=fused"
    yield from _idle(graph)
    work = np.isin(kind, (COMPUTE, MEMCPY)) if np.isin(kind, (COMPUTE, MEMCPY)).any() else kind == HOST
    for name in names_by_time(graph, work)[:_NAMES]:
        yield f"compute:{glob_of(name, graph.names)}=0.5x"


def _idle(graph: StepGraph) -> Iterator[str]:
    kind = graph.parts.kind
    for cause in np.unique(kind[kind >= FIRST_CAUSE]).tolist():
        if KINDS[cause] != "unknown":
            yield "profiler=removed" if KINDS[cause] == "profiler" else no_idle(KINDS[cause])
    for cause in ("allocation", "compilation"):
        if calls_of_cause(graph, cause).any():
            yield no_idle(cause)
    for name in names_by_time(graph, np.isin(kind, _NAMED))[:_NAMES]:
        yield no_idle(name)


def _late_ranks(graph: StepGraph, run: RunReport) -> list[int]:
    """Return the ranks that may hold up the others: the stragglers, else those with the most work of their own."""
    if len(graph.ranks) < 2:
        return []
    named = [row.rank for row in run.cross_rank.stragglers] if run.cross_rank else []
    own = graph.parts.kind != COMMUNICATION
    rank = graph.nodes.rank[graph.parts.node[own]]
    row = np.searchsorted(np.array(graph.ranks), rank)
    work = np.bincount(row, weights=graph.parts.ns[own], minlength=len(graph.ranks))
    by_work = [graph.ranks[place] for place in np.argsort(work)[::-1].tolist()]
    return list(dict.fromkeys([*named, *by_work]))[:_RANKS]
