"""What is lost from one world size to the next, and by values of an option."""

from collections.abc import Iterator, Sequence
from itertools import product

from perfkit.engine.losses.context import MIN_SHARE
from perfkit.engine.losses.loss import Loss
from perfkit.records.facts import Fact, fact
from perfkit.records.scaling import LostEfficiency, OptionComparison, OptionRow, ScalingPoint, ScalingSeries


def _computation(series: ScalingSeries, lost: LostEfficiency) -> Loss | None:
    points = {point.world_size: point for point in series.points}
    before, after = points[lost.from_size], points[lost.to_size]
    factors = after.factors
    if factors is None or before.factors is None or after.oversubscribed or lost.computation_scaling < 100 * MIN_SHARE:
        return None
    if not _grew_significantly(before, after, 1.0 if series.kind == "strong" else lost.to_size / lost.from_size):
        return None
    grown = before.factors.computation_scaling / factors.computation_scaling
    kept = factors.global_efficiency / (factors.global_efficiency + lost.computation_scaling / 100)
    sizes = {"before": lost.from_size, "after": lost.to_size}
    why, remedy = _explain_computation(series, lost, before.threads, after.threads)
    return Loss(
        cause="computation_scaling",
        facts=(fact("computation_scaling", **sizes, points=lost.computation_scaling, times=grown), *why),
        evidence={"points": lost.computation_scaling, "times": grown},
        remedy=(remedy,),
        per_step_ns=after.step_time.step_ns.value * (1 - kept),
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
) -> tuple[list[Fact], Fact]:
    """Return the likely reason for more compute time, and what to try."""
    if threads_before and threads and threads < threads_before:
        why = fact("fewer_threads", threads=threads, before=threads_before)
        return [why], fact("repeat_with_threads", ranks=lost.from_size, threads=threads)
    if series.kind == "strong":
        sizes = {point.world_size: point.batch_size for point in series.points}
        return [fact("smaller_batch", batch=sizes[lost.to_size], before=sizes[lost.from_size])], fact("weak_scaling")
    return [], fact("check_shared")


def series_losses(several: Sequence[ScalingSeries]) -> Iterator[tuple[str, str, Loss]]:
    """Yield the rule, the series and what is lost between neighbouring world sizes."""
    for series in several:
        for lost in series.lost:
            if loss := _computation(series, lost):
                yield "computation_scaling", series.name, loss


def _slower_source(comparison: OptionComparison, row: OptionRow) -> Loss | None:
    first = comparison.rows[0]
    if comparison.option != "source" or first.value != "memory" or not _is_significant(row) or row.ratio is None:
        return None
    longer_ns = row.step_time.step_ns.value - first.step_time.step_ns.value
    if longer_ns < MIN_SHARE * row.step_time.step_ns.value:
        return None
    times = {"ns": row.step_time.step_ns.value, "memory_ns": first.step_time.step_ns.value}
    return Loss(
        cause="slower_source",
        facts=(fact("slower_source", source=row.value, ratio=row.ratio.value, ranks=comparison.world_size, **times),),
        evidence={"ratio": row.ratio.value, "longer_ns": longer_ns},
        remedy=(fact("read_from_memory"),),
        per_step_ns=longer_ns,
    )


def _faster_option(comparison: OptionComparison, row: OptionRow) -> Loss | None:
    first = comparison.rows[0]
    if comparison.option == "source" or not _is_significant(row) or row.ratio is None:
        return None
    if row.step_time.samples_per_step != first.step_time.samples_per_step:
        return None  # a step with fewer samples is shorter, and nothing is gained
    shorter_ns = first.step_time.step_ns.value - row.step_time.step_ns.value
    if shorter_ns < MIN_SHARE * first.step_time.step_ns.value:
        return None
    values = {"option": comparison.option, "value": row.value}
    compared = {"ratio": row.ratio.value, "other": first.value, "ranks": comparison.world_size}
    return Loss(
        cause="option",
        facts=(fact("faster_option", **values, **compared),),
        evidence={"ratio": row.ratio.value, "shorter_ns": shorter_ns},
        remedy=(fact("use_option", **values),),
        per_step_ns=shorter_ns,
    )


def _is_significant(row: OptionRow) -> bool:
    """Return whether the interval over repeats excludes 1."""
    if row.ratio is None or row.ratio.interval is None or row.step_time.resampled != "runs":
        return False
    low, high = row.ratio.interval
    return not low <= 1 <= high


def option_losses(comparisons: Sequence[OptionComparison]) -> Iterator[tuple[str, str, Loss]]:
    """Yield the rule, the comparison and what is lost by each value of an option."""
    rules = {"input": _slower_source, "option": _faster_option}
    for comparison, (rule, compare) in product(comparisons, rules.items()):
        for row in comparison.rows[1:]:
            if loss := compare(comparison, row):
                yield rule, comparison.name, loss
