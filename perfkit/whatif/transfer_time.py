"""The latency of transfers, from the latencies and bandwidths that were fitted to the run (metrics.md section 5)."""

import numpy as np

from perfkit.analysis.step_graph.graph import COMMUNICATION, StepGraph
from perfkit.schema.cross_rank import BandwidthFit
from perfkit.schema.run import RunReport
from perfkit.whatif.altered import Floats


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
