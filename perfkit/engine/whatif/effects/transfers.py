"""Changes of communication: transfers, their latency and bandwidth (metrics.md section 5), and the number of ranks."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar, Final, Self

import numpy as np

from perfkit.engine.step_graph.graph import COMMUNICATION, StepGraph
from perfkit.engine.whatif.altered import Altered, Floats, Mask, gained_ns, steps_ns
from perfkit.engine.whatif.change import Change, ChangedRun, ChangeError, Effect
from perfkit.engine.whatif.parts import matches, nothing_matches, time_per_step
from perfkit.engine.whatif.values import MOST_REPLAYED, Removal, ScaleNamed, read_factor, read_whole
from perfkit.records.cross_rank import BandwidthFit
from perfkit.records.facts import Fact, Facts, fact
from perfkit.records.run import RunReport

UNKNOWN_DIMENSION: Final = "unknown"
"""Selects collectives whose dimension the traces do not tell."""
_MOST_RANKS: Final = 10_000_000
"""Largest world size to predict, as for `perfkit analyze --forecast`."""
_SELECTED: Final = r"\[([^\[\]]+)\]"


def latency_ns(graph: StepGraph, run: RunReport) -> Floats:
    """Return the latency of each node; 0 for what is no transfer, or where none is known. Shape (n,)."""
    nodes = graph.nodes
    by_name = np.array([_of_operator(run, name) for name in graph.names] + [0.0])
    return np.where(nodes.kind == COMMUNICATION, by_name[nodes.name], 0.0)


def latency_of(run: RunReport) -> Fact:
    """Return the assumption about latency."""
    fits = [fact("latency_of", operator=fit.operator, us=(fit.alpha_ns or 0.0) / 1e3) for fit in _fits(run)]
    return fact("latency_fitted", fits=fits) if fits else fact("latency_unknown")


def _fits(run: RunReport) -> list[BandwidthFit]:
    return [fit for fit in (run.cross_rank.bandwidth_fits if run.cross_rank else []) if fit.alpha_ns is not None]


def _of_operator(run: RunReport, operator: str) -> float:
    """Return the smallest latency that was fitted to an operator, over its groups."""
    return min((fit.alpha_ns or 0.0 for fit in _fits(run) if fit.operator == operator), default=0.0)


class ScaleCollective(ScaleNamed, frozen=True):
    """The transfers of a dimension or operator take `factor` of their time; ranks wait for each other as before."""

    example: ClassVar = "collective[dp]=0"
    help: ClassVar = "transfers, by dimension or operator"
    subject: ClassVar = "collective" + _SELECTED

    @classmethod
    def candidates(cls, graph: StepGraph, run: RunReport) -> Iterator[str]:  # noqa: ARG003
        """Yield the transfers of each dimension."""
        for name in _dimensions(graph, graph.nodes.kind == COMMUNICATION):
            yield f"collective[{name}]=0"

    def apply(self, run: ChangedRun) -> Effect:
        """Scale the transfers."""
        chosen = _parts(run.graph, self.pattern)
        lacks_ranks = run.report.is_partial or len(run.graph.ranks) < run.report.world_size
        assumption = fact("transfers_may_wait" if lacks_ranks else "transfers_alone")
        return Effect(run.state.scaled(chosen, self.factor), _what(run.state, chosen), [assumption])


class ScaleBandwidth(ScaleNamed, frozen=True):
    """The part of transfers above the latency, which grows with their size, takes 1 / `factor` of its time."""

    example: ClassVar = "bandwidth[shard]=2x"
    help: ClassVar = "the part of transfers that grows with their size"
    subject: ClassVar = "bandwidth" + _SELECTED

    @classmethod
    def read(cls, name: str, value: str) -> Self:
        """Return the change."""
        return cls(name, read_factor(value, "positive_factor"))

    def apply(self, run: ChangedRun) -> Effect:
        """Scale the part of transfers above the latency."""
        chosen = _parts(run.graph, self.pattern)
        scaled = _above_latency(run, chosen, 1 / self.factor)
        return Effect(scaled, _what(run.state, chosen), [latency_of(run.report)])


def _above_latency(run: ChangedRun, chosen: Mask, share: float) -> Altered:
    """Return a state in which the part of some transfers above their latency takes a share of its time."""
    now = run.state.part_ns[chosen]
    latency = np.minimum(latency_ns(run.graph, run.report)[run.graph.parts.node[chosen]], now)
    then = latency + (now - latency) * share
    return run.state.scaled(chosen, np.divide(then, now, out=np.ones(len(now)), where=now > 0))


class HealthyNetwork(Removal, frozen=True):
    """Transfers that the network makes slow take as long as comparable ones."""

    example: ClassVar = "network=healthy"
    tried: ClassVar = ("network=healthy",)
    help: ClassVar = "slow transfers take as long as comparable ones"
    subject: ClassVar = "network()"
    word: ClassVar = "healthy"

    def apply(self, run: ChangedRun) -> Effect:
        """Scale the slow transfers."""
        if run.graph.slow is None:
            raise ChangeError(fact("network_is_healthy"))
        chosen = np.asarray(run.graph.slow.max(axis=0)[run.graph.parts.node] > 1)
        return Effect(without_slow(run.state), _what(run.state, chosen), [fact("transfers_alone")])


def without_slow(state: Altered, causes: slice = slice(None)) -> Altered:
    """Return a state without what some causes make slow about the network."""
    if state.graph.slow is None:
        return state
    return replace(state, part_ns=state.part_ns / state.graph.slow[causes].prod(axis=0)[state.graph.parts.node])


def network_gains_ns(states: Sequence[Altered], causes: int) -> tuple[list[int], int] | None:
    """Return what the mean step gains without each cause of a slow network, and without all; None if unknown."""
    nodes = sum(len(state.graph.nodes.start) for state in states)
    if all(state.graph.slow is None for state in states) or (2 + causes) * nodes > MOST_REPLAYED:
        return None
    before_ns = steps_ns(states)

    def gain_ns(some: slice) -> int:
        return gained_ns(before_ns, [without_slow(state, some) for state in states])

    return [gain_ns(slice(one, one + 1)) for one in range(causes)], gain_ns(slice(None))


class Ranks(Change, frozen=True):
    """Transfers among all ranks take as long as among `count` ranks; of fewer than have traces, the first are left."""

    example: ClassVar = "ranks=64"
    help: ClassVar = "collectives among this many ranks"
    subject: ClassVar = "ranks()"
    is_single: ClassVar = True

    count: int

    @classmethod
    def read(cls, name: str, value: str) -> Self:  # noqa: ARG003
        """Return the change."""
        return cls(read_whole(value, "ranks_from_one", _MOST_RANKS))

    def apply(self, run: ChangedRun) -> Effect:
        """Scale the part of transfers above the latency, or all of them for a single rank; leave ranks out."""
        graph, report = run.graph, run.report
        transfers = graph.parts.kind == COMMUNICATION
        transfers &= graph.nodes.kind[graph.parts.node] == COMMUNICATION
        if report.world_size < 2 or not transfers.any():
            raise ChangeError(fact("no_collectives"))
        _refuse_groups(report)
        share = ((self.count - 1) / self.count) / ((report.world_size - 1) / report.world_size)
        scaled = _above_latency(run, transfers, share) if self.count > 1 else run.state.scaled(transfers, 0.0)
        assumptions = [latency_of(report), fact("weak_scaling")]
        if self.count < len(graph.ranks):
            left_out = [rank for rank in graph.ranks if rank >= self.count] or list(graph.ranks)[self.count :]
            scaled = scaled.without_ranks(left_out)
            assumptions.append(fact("first_ranks", count=self.count))
        elif self.count > len(graph.ranks):
            assumptions.append(fact("more_ranks_on_time"))
        what = fact("of_ranks", count=report.world_size), *_what(run.state, transfers)
        return Effect(scaled, what, assumptions)


def _refuse_groups(run: RunReport) -> None:
    """Raise unless all collectives are among all ranks."""
    rows = run.cross_rank.collectives if run.cross_rank else []
    for size in {row.group_size for row in rows} - {run.world_size}:
        raise ChangeError(fact("in_groups", size=size, of=run.world_size))


def _parts(graph: StepGraph, selector: str) -> Mask:
    """Return the transfers of a dimension or operator.

    Raises:
        ChangeError: there are none.
    """
    nodes = graph.nodes
    transfers = nodes.kind == COMMUNICATION
    dimensions = np.append(matches(selector, graph.dimensions), bool(matches(selector, [UNKNOWN_DIMENSION])[0]))
    operators = np.append(matches(selector, graph.names), False)
    chosen = transfers & (dimensions[nodes.dimension] | operators[nodes.name])
    if not chosen.any():
        used = [name for name in np.unique(nodes.name[transfers]).tolist() if name >= 0]
        raise nothing_matches("collective", [*_dimensions(graph, transfers), *(graph.names[name] for name in used)])
    return np.asarray(chosen[graph.parts.node])


def _dimensions(graph: StepGraph, transfers: Mask) -> Iterator[str]:
    for dimension in np.unique(graph.nodes.dimension[transfers]).tolist():
        yield graph.dimensions[dimension] if dimension >= 0 else UNKNOWN_DIMENSION


def _what(state: Altered, chosen: Mask) -> Facts:
    """Return how many transfers change, and how long they take."""
    graph = state.graph
    nodes = np.unique(graph.parts.node[chosen])
    ranks = max(1, len(np.unique(graph.nodes.rank[nodes])))
    per_step = len(nodes) / ranks / max(1, len(graph.steps))
    mean_ns = round(float(state.part_ns[chosen].sum()) / max(1, len(nodes)))
    return fact("transfers", count=per_step, ns=mean_ns), *time_per_step(state, chosen)
