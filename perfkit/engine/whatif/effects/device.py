"""Changes of how the host drives a device: copies, synchronisation, and many short kernels."""

import re
from typing import ClassVar, Final, Self

import numpy as np

from perfkit.engine.kinds.runtime_calls import call_patterns
from perfkit.engine.step_graph.graph import (
    COMPUTE,
    HOST,
    KINDS,
    LAUNCH,
    MEMCPY,
    ORDER,
    SYNCHRONISATION,
    StepGraph,
)
from perfkit.engine.whatif.altered import Altered, Mask
from perfkit.engine.whatif.change import Change, ChangedRun, ChangeError, Effect
from perfkit.engine.whatif.parts import nothing_matches, per_rank_and_step, time_per_step
from perfkit.engine.whatif.values import Removal, Scaling, read_duration, read_word
from perfkit.records.facts import fact
from perfkit.trace.intervals import Ints

_SYNCHRONISATION: Final = KINDS.index("synchronisation")


class ScaleCopies(Scaling, frozen=True):
    """Copies, and the calls that launch them, take `factor` of their time, and the host waits for none of them."""

    example: ClassVar = "copies=0"
    examples: ClassVar = "copies=0, copies=0.5x"
    tried: ClassVar = ("copies=0",)
    help: ClassVar = "copies, which the host no longer waits for"
    subject: ClassVar = "copies()"

    def apply(self, run: ChangedRun) -> Effect:
        """Scale the copies and their calls: one that waits for the copy lasts as long."""
        state, graph = run.state, run.graph
        copies, edges = graph.nodes.kind == MEMCPY, graph.edges
        parts = copies[graph.parts.node]
        if not parts.any():
            raise nothing_matches("copies", [])
        launches = (edges.kind == LAUNCH) & copies[edges.target]
        calls = _launch_calls(graph, edges.source[launches].astype(np.int64), call_patterns().copying)
        waits = (edges.kind == SYNCHRONISATION) & copies[edges.source]
        return Effect(
            state.scaled(parts | calls, self.factor).without(waits),
            time_per_step(state, parts),
            [fact("copied_ahead")],
        )


class RemoveSync(Removal, frozen=True):
    """The host does not wait for the device within a step, and the rest of these calls takes no time."""

    example: ClassVar = "sync=removed"
    tried: ClassVar = ("sync=removed",)
    help: ClassVar = "the host no longer waits for the device"
    subject: ClassVar = "sync()"

    def apply(self, run: ChangedRun) -> Effect:
        """Let the host go on where it waited."""
        state, graph = run.state, run.graph
        waits, calls = _waits(graph)
        if not waits.any() and not calls.any():
            raise nothing_matches("synchronisation", [])
        count = int(waits.sum()) / max(1, len(graph.ranks)) / max(1, len(graph.steps))
        what = fact("waits", count=count), *time_per_step(state, calls)
        return Effect(without_waits(state), what, [fact("no_value_needed"), fact("runs_ahead")])


def _waits(graph: StepGraph) -> tuple[Mask, Mask]:
    """Return which dependencies and parts are the host's waiting for a device."""
    return graph.edges.kind == SYNCHRONISATION, graph.parts.kind == _SYNCHRONISATION


def has_waits(state: Altered) -> bool:
    """Return whether the host waits for a device."""
    return bool(_waits(state.graph)[0].any())


def without_waits(state: Altered) -> Altered:
    """Return a state in which the host does not wait for a device, as `sync=removed`."""
    waits, calls = _waits(state.graph)
    return state.scaled(calls, 0.0).without(waits)


class FuseKernels(Change, frozen=True):
    """Consecutive kernels of a stream that are each shorter than `below_ns` are launched at once."""

    example: ClassVar = "kernels<5us=fused"
    tried: ClassVar = ("kernels<5us=fused",)
    help: ClassVar = "short consecutive kernels become one"
    subject: ClassVar = r"kernels<(.+)"
    is_single: ClassVar = True

    below_ns: int

    @classmethod
    def read(cls, name: str, value: str) -> Self:
        """Return the change."""
        below_ns = read_duration(name)
        read_word(value, "fused")
        return cls(below_ns)

    def apply(self, run: ChangedRun) -> Effect:
        """Take the launches of all but the first kernel of each series away."""
        state, graph = run.state, run.graph
        if not (graph.edges.kind == LAUNCH).any():
            raise ChangeError(fact("no_launches"))
        fused, series = _fused(graph, self.below_ns)
        if not fused.any():
            kernels = graph.duration_ns[(graph.nodes.kind == COMPUTE) & (graph.nodes.lane >= 0)]
            shortest = (fact("shortest", ns=int(kernels.min())),) if len(kernels) else ()
            raise ChangeError(fact("no_short_kernels", shortest=shortest))
        launches = (graph.edges.kind == LAUNCH) & fused[graph.edges.target]
        calls = _launch_calls(graph, graph.edges.source[launches].astype(np.int64), call_patterns().launching)
        steps = per_rank_and_step(graph)
        what = (fact("kernels_become", before=(int(fused.sum()) + series) / steps, after=series / steps),)
        assumptions = [fact("fused_takes_sum"), fact("launch_calls_saved")]
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


def _launch_calls(graph: StepGraph, nodes: Ints, name: re.Pattern[str]) -> Mask:
    """Return the parts that are the launch calls at the begin of what follows some nodes of the host."""
    # A thread is cut where a launch begins, because the kernel may begin before the call returns.
    edges = graph.edges
    follows = (edges.kind == ORDER) & np.isin(edges.source, nodes)
    follows &= graph.nodes.lane[edges.source] == graph.nodes.lane[edges.target]
    launching = np.append([name.search(call) is not None for call in graph.names], False)
    return np.asarray(np.isin(graph.parts.node, edges.target[follows]) & launching[graph.parts.name])
