"""The rules that make insights of several runs: of a series from one world size to the next, and of an option."""

from collections.abc import Callable
from typing import Final, NamedTuple

from perfkit.insights.rule import InsightDraft
from perfkit.insights.run_rules import NOTICEABLE, ranks_of
from perfkit.schema.scaling import LostEfficiency, OptionComparison, OptionRow, ScalingPoint, ScalingSeries
from perfkit.util.formatting import duration, escape_unprintable


class SeriesRule(NamedTuple):
    """A rule over the step from one world size to the next."""

    name: str
    evaluate: Callable[[ScalingSeries, LostEfficiency], InsightDraft | None]


class OptionRule(NamedTuple):
    """A rule over one value of an option, against the first."""

    name: str
    evaluate: Callable[[OptionComparison, OptionRow], InsightDraft | None]


def _computation(series: ScalingSeries, lost: LostEfficiency) -> InsightDraft | None:
    points = {point.world_size: point for point in series.points}
    before, after = points[lost.from_size], points[lost.to_size]
    factors = after.factors
    if factors is None or before.factors is None or after.oversubscribed or lost.computation_scaling < 100 * NOTICEABLE:
        return None
    if not _grew(before, after, 1.0 if series.kind == "strong" else lost.to_size / lost.from_size):
        return None
    grown = before.factors.computation_scaling / factors.computation_scaling
    why, step = _why_more_computation(series, lost, before.threads, after.threads)
    kept = factors.global_efficiency / (factors.global_efficiency + lost.computation_scaling / 100)
    return InsightDraft(
        f"from {lost.from_size} to {lost.to_size} ranks {lost.computation_scaling:.0f} points go to computation: the "
        f"same work takes {grown:.2f} times as much of it{why}",
        {"points": lost.computation_scaling, "times": grown},
        step,
        after.step_time.step_ns.value * (1 - kept),
    )


def _grew(before: ScalingPoint, after: ScalingPoint, expected: float) -> bool:
    """Say whether the intervals tell that computation grew by more than `expected`."""
    if before.computation_ns is None or after.computation_ns is None:
        return False
    least, most = after.computation_ns.interval, before.computation_ns.interval
    return least is not None and most is not None and least[0] > expected * most[1]


def _why_more_computation(
    series: ScalingSeries, lost: LostEfficiency, threads_before: int | None, threads: int | None
) -> tuple[str, str]:
    if threads_before and threads and threads < threads_before:
        why = f"; a rank has {threads} CPU threads instead of {threads_before}"
        return why, f"compare like with like: repeat {lost.from_size} ranks with --threads {threads}"
    if series.kind == "strong":
        sizes = {point.world_size: point.batch_size for point in series.points}
        why = f"; a rank's batch is {sizes[lost.to_size]} instead of {sizes[lost.from_size]}"
        return why, "keep the batch of a rank as ranks are added (weak scaling), if the training allows it"
    return "", "see what the ranks share: memory bandwidth, caches, power"


COMPUTATION_SCALING: Final = SeriesRule("computation_scaling", _computation)
SERIES_RULES: Final = (COMPUTATION_SCALING,)
"""Evaluated between neighbouring world sizes of a series."""


def _source(axis: OptionComparison, row: OptionRow) -> InsightDraft | None:
    first = axis.rows[0]
    if axis.option != "source" or first.value != "memory" or not _told_apart(row) or row.ratio is None:
        return None
    longer_ns = row.step_time.step_ns.value - first.step_time.step_ns.value
    if longer_ns < NOTICEABLE * row.step_time.step_ns.value:
        return None
    return InsightDraft(
        f"from {escape_unprintable(row.value)} a step takes {row.ratio.value:.2f} times as long as from memory at "
        f"{ranks_of(axis.world_size)} ({duration(row.step_time.step_ns.value)} against "
        f"{duration(first.step_time.step_ns.value)})",
        {"ratio": row.ratio.value, "longer_ns": longer_ns},
        "batched reads, loader workers, or the data in memory",
        longer_ns,
    )


def _option(axis: OptionComparison, row: OptionRow) -> InsightDraft | None:
    first = axis.rows[0]
    if axis.option == "source" or not _told_apart(row) or row.ratio is None:
        return None
    shorter_ns = first.step_time.step_ns.value - row.step_time.step_ns.value
    if shorter_ns < NOTICEABLE * first.step_time.step_ns.value:
        return None
    return InsightDraft(
        f"with {axis.option}={escape_unprintable(row.value)} a step takes {row.ratio.value:.2f} times as long as with "
        f"{escape_unprintable(first.value)} at {ranks_of(axis.world_size)}",
        {"ratio": row.ratio.value, "shorter_ns": shorter_ns},
        f"use {axis.option}={escape_unprintable(row.value)}, if the training allows it",
        shorter_ns,
    )


def _told_apart(row: OptionRow) -> bool:
    """Say whether repeats tell the difference from noise."""
    if row.ratio is None or row.ratio.interval is None or row.step_time.resampled != "runs":
        return False
    low, high = row.ratio.interval
    return not low <= 1 <= high


SOURCE: Final = OptionRule("input", _source)
OPTION: Final = OptionRule("option", _option)
OPTION_RULES: Final = (SOURCE, OPTION)
"""Evaluated on each value of an option."""
