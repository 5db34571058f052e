"""Predict the step after changes: apply them to the graph of steps, and replay it with and without them."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from perfkit.base.statistics.bootstrap import FEWEST_STEPS, generator, interval
from perfkit.engine.step_graph.graph import StepGraph
from perfkit.engine.whatif.altered import unaltered
from perfkit.engine.whatif.change import ChangedRun, ChangeError, Effect
from perfkit.engine.whatif.changes import CHANGES, parse_changes
from perfkit.engine.whatif.effects.ranks import ScaleRank
from perfkit.records.per_run.whatif import AppliedChange, Prediction
from perfkit.records.run import RunReport
from perfkit.trace.intervals import Ints

_DRAWS: Final = 500


class Replayed(NamedTuple):
    """The steps of a graph, measured and replayed without a change; shape (steps,)."""

    measured_ns: Ints
    steps_ns: Ints


def replay_unchanged(graph: StepGraph) -> Replayed:
    """Return the length of each step over all ranks, as measured and as replayed."""
    return Replayed(np.diff(graph.step_ends(graph.nodes.end)), np.diff(unaltered(graph).step_ends()))


class Changed(NamedTuple):
    """The steps of a graph after some changes, all made at once."""

    effects: list[Effect]
    """Of each change, in the order given."""
    steps_ns: Ints
    """Shape (steps,)."""

    def saving_ns(self, before: Replayed) -> float:
        """Return what the mean step gains."""
        return float(np.mean(before.steps_ns - self.steps_ns))

    def prediction(self, before: Replayed, applied: list[AppliedChange]) -> Prediction:
        """Return the figures, with the changes in words."""
        steps_ns = self.steps_ns
        return Prediction(
            changes=applied,
            step_ns=float(np.mean(steps_ns)),
            range_ns=(int(steps_ns.min()), int(steps_ns.max())),
            saving_ns=self.saving_ns(before),
            interval_ns=_interval(before.steps_ns, steps_ns) if len(steps_ns) >= FEWEST_STEPS else None,
        )


def make_changes(graph: StepGraph, run: RunReport, texts: Sequence[str]) -> Changed:
    """Return the steps after some changes.

    Args:
        graph: the graph of some steps of a run.
        run: the run's report.
        texts: the changes, as the user writes them.

    Raises:
        ChangeError: a change cannot be read, applies to nothing, or cannot be predicted from these traces.
    """
    state, effects, changes = unaltered(graph), dict[int, Effect](), parse_changes(texts)
    healthy = frozenset(one.rank for one in changes if isinstance(one, ScaleRank) and one.factor is None)
    for place in sorted(range(len(changes)), key=lambda place: CHANGES.index(type(changes[place]))):
        try:
            effects[place] = changes[place].apply(ChangedRun(state, run, healthy))
        except ChangeError as error:
            error.change = texts[place]
            raise
        state = effects[place].state
    return Changed([effects[place] for place in range(len(changes))], np.diff(state.step_ends()))


def _interval(before_ns: Ints, after_ns: Ints) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of the mean difference, over the same steps of both."""
    saved_ns, count = before_ns - after_ns, len(before_ns)
    return interval(saved_ns[generator().integers(count, size=(_DRAWS, count))].mean(axis=1))
