"""Whether step times tell which of two runs is faster: only if a step does the same work in both."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

from perfkit.records.aggregate import samples_per_step
from perfkit.records.common import Observation
from perfkit.records.run import RunReport

_SAME_MODEL: Final = 0.01
"""Largest relative difference of the operations per sample of one model: it is computed from rounded rates."""

ValueT = TypeVar("ValueT")


def step_work(before: Sequence[RunReport], after: Sequence[RunReport]) -> list[Observation]:
    """Return a finding if a step does other work after than before, or may do (metrics.md section 7).

    Args:
        before: the runs of one side, at least one.
        after: those of the other.
    """
    if models := _different_models(before, after):
        return [models]
    samples = [_values(side, samples_per_step) for side in (before, after)]
    if all(samples) and len(set.union(*samples)) > 1:
        return [
            Observation("samples_per_step_differ", dict(zip(("before", "after"), map(_sorted, samples), strict=True)))
        ]
    ranks = [{run.world_size for run in side} for side in (before, after)]
    if not all(samples) and len(set.union(*ranks)) > 1:
        return [Observation("ranks_differ", dict(zip(("before", "after"), map(_sorted, ranks), strict=True)))]
    return []


def _different_models(before: Sequence[RunReport], after: Sequence[RunReport]) -> Observation | None:
    """Return what tells that the models differ: their names or the operations per sample; None if nothing does."""
    names = [_values(side, _own_workload) for side in (before, after)]
    if all(names) and len(set.union(*names)) > 1:
        return Observation("models_differ", {"names": [_sorted(side) for side in names]})
    sides = [sorted(_values(side, _operations_per_sample)) for side in (before, after)]
    if not all(sides):
        return None
    least, most = min(side[0] for side in sides), max(side[-1] for side in sides)
    if most <= least * (1 + _SAME_MODEL):
        return None
    return Observation("models_differ", {"per_sample": tuple(side[0] for side in sides)}, "operations")


def _own_workload(run: RunReport) -> str | None:
    """Return the name of perfkit's workload; a script may have another name and train the same model."""
    from perfkit_workloads import WORKLOADS

    return run.workload if run.workload is not None and run.workload in WORKLOADS else None


def _operations_per_sample(run: RunReport) -> float | None:
    known = run.throughput
    if known is None or known.flops_per_s is None or not known.samples_per_s:
        return None
    return known.flops_per_s / known.samples_per_s


def _values(side: Sequence[RunReport], value: Callable[[RunReport], ValueT | None]) -> set[ValueT]:
    """Return the distinct values of the runs of a side; none unless all are known."""
    found = [value(run) for run in side]
    known = {one for one in found if one is not None}
    return known if None not in found else set()


def _sorted(values: Iterable[int | str]) -> list[str]:
    return sorted(map(str, values))
