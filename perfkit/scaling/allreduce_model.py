"""Predict the time of a step's all-reduces on more ranks from their latency and bandwidth (metrics.md section 5)."""

from collections.abc import Sequence
from statistics import median

from perfkit.schema.cross_rank import BandwidthFit
from perfkit.schema.run import RunReport


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
    fit = _fit(run)
    if fit is None or fit.alpha_ns is None or not steps or run.cross_rank is None:
        return None
    rows = [
        row for row in run.cross_rank.collectives if row.operator == "all_reduce" and row.group_size == run.world_size
    ]
    if not rows or any(row.bytes is None for row in rows):
        return None
    ns_per_byte = 2 * (ranks - 1) / ranks * 1e9 / fit.beta if fit.beta else 0.0
    return sum(row.count * (fit.alpha_ns + ns_per_byte * (row.bytes or 0)) for row in rows) / steps


def _fit(run: RunReport) -> BandwidthFit | None:
    """Return the fit of the all-reduces among all ranks; None unless exactly one group has them."""
    fits = [
        fit
        for fit in (run.cross_rank.bandwidth_fits if run.cross_rank else ())
        if fit.operator == "all_reduce" and fit.group_size == run.world_size
    ]
    return fits[0] if len(fits) == 1 else None
