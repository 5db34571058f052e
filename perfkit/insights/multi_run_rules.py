"""Insight rules for scaling series and option comparisons."""

from collections.abc import Callable
from typing import Final, NamedTuple

from perfkit.insights.rule import InsightDraft
from perfkit.insights.run_rules import ranks_of
from perfkit.insights.waiting import MIN_SHARE
from perfkit.schema.scaling import LostEfficiency, OptionComparison, OptionRow, ScalingPoint, ScalingSeries
from perfkit.util.formatting import duration, escape_unprintable


class SeriesRule(NamedTuple):
    """A rule over two neighbouring world sizes of a series."""

    name: str
    evaluate: Callable[[ScalingSeries, LostEfficiency], InsightDraft | None]


class OptionRule(NamedTuple):
    """A rule over one value of an option, compared with the first."""

    name: str
    evaluate: Callable[[OptionComparison, OptionRow], InsightDraft | None]


def _computation(series: ScalingSeries, lost: LostEfficiency) -> InsightDraft | None:
    points = {point.world_size: point for point in series.points}
    before, after = points[lost.from_size], points[lost.to_size]
    factors = after.factors
    if factors is None or before.factors is None or after.oversubscribed or lost.computation_scaling < 100 * MIN_SHARE:
        return None
    if not _grew_significantly(before, after, 1.0 if series.kind == "strong" else lost.to_size / lost.from_size):
        return None
    grown = before.factors.computation_scaling / factors.computation_scaling
    why, recommendation = _explain_computation(series, lost, before.threads, after.threads)
    kept = factors.global_efficiency / (factors.global_efficiency + lost.computation_scaling / 100)
    return InsightDraft(
        f"from {lost.from_size} to {lost.to_size} ranks, computation scaling costs {lost.computation_scaling:.0f} "
        f"percentage points of global efficiency: the same work takes {grown:.2f} times as much compute time{why}",
        {"points": lost.computation_scaling, "times": grown},
        recommendation,
        after.step_time.step_ns.value * (1 - kept),
    )


def _grew_significantly(before: ScalingPoint, after: ScalingPoint, expected: float) -> bool:
    """Return whether the intervals over repeats show that compute time grew by more than the factor `expected`."""
    if before.computation_ns is None or after.computation_ns is None:
        return False
    # The spread over the steps of one run does not show how runs differ.
    if not before.step_time.resampled == after.step_time.resampled == "runs":
        return False
    least, most = after.computation_ns.interval, before.computation_ns.interval
    return least is not None and most is not None and least[0] > expected * most[1]


def _explain_computation(
    series: ScalingSeries, lost: LostEfficiency, threads_before: int | None, threads: int | None
) -> tuple[str, str]:
    """Return the likely reason for more compute time, and a recommendation."""
    if threads_before and threads and threads < threads_before:
        why = f"; each rank has {threads} CPU threads instead of {threads_before}"
        return why, f"for a fair comparison, repeat {lost.from_size} ranks with --threads {threads}"
    if series.kind == "strong":
        sizes = {point.world_size: point.batch_size for point in series.points}
        why = f"; the batch per rank is {sizes[lost.to_size]} instead of {sizes[lost.from_size]}"
        return why, "keep the batch per rank constant as ranks are added (weak scaling), if the training allows it"
    return "", "check what the ranks share: memory bandwidth, caches, power"


COMPUTATION_SCALING: Final = SeriesRule("computation_scaling", _computation)
SERIES_RULES: Final = (COMPUTATION_SCALING,)
"""Evaluated between neighbouring world sizes of a series."""


def _slower_source(comparison: OptionComparison, row: OptionRow) -> InsightDraft | None:
    first = comparison.rows[0]
    if comparison.option != "source" or first.value != "memory" or not _is_significant(row) or row.ratio is None:
        return None
    longer_ns = row.step_time.step_ns.value - first.step_time.step_ns.value
    if longer_ns < MIN_SHARE * row.step_time.step_ns.value:
        return None
    return InsightDraft(
        f"with input from {escape_unprintable(row.value)} a step takes {row.ratio.value:.2f} times as long as from "
        f"memory at {ranks_of(comparison.world_size)} ({duration(row.step_time.step_ns.value)} against "
        f"{duration(first.step_time.step_ns.value)})",
        {"ratio": row.ratio.value, "longer_ns": longer_ns},
        "use batched reads or loader workers, or keep the data in memory",
        longer_ns,
    )


def _faster_option(comparison: OptionComparison, row: OptionRow) -> InsightDraft | None:
    first = comparison.rows[0]
    if comparison.option == "source" or not _is_significant(row) or row.ratio is None:
        return None
    if row.step_time.samples_per_step != first.step_time.samples_per_step:
        return None  # a step with fewer samples is shorter, and nothing is gained
    shorter_ns = first.step_time.step_ns.value - row.step_time.step_ns.value
    if shorter_ns < MIN_SHARE * first.step_time.step_ns.value:
        return None
    return InsightDraft(
        f"with {comparison.option}={escape_unprintable(row.value)} a step takes {row.ratio.value:.2f} times as long as "
        f"with {escape_unprintable(first.value)} at {ranks_of(comparison.world_size)}",
        {"ratio": row.ratio.value, "shorter_ns": shorter_ns},
        f"use {comparison.option}={escape_unprintable(row.value)}, if the training allows it",
        shorter_ns,
    )


def _is_significant(row: OptionRow) -> bool:
    """Return whether the interval over repeats excludes 1."""
    if row.ratio is None or row.ratio.interval is None or row.step_time.resampled != "runs":
        return False
    low, high = row.ratio.interval
    return not low <= 1 <= high


SOURCE: Final = OptionRule("input", _slower_source)
OPTION: Final = OptionRule("option", _faster_option)
OPTION_RULES: Final = (SOURCE, OPTION)
"""Evaluated on each value of an option."""
