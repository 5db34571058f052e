"""Predict the step after changes: apply them to the graph of steps, and replay it with and without them."""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from perfkit.base.statistics.bootstrap import FEWEST_STEPS, generator, interval
from perfkit.engine.step_graph.graph import StepGraph
from perfkit.engine.whatif import changes
from perfkit.engine.whatif.altered import Altered, unaltered
from perfkit.engine.whatif.changes import Change, ScaleRank, parse_changes
from perfkit.engine.whatif.effects import device, gradients, modules, own_time, transfers
from perfkit.engine.whatif.effects.effect import Effect, Subject
from perfkit.errors import UsageError
from perfkit.records.per_run.whatif import AppliedChange, Prediction
from perfkit.records.run import RunReport
from perfkit.trace.intervals import Ints

EFFECTS: Final[dict[type, Callable[[Subject, Any], Effect]]] = {
    changes.ScaleCompute: own_time.scale_compute,
    changes.ScaleModule: modules.scale_module,
    changes.ScaleRank: own_time.scale_rank,
    changes.ScaleInput: own_time.scale_input,
    changes.ScaleIdle: own_time.scale_idle,
    changes.RemoveProfiler: own_time.remove_profiler,
    changes.RemoveSync: device.remove_synchronisation,
    changes.FuseKernels: device.fuse_kernels,
    changes.ScaleCollective: transfers.scale_collective,
    changes.ScaleBandwidth: transfers.scale_bandwidth,
    changes.Ranks: transfers.change_ranks,
    changes.BucketCap: gradients.change_buckets,
    changes.RemoveOverlap: gradients.remove_overlap,
    changes.Accumulate: gradients.accumulate,
}
"""By kind of change, in the order in which changes are made: those of the order of nodes come after those of times."""

_ORDER: Final = {kind: place for place, kind in enumerate(EFFECTS)}


def order_of(change: Change) -> int:
    """Return the place of a change among those that are made together."""
    return _ORDER[type(change)]


_DRAWS: Final = 500


class Replayed(NamedTuple):
    """The steps of a graph, measured and replayed without a change; shape (steps,)."""

    measured_ns: Ints
    steps_ns: Ints


def replay_unchanged(graph: StepGraph) -> Replayed:
    """Return the length of each step over all ranks, as measured and as replayed."""
    return Replayed(np.diff(graph.step_ends(graph.nodes.end)), np.diff(unaltered(graph).step_ends()))


def predict_changes(graph: StepGraph, run: RunReport, before: Replayed, texts: Sequence[str]) -> Prediction:
    """Return the prediction of some changes, all made at once.

    Args:
        graph: the graph of some steps of a run.
        run: the run's report.
        before: result of `replay_unchanged`.
        texts: the changes, as the user writes them.

    Raises:
        UsageError: a change cannot be read, applies to nothing, or cannot be predicted from these traces.
    """
    state, applied = _apply(graph, run, texts)
    steps_ns = np.diff(state.step_ends())
    return Prediction(
        changes=applied,
        step_ns=float(np.median(steps_ns)),
        range_ns=(int(steps_ns.min()), int(steps_ns.max())),
        saving_ns=float(np.median(before.steps_ns) - np.median(steps_ns)),
        mean_saving_ns=_mean_saving_ns(before, steps_ns),
        interval_ns=_interval(before.steps_ns, steps_ns) if len(steps_ns) >= FEWEST_STEPS else None,
    )


def predict_saving(graph: StepGraph, run: RunReport, before: Replayed, texts: Sequence[str]) -> float:
    """Return only what the changes would save in the mean step, in nanoseconds; as `predict_changes`."""
    return _mean_saving_ns(before, np.diff(_apply(graph, run, texts)[0].step_ends()))


def _apply(graph: StepGraph, run: RunReport, texts: Sequence[str]) -> tuple[Altered, list[AppliedChange]]:
    state = unaltered(graph)
    applied: dict[int, AppliedChange] = {}
    changes = parse_changes(texts)
    healthy = frozenset(one.rank for one in changes if isinstance(one, ScaleRank) and one.factor is None)
    for place in sorted(range(len(changes)), key=lambda place: order_of(changes[place])):
        effect = EFFECTS[type(changes[place])](Subject(state, run, texts[place], healthy), changes[place])
        state = effect.state
        applied[place] = AppliedChange(
            change=texts[place], applies_to=effect.applies_to, assumptions=effect.assumptions
        )
    return state, [applied[place] for place in range(len(changes))]


def _mean_saving_ns(before: Replayed, steps_ns: Ints) -> float:
    return float(np.mean(before.steps_ns - steps_ns))


def _interval(before_ns: Ints, after_ns: Ints) -> tuple[float, float]:
    """Return the 95 % bootstrap interval of the difference of the medians, over the same steps of both."""
    draw, count = generator(), len(before_ns)
    savings = np.empty(_DRAWS)
    for number in range(_DRAWS):
        chosen = draw.integers(count, size=count)
        savings[number] = np.median(before_ns[chosen]) - np.median(after_ns[chosen])
    return interval(savings)


def predict_each(graph: StepGraph, run: RunReport, before: Replayed, texts: Sequence[str]) -> list[Prediction]:
    """Return the predictions of single changes that these traces can predict, the largest saving first.

    Where only some steps do what is changed, the mean saving counts, of which the median step knows nothing. Those
    that save less than a thousandth of the step are left out.
    """
    found = []
    for text in texts:
        try:
            found.append(predict_changes(graph, run, before, [text]))
        except UsageError:  # a candidate that does not apply to this run
            continue
    step_ns = float(np.median(before.steps_ns))
    worth = (one for one in found if max(one.saving_ns, one.mean_saving_ns) > step_ns / 1000)
    return sorted(worth, key=lambda one: -one.told_saving_ns(step_ns))
