"""Laws of scaling, fitted to the runs of a series (metrics.md section 7).

All three are linear in the time that a sample, or a step, takes:

    Amdahl (1967)      t = a + b / N                      serial fraction a / (a + b)
    Gustafson (1988)   X = a + b N                        serial fraction a / (a + b)
    USL (Gunther 1993) N / X = a + b (N-1) + c N (N-1)    g = 1 / a,  s = b / a,  k = c / a

with X samples a second, N ranks, and no parameter below zero, by least squares of the relative error over runs. A
median of steps from one run is one observation: what disturbed that run shows in no other.

Intervals are a parametric bootstrap: runs are drawn anew around the fit with the scatter that was left of it (as a
Student's t of the degrees of freedom that are left), and fitted again. Where as many runs as parameters are there,
nothing is left to tell the scatter from, and there is no interval.
"""

import math
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np

from perfkit.schema.scaling import Estimate, Fit, FitModel, ScalingPoint
from perfkit.schema.sweep import ScalingKind
from perfkit.stats.bootstrap import DRAWS, Floats, generator, interval
from perfkit.stats.nnls import nnls


class Observations(NamedTuple):
    """What is fitted; shape (runs,)."""

    ranks: Floats
    step_ns: Floats
    samples_per_s: Floats


class Fitted(NamedTuple):
    """The coefficients of a law, and those of every redrawn set of runs."""

    values: Floats
    """Shape (parameters,)."""
    draws: Floats | None
    """Shape (DRAWS, parameters); None where nothing is left to tell the scatter from."""
    residual: float
    """Root mean square of the relative errors."""


class Law(NamedTuple):
    """How a law is fitted."""

    model: FitModel
    fewest: int
    """World sizes that it takes."""
    columns: Callable[[Floats], Floats]
    """From ranks to the columns of its coefficients, shape (runs, coefficients)."""
    observed: Callable[[Observations], Floats]


def _column(*parts: Floats) -> Floats:
    return np.stack(parts, axis=1)


AMDAHL: Final = Law("amdahl", 2, lambda n: _column(np.ones_like(n), 1 / n), lambda o: o.step_ns)
GUSTAFSON: Final = Law("gustafson", 2, lambda n: _column(np.ones_like(n), n), lambda o: o.samples_per_s)
USL: Final = Law("usl", 4, lambda n: _column(np.ones_like(n), n - 1, n * (n - 1)), lambda o: o.ranks / o.samples_per_s)
LAWS: Final[dict[ScalingKind, tuple[Law, ...]]] = {"strong": (AMDAHL, USL), "weak": (GUSTAFSON, USL)}


def fits(kind: ScalingKind, points: Sequence[ScalingPoint], observed: Observations) -> list[Fit]:
    """Return every law that fits this kind of scaling, or why it cannot be fitted."""
    return [_fit(law, points, observed) for law in LAWS[kind]]


def _fit(law: Law, points: Sequence[ScalingPoint], observed: Observations) -> Fit:
    reason = refusal(law, points)
    found = None if reason else fit(law, observed)
    if found is None:
        reason = reason or "it does not describe these runs: no time is left to the work itself"
        return Fit(model=law.model, parameters={}, residual=None, peak=None, reason=reason)
    return Fit(
        model=law.model,
        parameters=parameters(law, found),
        residual=found.residual,
        peak=_peak(found.values) if law is USL else None,
        reason=None if found.draws is not None else "no intervals: as many runs as parameters; repeat the runs",
    )


def refusal(law: Law, points: Sequence[ScalingPoint]) -> str | None:
    """Say why the points are too few; those whose ranks share cores tell of sharing, not of scaling."""
    usable = sum(point.oversubscribed is None for point in points)
    if usable >= law.fewest:
        return None
    shared = len(points) - usable
    without = f", {shared} of them with more than the cores hold" if shared else ""
    return f"it takes {law.fewest} world sizes; there are {len(points)}{without}"


def fit(law: Law, observed: Observations) -> Fitted | None:
    """Fit a law; None where the USL leaves no time to the work itself, so that one rank would be infinitely fast."""
    columns, target = law.columns(observed.ranks), law.observed(observed)
    values = nnls(columns, target[None])[0]
    if law is USL and not values[0] > 0:
        return None
    fitted = columns @ values
    relative = fitted / target - 1
    free = len(target) - columns.shape[1]
    return Fitted(
        values,
        _redrawn(columns, fitted, math.sqrt(float(relative @ relative) / free), free) if free > 0 else None,
        math.sqrt(float(relative @ relative) / len(target)),
    )


def _redrawn(columns: Floats, fitted: Floats, scatter: float, free: int) -> Floats:
    """Return the coefficients of runs drawn anew around a fit; scatter is of relative errors."""
    draw = generator(len(fitted))
    scale = scatter * np.sqrt(free / draw.chisquare(free, size=(DRAWS, 1)))
    # Capped: with one degree of freedom a draw in a thousand would be beyond what a float holds.
    error = np.clip(scale * draw.standard_normal((DRAWS, len(fitted))), -20, 20)
    return nnls(columns, fitted * np.exp(error))


def parameters(law: Law, found: Fitted) -> dict[str, Estimate]:
    """Return the parameters that the coefficients stand for."""
    table = found.values[None] if found.draws is None else np.vstack([found.values, found.draws])
    with np.errstate(divide="ignore", invalid="ignore"):
        if law is USL:
            first = table[:, 0]
            named = {"g": 1 / first, "s": table[:, 1] / first, "k": table[:, 2] / first}
        else:
            named = {"serial_fraction": table[:, 0] / table.sum(axis=1)}
    return {name: _estimate(column) for name, column in named.items()}


def _estimate(column: Floats) -> Estimate:
    """Return the first as the value, the others as its draws; where one has no such figure it counts as largest."""
    draws = np.nan_to_num(column[1:], nan=np.inf, posinf=np.inf)
    if not len(draws):
        return Estimate(value=float(column[0]), interval=None)
    low, high = interval(draws)
    known = math.isfinite(low) and math.isfinite(high)
    return Estimate(value=float(column[0]), interval=(low, high) if known else None)


def _peak(values: Floats) -> float | None:
    """Return where the law's throughput is largest, sqrt((1 - s) / k); None where it never falls."""
    first, contention, coherence = values.tolist()
    if coherence <= 0 or contention >= first:
        return None
    return math.sqrt((first - contention) / coherence)
