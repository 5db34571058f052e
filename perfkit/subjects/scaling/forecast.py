"""Forecast throughput at unmeasured world sizes with the universal scalability law, or give the reason not to.

The time of a step's all-reduces on more ranks is predicted from their latency and bandwidth (metrics.md section 5).
"""

from collections.abc import Sequence
from statistics import median
from typing import Final

import numpy as np
from msgspec.structs import replace

from perfkit.base.statistics.bootstrap import Floats, interval
from perfkit.records.facts import Statement, statement
from perfkit.records.run import RunReport
from perfkit.records.scaling import Estimate, Forecast, ScalingPoint
from perfkit.subjects.scaling.laws import USL, Fitted, Observations, fit, refusal
from perfkit.subjects.scaling.series import Group


def all_reduce_ns(runs: Sequence[RunReport], ranks: int) -> float | None:
    """Return the time of all all-reduces of a step among `ranks`, run one after another (ns), median over runs.

    Each takes alpha + 2 (n-1)/n S/beta, with alpha and beta fitted to the all-reduces among all ranks of a run. This is
    a lower bound: it ignores that latency grows with the number of ranks, and that links between them may be slower.

    Args:
        runs: repeats of one configuration.
        ranks: n.

    Returns:
        None if any run has no such fit, or has all-reduces of unknown size.
    """
    by_run = [_of_run(run, ranks) for run in runs]
    times_ns = [time_ns for time_ns in by_run if time_ns is not None]
    return median(times_ns) if times_ns and len(times_ns) == len(by_run) else None


def _of_run(run: RunReport, ranks: int) -> float | None:
    steps = max((len(rank.steps) for rank in run.ranks), default=0)
    # All-reduces among all ranks; of several groups, nothing tells which is meant.
    fits = [
        fit
        for fit in (run.cross_rank.bandwidth_fits if run.cross_rank else ())
        if fit.operator == "all_reduce" and fit.group_size == run.world_size
    ]
    fit = fits[0] if len(fits) == 1 else None
    if fit is None or fit.alpha_ns is None or not steps or run.cross_rank is None:
        return None
    rows = [
        row for row in run.cross_rank.collectives if row.operator == "all_reduce" and row.group_size == run.world_size
    ]
    if not rows or any(row.bytes is None for row in rows):
        return None
    ns_per_byte = 2 * (ranks - 1) / ranks * 1e9 / fit.beta if fit.beta else 0.0
    return sum(row.count * (fit.alpha_ns + ns_per_byte * (row.bytes or 0)) for row in rows) / steps


DEFAULT_TIMES: Final = (2, 4)
"""Default forecast sizes, as multiples of the largest measured world size."""
_MAX_RESIDUAL: Final = 0.1
"""Largest RMS relative error of a law that is extrapolated."""
_WIDEST: Final = 4.0
"""Largest ratio between the ends of a useful interval."""


def forecasts(
    group: Group, points: Sequence[ScalingPoint], observed: Observations, sizes: Sequence[int]
) -> list[Forecast]:
    """Return one forecast per world size; without `sizes`, of a few larger than measured if the law can be fitted.

    Args:
        group: the series.
        points: its points.
        observed: its runs.
        sizes: requested world sizes.
    """
    reason = refusal(USL, points)
    if reason and not sizes:
        return []
    law = None if reason else fit(USL, observed)
    reason = statement("law_not_fitted", reason=reason) if reason else _why_unusable(law)
    requested = sizes or [times * points[-1].world_size for times in DEFAULT_TIMES]
    largest = max((point.world_size for point in points if point.oversubscribed is None), default=None)
    runs = group.points[largest] if largest is not None else []
    return [
        replace(_forecast(size, group, points[0].world_size, law, reason), all_reduce_ns=all_reduce_ns(runs, size))
        for size in requested
    ]


def _why_unusable(law: Fitted | None) -> Statement | None:
    if law is None:
        return statement("no_time_for_work")
    if law.draws is None:
        return statement("no_residuals")
    if law.residual > _MAX_RESIDUAL:
        return statement("law_deviates", residual=law.residual)
    return None


def _forecast(size: int, group: Group, reference: int, law: Fitted | None, reason: Statement | None) -> Forecast:
    if reason is None and group.kind == "strong" and group.batch_size % size:
        reason = statement("batch_not_divisible", batch=group.batch_size, ranks=size)
    if reason is not None or law is None or law.draws is None:
        return Forecast(world_size=size, samples_per_s=None, efficiency=None, reason=reason)
    table = np.vstack([law.values, law.draws])
    rate, base = throughput(table, size), throughput(table, reference)
    band = interval(rate[1:])
    if not band[1] <= _WIDEST * band[0]:
        reason = statement("wide_forecast", low=band[0], high=band[1])
        return Forecast(world_size=size, samples_per_s=None, efficiency=None, reason=reason)
    efficiency = rate * reference / (base * size)
    return Forecast(
        world_size=size,
        samples_per_s=Estimate(value=float(rate[0]), interval=band),
        efficiency=Estimate(value=float(efficiency[0]), interval=interval(efficiency[1:])),
        reason=None,
    )


def throughput(coefficients: Floats, size: int) -> Floats:
    """Return the law's samples per second at one world size, for each row of coefficients."""
    times: Floats = coefficients @ USL.columns(np.array([float(size)]))[0]
    rates: Floats = np.divide(size, times, out=np.full(len(times), np.inf), where=times > 0)
    return rates
