"""Laws of scaling, fitted to the runs of a series (metrics.md section 7).

All three are linear in their coefficients:

    Amdahl (1967)      t = a + b / N                      serial fraction a / (a + b)
    Gustafson (1988)   X = a + b N                        serial fraction a / (a + b)
    USL (Gunther 1993) N / X = a + b (N-1) + c N (N-1)    g = 1 / a,  s = b / a,  k = c / a

with X samples per second and N ranks. No parameter is negative, and the squared relative error over runs is minimised.
The mean step of one run is one observation, because its steps share whatever disturbed that run.

Intervals come from a parametric bootstrap: runs are redrawn around the fit with the scatter of its residuals (Student's
t with the residual degrees of freedom) and fitted again. With as many runs as parameters no residuals remain, and there
is no interval.
"""

import math
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np

from perfkit.base.statistics.bootstrap import DRAWS, Floats, generator, interval
from perfkit.base.statistics.nnls import nnls
from perfkit.records.facts import Statement, statement
from perfkit.records.scaling import Estimate, Fit, FitModel, ScalingPoint
from perfkit.records.sweep import ScalingKind


class Observations(NamedTuple):
    """The observations that a law is fitted to; shape (runs,)."""

    ranks: Floats
    step_ns: Floats
    samples_per_s: Floats


class Fitted(NamedTuple):
    """The coefficients of a fitted law, and those of every bootstrap draw."""

    values: Floats
    """Shape (parameters,)."""
    draws: Floats | None
    """Shape (DRAWS, parameters); None with as many runs as parameters."""
    residual: float
    """Root mean square of the relative errors."""


class Law(NamedTuple):
    """Definition of a law."""

    model: FitModel
    fewest: int
    """Fewest world sizes that it can be fitted to."""
    columns: Callable[[Floats], Floats]
    """Maps ranks to the design matrix, shape (runs, coefficients)."""
    observed: Callable[[Observations], Floats]


def _column(*parts: Floats) -> Floats:
    return np.stack(parts, axis=1)


AMDAHL: Final = Law("amdahl", 2, lambda n: _column(np.ones_like(n), 1 / n), lambda o: o.step_ns)
GUSTAFSON: Final = Law("gustafson", 2, lambda n: _column(np.ones_like(n), n), lambda o: o.samples_per_s)
USL: Final = Law("usl", 4, lambda n: _column(np.ones_like(n), n - 1, n * (n - 1)), lambda o: o.ranks / o.samples_per_s)
LAWS: Final[dict[ScalingKind, tuple[Law, ...]]] = {"strong": (AMDAHL, USL), "weak": (GUSTAFSON, USL)}


def fits(kind: ScalingKind, points: Sequence[ScalingPoint], observed: Observations) -> list[Fit]:
    """Return a fit of each law for this kind of scaling, or the reason why it cannot be fitted."""
    return [_fit(law, points, observed) for law in LAWS[kind]]


def _fit(law: Law, points: Sequence[ScalingPoint], observed: Observations) -> Fit:
    reason = refusal(law, points)
    fitted = None if reason else fit(law, observed)
    if fitted is None:
        reason = reason or statement("no_time_for_work")
        return Fit(model=law.model, parameters={}, residual=None, peak=None, reason=reason)
    return Fit(
        model=law.model,
        parameters=parameters(law, fitted),
        residual=fitted.residual,
        peak=_peak(fitted.values) if law is USL else None,
        reason=None if fitted.draws is not None else statement("no_residuals"),
    )


def refusal(law: Law, points: Sequence[ScalingPoint]) -> Statement | None:
    """Return why there are too few points; None if there are enough. Oversubscribed points do not count."""
    usable = sum(point.oversubscribed is None for point in points)
    if usable >= law.fewest:
        return None
    return statement("few_sizes", fewest=law.fewest, sizes=len(points), oversubscribed=len(points) - usable)


def fit(law: Law, observed: Observations) -> Fitted | None:
    """Fit a law; None if the USL leaves no time for the work itself, which would make one rank infinitely fast."""
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
    """Return the coefficients of bootstrap draws around a fit; `scatter` is of relative errors."""
    draw = generator(len(fitted))
    scale = scatter * np.sqrt(free / draw.chisquare(free, size=(DRAWS, 1)))
    # Clipped: with one degree of freedom one draw in a thousand would overflow a float.
    error = np.clip(scale * draw.standard_normal((DRAWS, len(fitted))), -20, 20)
    return nnls(columns, fitted * np.exp(error))


def parameters(law: Law, fitted: Fitted) -> dict[str, Estimate]:
    """Return the law's parameters from its coefficients."""
    table = fitted.values[None] if fitted.draws is None else np.vstack([fitted.values, fitted.draws])
    with np.errstate(divide="ignore", invalid="ignore"):
        if law is USL:
            first = table[:, 0]
            named = {"g": 1 / first, "s": table[:, 1] / first, "k": table[:, 2] / first}
        else:
            named = {"serial_fraction": table[:, 0] / table.sum(axis=1)}
    return {name: _estimate(column) for name, column in named.items()}


def _estimate(column: Floats) -> Estimate:
    """Return an estimate from a value followed by its draws; undefined draws count as infinite."""
    draws = np.nan_to_num(column[1:], nan=np.inf, posinf=np.inf)
    if not len(draws):
        return Estimate(value=float(column[0]), interval=None)
    low, high = interval(draws)
    finite = math.isfinite(low) and math.isfinite(high)
    return Estimate(value=float(column[0]), interval=(low, high) if finite else None)


def _peak(values: Floats) -> float | None:
    """Return the world size with the largest throughput, sqrt((1 - s) / k); None if throughput never falls."""
    first, contention, coherence = values.tolist()
    if coherence <= 0 or contention >= first:
        return None
    return math.sqrt((first - contention) / coherence)
