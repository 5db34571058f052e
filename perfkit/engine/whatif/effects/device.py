"""Changes of how the host drives a device: synchronisation, and many short kernels."""

from typing import Final

import numpy as np

from perfkit.base.formatting import duration
from perfkit.engine.step_graph.graph import COMPUTE, HOST, KINDS, LAUNCH, ORDER, SYNCHRONISATION, StepGraph
from perfkit.engine.whatif.altered import Mask
from perfkit.engine.whatif.changes import FuseKernels, RemoveSync
from perfkit.engine.whatif.effects.effect import Effect, Subject, nothing_matches, time_per_step
from perfkit.errors import UsageError
from perfkit.trace.intervals import Ints

_SYNCHRONISATION: Final = KINDS.index("synchronisation")


def remove_synchronisation(subject: Subject, change: RemoveSync) -> Effect:  # noqa: ARG001  it has no options
    """Let the host go on where it waited for the device, and take the rest of these calls away.

    Raises:
        UsageError: the host never waits for a device.
    """
    state, graph = subject.state, subject.state.graph
    waits = graph.edges.kind == SYNCHRONISATION
    calls = graph.parts.kind == _SYNCHRONISATION
    if not waits.any() and not calls.any():
        raise nothing_matches(subject.text, "synchronisation with a device", [])
    count = int(waits.sum()) / max(1, len(graph.ranks)) / max(1, len(graph.steps))
    what = f"{count:.3g} waits per step and rank, calls of {time_per_step(graph, state.part_ns, calls)}"
    assumptions = [
        "the host needs none of the values that it waited for",
        "the host may run ahead of the device by any number of steps",
    ]
    return Effect(state.scaled(calls, 0.0).without(waits), what, assumptions)


def fuse_kernels(subject: Subject, change: FuseKernels) -> Effect:
    """Launch each series of short kernels on a stream at once.

    Raises:
        UsageError: the run has no device, or no two consecutive kernels are as short.
    """
    state, graph = subject.state, subject.state.graph
    if not (graph.edges.kind == LAUNCH).any():
        raise UsageError(f"change {subject.text}: the traces have no launches of kernels")
    fused, series = _fused(graph, change.below_ns)
    if not fused.any():
        kernels = graph.duration_ns[np.flatnonzero((graph.nodes.kind == COMPUTE) & (graph.nodes.lane >= 0))]
        shortest = f"; the shortest takes {duration(int(kernels.min()))}" if len(kernels) else ""
        raise UsageError(
            f"change {subject.text}: no two consecutive kernels with separate launches are shorter{shortest}"
        )
    launches = (graph.edges.kind == LAUNCH) & fused[graph.edges.target]
    calls = _launch_calls(graph, graph.edges.source[launches].astype(np.int64))
    steps = max(1, len(graph.ranks) * len(graph.steps))
    what = f"{(int(fused.sum()) + series) / steps:.3g} kernels per step and rank become {series / steps:.3g}"
    assumptions = [
        "a fused kernel takes as long as its parts together, and is launched where the first of them was",
        "the launch calls of the others are saved, the operators' other work on the host is not",
    ]
    return Effect(state.scaled(calls, 0.0).without(launches), what, assumptions)


def _fused(graph: StepGraph, below_ns: int) -> tuple[Mask, int]:
    """Return which kernels become part of the one before them, and how many such series there are."""
    nodes = graph.nodes
    work = np.flatnonzero((nodes.lane >= 0) & (nodes.kind != HOST) & (nodes.end > nodes.start))
    order = work[np.lexsort((nodes.start[work], nodes.lane[work]))]
    short = (nodes.kind[order] == COMPUTE) & (graph.duration_ns[order] < below_ns)
    same = np.zeros(len(order), np.bool_)
    same[1:] = (
        short[1:]
        & short[:-1]
        & (nodes.lane[order[1:]] == nodes.lane[order[:-1]])
        & (nodes.step[order[1:]] == nodes.step[order[:-1]])
    )
    launched = np.zeros(len(nodes.start), np.bool_)
    launched[graph.edges.target[graph.edges.kind == LAUNCH]] = True
    same &= launched[order]
    fused = np.zeros(len(nodes.start), np.bool_)
    fused[order[same]] = True
    return fused, int((same[1:] & ~same[:-1]).sum())


def _launch_calls(graph: StepGraph, nodes: Ints) -> Mask:
    """Return the parts that are the launch calls at the begin of what follows some nodes of the host."""
    # A thread is cut where a launch begins, because the kernel may begin before the call returns.
    edges = graph.edges
    follows = (edges.kind == ORDER) & np.isin(edges.source, nodes)
    follows &= graph.nodes.lane[edges.source] == graph.nodes.lane[edges.target]
    launching = np.append(["launch" in name.lower() for name in graph.names], False)
    return np.asarray(
        np.isin(graph.parts.node, edges.target[follows]) & (graph.parts.kind == HOST) & launching[graph.parts.name]
    )
