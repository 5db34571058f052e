"""Changes of communication: transfers, their latency and bandwidth (metrics.md section 5), and the number of ranks."""

from collections.abc import Iterable

import numpy as np

from perfkit.base.formatting import duration
from perfkit.engine.step_graph.graph import COMMUNICATION, StepGraph
from perfkit.engine.whatif.altered import Floats, Mask
from perfkit.engine.whatif.changes import UNKNOWN_DIMENSION, Ranks, ScaleBandwidth, ScaleCollective
from perfkit.engine.whatif.effects.effect import Effect, Subject, matches, nothing_matches, time_per_step
from perfkit.errors import UsageError
from perfkit.records.cross_rank import BandwidthFit
from perfkit.records.run import RunReport


def latency_ns(graph: StepGraph, run: RunReport) -> Floats:
    """Return the latency of each node; 0 for what is no transfer, or where none is known. Shape (n,)."""
    nodes = graph.nodes
    by_name = np.array([_of_operator(run, name) for name in graph.names] + [0.0])
    return np.where(nodes.kind == COMMUNICATION, by_name[nodes.name], 0.0)


def latency_of(run: RunReport) -> str:
    """Return the assumption about latency."""
    fits = _fits(run)
    if fits:
        each = ", ".join(f"{fit.operator} {fit.alpha_ns / 1e3:.3g} µs" for fit in fits if fit.alpha_ns is not None)
        return f"latency as fitted to the run: {each}"
    return "transfers take time in proportion to their size: the run has too few sizes to tell their latency"


def _fits(run: RunReport) -> list[BandwidthFit]:
    return [fit for fit in (run.cross_rank.bandwidth_fits if run.cross_rank else []) if fit.alpha_ns is not None]


def _of_operator(run: RunReport, operator: str) -> float:
    """Return the smallest latency that was fitted to an operator, over its groups."""
    return min((fit.alpha_ns or 0.0 for fit in _fits(run) if fit.operator == operator), default=0.0)


def scale_collective(subject: Subject, change: ScaleCollective) -> Effect:
    """Scale the transfers of collectives; ranks wait for each other as before.

    Raises:
        UsageError: no collective is of this dimension or operator.
    """
    chosen = _parts(subject, change.selector)
    state = subject.state
    assumption = "transfers alone change: ranks still wait for the last one to join"
    if subject.run.is_partial or len(subject.state.graph.ranks) < subject.run.world_size:
        assumption = "what looks like transfer is no waiting for ranks without a trace"
    what = _what(subject.state.graph, chosen, state.part_ns)
    return Effect(state.scaled(chosen, change.factor), what, [assumption])


def scale_bandwidth(subject: Subject, change: ScaleBandwidth) -> Effect:
    """Scale the part of transfers above the latency.

    Raises:
        UsageError: no collective is of this dimension or operator.
    """
    chosen = _parts(subject, change.selector)
    state = subject.state
    known = latency_ns(state.graph, subject.run)
    latency = np.minimum(known[state.graph.parts.node[chosen]], state.part_ns[chosen])
    now = state.part_ns[chosen]
    shorter = latency + (now - latency) / change.factor
    factor = np.divide(shorter, now, out=np.ones(len(now)), where=now > 0)
    what = _what(state.graph, chosen, state.part_ns)
    return Effect(state.scaled(chosen, factor), what, [latency_of(subject.run)])


def change_ranks(subject: Subject, change: Ranks) -> Effect:
    """Give every transfer among all ranks the time that it takes among `change.count` ranks.

    With fewer ranks than have traces, only the first of them are replayed.

    Raises:
        UsageError: the run has a single rank or no collectives, or they are not among all ranks.
    """
    state, graph, run = subject.state, subject.state.graph, subject.run
    transfers = graph.parts.kind == COMMUNICATION
    transfers &= graph.nodes.kind[graph.parts.node] == COMMUNICATION
    if run.world_size < 2 or not transfers.any():
        raise UsageError(f"change {subject.text}: the run has no collectives to predict others from")
    _refuse_groups(subject)
    now = state.part_ns[transfers]
    latency = np.minimum(latency_ns(graph, run)[graph.parts.node[transfers]], now)
    share = ((change.count - 1) / change.count) / ((run.world_size - 1) / run.world_size)
    then = latency + (now - latency) * share if change.count > 1 else np.zeros(len(now))
    factor = np.divide(then, now, out=np.ones(len(now)), where=now > 0)
    scaled = state.scaled(transfers, factor)
    assumptions = [
        latency_of(run),
        "each rank has as much work as before (weak scaling), and links and latency are as between the recorded ranks",
    ]
    if change.count < len(graph.ranks):
        left_out = [rank for rank in graph.ranks if rank >= change.count] or list(graph.ranks)[change.count :]
        scaled = scaled.without_ranks(left_out)
        assumptions.append(f"the first {change.count} of the recorded ranks are left")
    elif change.count > len(graph.ranks):
        assumptions.append("further ranks are never later than the recorded ones: with more ranks, waiting grows")
    what = f"{run.world_size} ranks, {_what(graph, transfers, state.part_ns)}"
    return Effect(scaled, what, assumptions)


def _refuse_groups(subject: Subject) -> None:
    """Raise unless all collectives are among all ranks."""
    run = subject.run
    rows = run.cross_rank.collectives if run.cross_rank else []
    sizes = {row.group_size for row in rows} - {run.world_size}
    if sizes:
        size = next(iter(sizes))
        groups = "of unknown size" if size is None else f"of {size} ranks"
        raise UsageError(
            f"change {subject.text}: some collectives are in groups {groups}, not of all {run.world_size}: which of "
            "them would grow is not known"
        )


def _parts(subject: Subject, selector: str) -> Mask:
    """Return the transfers of a dimension or operator.

    Raises:
        UsageError: there are none.
    """
    graph = subject.state.graph
    nodes = graph.nodes
    transfers = nodes.kind == COMMUNICATION
    dimensions = np.append(matches(selector, graph.dimensions), bool(matches(selector, [UNKNOWN_DIMENSION])[0]))
    operators = np.append(matches(selector, graph.names), False)
    chosen = transfers & (dimensions[nodes.dimension] | operators[nodes.name])
    if not chosen.any():
        raise nothing_matches(subject.text, "collective", list(_has(graph, transfers)))
    return np.asarray(chosen[graph.parts.node])


def _has(graph: StepGraph, transfers: Mask) -> Iterable[str]:
    for dimension in np.unique(graph.nodes.dimension[transfers]).tolist():
        yield graph.dimensions[dimension] if dimension >= 0 else UNKNOWN_DIMENSION
    for name in np.unique(graph.nodes.name[transfers]).tolist():
        if name >= 0:
            yield graph.names[name]


def _what(graph: StepGraph, chosen: Mask, part_ns: Floats) -> str:
    """Return how many transfers change, and how long they take."""
    nodes = np.unique(graph.parts.node[chosen])
    ranks = max(1, len(np.unique(graph.nodes.rank[nodes])))
    per_step = len(nodes) / ranks / max(1, len(graph.steps))
    mean = float(part_ns[chosen].sum()) / max(1, len(nodes))
    count = f"{per_step:.3g}"
    each = f"{count} transfer{'' if count == '1' else 's'} per step and rank, {duration(round(mean))} each"
    return f"{each}; {time_per_step(graph, part_ns, chosen)}"
