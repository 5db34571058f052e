"""Whether a step does the same work before and after a change: only then do step times tell which is faster."""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from perfkit.schema.common import Finding
from perfkit.schema.run import RunReport

_SAME_MODEL: Final = 0.01
"""Largest relative difference of the operations per sample of one model: it is computed from rounded rates."""

ValueT = TypeVar("ValueT")


def step_work(before: Sequence[RunReport], after: Sequence[RunReport]) -> list[Finding]:
    """Return a finding if a step does other work after than before, or may do (metrics.md section 7).

    Args:
        before: the runs of one side, at least one.
        after: those of the other.
    """
    if models := _different_models(before, after):
        message = f"steps are not comparable, nor are rates: the models differ ({models})"
        return [Finding(code="models_differ", severity="warning", message=message)]
    samples = [_values(side, _samples_per_step) for side in (before, after)]
    if all(samples) and len(set.union(*samples)) > 1:
        counts = f"{_listed(samples[0])} samples per step before, {_listed(samples[1])} after"
        message = f"steps are not comparable: {counts}"
        return [Finding(code="samples_per_step_differ", severity="warning", message=message)]
    ranks = [{run.world_size for run in side} for side in (before, after)]
    if not all(samples) and len(set.union(*ranks)) > 1:
        message = (
            f"steps may do different work: {_listed(ranks[0])} rank{'' if ranks[0] == {1} else 's'} before, "
            f"{_listed(ranks[1])} after, "
            "and samples per step are not known"
        )
        return [Finding(code="ranks_differ", severity="warning", message=message)]
    return []


def _different_models(before: Sequence[RunReport], after: Sequence[RunReport]) -> str | None:
    """Return what tells that the models differ: their names or the operations per sample; None if nothing does."""
    names = [_values(side, _own_workload) for side in (before, after)]
    if all(names) and len(set.union(*names)) > 1:
        return " / ".join(_listed(side) for side in names)
    sides = [sorted(_values(side, _operations_per_sample)) for side in (before, after)]
    if not all(sides):
        return None
    least, most = min(side[0] for side in sides), max(side[-1] for side in sides)
    if most <= least * (1 + _SAME_MODEL):
        return None
    return " / ".join(f"{side[0] / 1e6:,.4g}" for side in sides) + " MFLOP per sample"


def _samples_per_step(run: RunReport) -> int | None:
    return run.throughput.samples_per_step if run.throughput else None


def _own_workload(run: RunReport) -> str | None:
    """Return the name of perfkit's workload; a script may have another name and train the same model."""
    from workloads import WORKLOADS

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


def _listed(values: set[int] | set[str]) -> str:
    return " or ".join(str(value) for value in sorted(values, key=str))
