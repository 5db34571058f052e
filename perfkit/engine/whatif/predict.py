"""Predict the step after changes: apply them to the graph of steps, and replay it with and without them."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from perfkit.base.statistics.bootstrap import FEWEST_STEPS, generator, interval
from perfkit.engine.step_graph.graph import StepGraph
from perfkit.engine.whatif.altered import steps_ns, unaltered
from perfkit.engine.whatif.change import Change, ChangedRun, ChangeError, Effect
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
    beside_ns: float = 0.0
    """By how much the run's mean step is longer: what no recorded step shows."""

    @property
    def mean_ns(self) -> float:
        """The mean step."""
        return float(np.mean(self.steps_ns)) + self.beside_ns


def replay_unchanged(graphs: Sequence[StepGraph]) -> Replayed:
    """Return the length of each step over all ranks, as measured and as replayed."""
    measured_ns = [np.diff(graph.step_ends(graph.nodes.end)) for graph in graphs]
    return Replayed(np.concatenate(measured_ns), steps_ns([unaltered(graph) for graph in graphs]))


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
        return Prediction(
            changes=applied,
            step_ns=float(np.mean(self.steps_ns)) + before.beside_ns,
            range_ns=(int(self.steps_ns.min()), int(self.steps_ns.max())),
            saving_ns=self.saving_ns(before),
            interval_ns=_interval(before.steps_ns, self.steps_ns) if len(self.steps_ns) >= FEWEST_STEPS else None,
        )


def make_changes(graphs: Sequence[StepGraph], run: RunReport, texts: Sequence[str]) -> Changed:
    """Return the steps after some changes.

    Args:
        graphs: of a run's steps, at least one; one that a change does not apply to stays as it is.
        run: the run's report.
        texts: the changes, as the user writes them.

    Raises:
        ChangeError: a change cannot be read, applies to nothing, or cannot be predicted from these traces.
    """
    states, effects, changes = [unaltered(graph) for graph in graphs], dict[int, Effect](), parse_changes(texts)
    healthy = frozenset(one.rank for one in changes if isinstance(one, ScaleRank) and one.factor is None)
    for place in sorted(range(len(changes)), key=lambda place: CHANGES.index(type(changes[place]))):
        try:
            found = _apply(changes[place], [ChangedRun(state, run, healthy) for state in states])
        except ChangeError as error:
            error.change = texts[place]
            raise
        effects[place] = next(one for one in found if one is not None)
        states = [one.state if one else state for one, state in zip(found, states, strict=True)]
    return Changed([effects[place] for place in range(len(changes))], steps_ns(states))


def _apply(change: Change, runs: Sequence[ChangedRun]) -> list[Effect | None]:
    """Return the effect on each graph, at least one; None where the change does not apply.

    Raises:
        ChangeError: it applies to none.
    """
    found: list[Effect | None] = []
    errors = []
    for run in runs:
        try:
            found.append(change.apply(run))
        except ChangeError as error:
            found.append(None)
            errors.append(error)
    if len(errors) == len(runs):
        raise errors[0]
    return found


def _interval(before_ns: Ints, after_ns: Ints) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of the mean difference, over the same steps of both."""
    saved_ns, count = before_ns - after_ns, len(before_ns)
    return interval(saved_ns[generator().integers(count, size=(_DRAWS, count))].mean(axis=1))
