"""Changes of what the host does beside operators: input, idle time, the profiler."""

from collections.abc import Iterator
from typing import ClassVar, Final

import numpy as np

from perfkit.engine.step_graph.graph import DATA_LOADING, FIRST_CAUSE, KINDS, StepGraph
from perfkit.engine.whatif.change import ChangedRun, Effect
from perfkit.engine.whatif.parts import (
    matches,
    names_by_time,
    nothing_matches,
    parts_named,
    time_per_step,
)
from perfkit.engine.whatif.values import Removal, ScaleNamed, Scaling
from perfkit.records.facts import fact
from perfkit.records.run import RunReport

_PROFILER: Final = KINDS.index("profiler")
_TRIED: Final = 8
"""Details of idle time that are tried."""
_NAMED: Final = tuple(KINDS.index(cause) for cause in ("synchronisation", "host_work", "not_running"))
"""Causes of idle time whose details are names of the program."""


class ScaleInput(Scaling, frozen=True):
    """Loading data, or waiting for it on the main thread, takes `factor` of its time."""

    example: ClassVar = "input=0"
    examples: ClassVar = "input=0, input=0.5x"
    tried: ClassVar = ("input=0",)
    help: ClassVar = "loading data"
    subject: ClassVar = "input()"

    def apply(self, run: ChangedRun) -> Effect:
        """Scale the loading."""
        chosen = run.graph.parts.kind == DATA_LOADING
        if not chosen.any():
            raise nothing_matches("data_loading", [])
        return Effect(
            run.state.scaled(chosen, self.factor), time_per_step(run.state, chosen), [fact("workers_keep_up")]
        )


class ScaleIdle(ScaleNamed, frozen=True):
    """Idle time of the host by cause, or by what ran, takes `factor` of its time."""

    example: ClassVar = "idle:host_work=0"
    help: ClassVar = "idle time by cause, or by what ran (idle:validate=0)"
    subject: ClassVar = r"idle:(.+)"

    @classmethod
    def candidates(cls, graph: StepGraph, run: RunReport) -> Iterator[str]:  # noqa: ARG003
        """Yield each known cause, and the largest details."""
        kind = graph.parts.kind
        causes = [KINDS[cause] for cause in np.unique(kind[kind >= FIRST_CAUSE]).tolist()]
        details = names_by_time(graph, np.isin(kind, _NAMED))[:_TRIED]
        for name in (*causes, *details):
            if name not in ("unknown", "profiler"):
                yield f"idle:{name}=0"

    def apply(self, run: ChangedRun) -> Effect:
        """Scale the idle time."""
        state, graph = run.state, run.graph
        idle = graph.parts.kind >= FIRST_CAUSE
        by_cause = matches(self.pattern, KINDS)
        by_cause[:FIRST_CAUSE] = False
        chosen = (idle & by_cause[graph.parts.kind]) | parts_named(graph, self.pattern, idle)
        if not chosen.any():
            time = np.bincount(graph.parts.kind[idle], weights=state.part_ns[idle], minlength=len(KINDS))
            causes = [KINDS[kind] for kind in np.argsort(-time, kind="stable").tolist() if time[kind]]
            raise nothing_matches("idle_time", [*causes, *names_by_time(graph, idle)])
        return Effect(state.scaled(chosen, self.factor), time_per_step(state, chosen), [fact("thread_stays")])


class RemoveProfiler(Removal, frozen=True):
    """The host has none of the profiler's own work."""

    example: ClassVar = "profiler=removed"
    tried: ClassVar = ("profiler=removed",)
    help: ClassVar = "the profiler's own work"
    subject: ClassVar = "profiler()"

    def apply(self, run: ChangedRun) -> Effect:
        """Take the profiler's own work off the host."""
        chosen = run.graph.parts.kind == _PROFILER
        if not chosen.any():
            raise nothing_matches("profiler", [])
        return Effect(run.state.scaled(chosen, 0.0), time_per_step(run.state, chosen), [fact("profiler_stays")])
