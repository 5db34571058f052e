"""Changes of operators and kernels, by name."""

from collections.abc import Iterator
from typing import ClassVar, Final

import numpy as np

from perfkit.engine.step_graph.graph import COMPUTE, HOST, MEMCPY, StepGraph
from perfkit.engine.whatif.altered import Mask
from perfkit.engine.whatif.change import ChangedRun, Effect
from perfkit.engine.whatif.parts import glob_of, matches, names_by_time, nothing_matches, parts_named, time_per_step
from perfkit.engine.whatif.values import ScaleNamed
from perfkit.records.facts import fact
from perfkit.records.run import RunReport

_TRIED: Final = 8
"""Operators or kernels that are tried."""


class ScaleCompute(ScaleNamed, frozen=True):
    """Operators or kernels take `factor` of their time."""

    example: ClassVar = "compute:NAME=0.5x"
    help: ClassVar = "operators or kernels, by name or glob (aten::*)"
    subject: ClassVar = r"compute:(.+)"

    @classmethod
    def candidates(cls, graph: StepGraph, run: RunReport) -> Iterator[str]:  # noqa: ARG003
        """Yield the largest kernels and copies, without any the largest operators, at half."""
        on_device = np.isin(graph.parts.kind, (COMPUTE, MEMCPY))
        work = on_device if on_device.any() else graph.parts.kind == HOST
        for name in names_by_time(graph, work)[:_TRIED]:
            yield f"compute:{glob_of(name, graph.names)}=0.5x"

    def apply(self, run: ChangedRun) -> Effect:
        """Scale kernels and copies by name, or operators of the host."""
        graph = run.graph
        work = np.isin(graph.parts.kind, (HOST, COMPUTE, MEMCPY))
        named = parts_named(graph, self.pattern, work)
        launched = _launched_by(graph, self.pattern)
        chosen = (named & (graph.parts.kind != HOST)) | launched
        assumption = "kernels_change" if launched.any() else "all_else_stays"
        if not chosen.any():
            chosen, assumption = named, "host_changes"
        if not chosen.any():
            raise nothing_matches("operator_or_kernel", names_by_time(graph, work))
        names = len(np.unique(graph.parts.name[chosen]))
        what = fact("names", count=names), *time_per_step(run.state, chosen)
        return Effect(run.state.scaled(chosen, self.factor), what, [fact(assumption)])


def _launched_by(graph: StepGraph, pattern: str) -> Mask:
    """Return the parts that are kernels or copies which operators of a name launched."""
    named = np.append(matches(pattern, graph.names), False)[graph.nodes.name]
    work = np.isin(graph.nodes.kind, (COMPUTE, MEMCPY)) & named
    return np.asarray(work[graph.parts.node])
