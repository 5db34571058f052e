"""What a step's all-reduces would take on more ranks, by their latency and bandwidth (metrics.md section 5)."""

from collections.abc import Sequence
from statistics import median

from perfkit.schema.cross_rank import BandwidthFit
from perfkit.schema.run import RunReport


def all_reduce_ns(runs: Sequence[RunReport], ranks: int) -> float | None:
    """Return the time of all all-reduces of a step among `ranks`, one after another (ns), median over runs.

    Each takes alpha + 2 (n-1)/n S/beta, with the alpha and beta fitted to the all-reduces among all ranks of a run.
    That latency grows with the ranks, and that a slower network may begin between them, is not in it: it is the least
    that is to be expected.

    Args:
        runs: repeats.
        ranks: n.

    Returns:
        None where some run has no such fit, or all-reduces of unknown size.
    """
    known = [_of_run(run, ranks) for run in runs]
    times = [time for time in known if time is not None]
    return median(times) if times and len(times) == len(known) else None


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
    a_byte_ns = 2 * (ranks - 1) / ranks * 1e9 / fit.beta if fit.beta else 0.0
    return sum(row.count * (fit.alpha_ns + a_byte_ns * (row.bytes or 0)) for row in rows) / steps


def _fit(run: RunReport) -> BandwidthFit | None:
    """Return the fit of the all-reduces among all ranks; None where there are several groups of them, or none."""
    fits = [
        fit
        for fit in (run.cross_rank.bandwidth_fits if run.cross_rank else ())
        if fit.operator == "all_reduce" and fit.group_size == run.world_size
    ]
    return fits[0] if len(fits) == 1 else None
