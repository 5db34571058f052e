"""Columns of estimated figures with their intervals, and what the intervals are."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from perfkit.base.formatting import MISSING, figures, rate, size
from perfkit.records.scaling import Estimate, StepTimeEstimate
from perfkit.tables.specification import Cell, Field, Show, data, number

_MANY: Final = 99_999.5


def estimated(estimate: Estimate | None, show: Callable[[float], str], low: float = 0) -> Cell:
    """Return a figure with its interval as the note, highlighted if below `low`."""
    if estimate is None:
        return Cell(MISSING)
    is_low = estimate.value < low
    return Cell(show(estimate.value), interval_note(estimate.interval, show), "warning" if is_low else "plain")


def estimates(
    key: str, get: Callable[[Any], Estimate | None], title: str = "", form: Callable[[float], str] = str, low: float = 0
) -> tuple[Field, Field, Field]:
    """Return the columns of an estimate: readers see it as `title` with its interval, files have three columns.

    Args:
        key: of the column in files.
        get: returns the estimate of a row.
        title: heading for readers; empty: only in files.
        form: of the figure for readers.
        low: a figure below it is highlighted.
    """

    def end(index: int) -> Show:
        def value(row: Any) -> float | None:
            estimate = get(row)
            return estimate.interval[index] if estimate and estimate.interval else None

        return value

    def figure(row: Any) -> float | None:
        estimate = get(row)
        return estimate.value if estimate else None

    shown = number(title, lambda row: estimated(get(row), form, low)) if title else None
    return (
        data(key, float | None, figure, shown),
        data(f"{key}_low", float | None, end(0)),
        data(f"{key}_high", float | None, end(1)),
    )


def interval_note(interval: tuple[float, float] | None, show: Callable[[float], str]) -> str:
    """Return an interval, with the unit once if both ends have the same."""
    if interval is None or interval[0] == interval[1]:
        return ""
    first, last = (show(end) for end in interval)
    figure, _, unit = first.partition(" ")
    return f"{figure if unit == last.partition(' ')[2] else first}–{last}"


def two_decimals(value: float) -> str:
    """Return a factor with two decimals, from 100 on with three digits."""
    return figures(value) if abs(value) >= 100 else f"{value:.2f}"


def whole_rate(per_second: float) -> str:
    """Return a small rate with all its digits, a large one with three and a prefix."""
    return rate(per_second, "").removesuffix(" /s") if per_second < _MANY else size(per_second).removesuffix("B")


def measured_steps(times: Sequence[StepTimeEstimate]) -> str:
    """Return which steps were measured: tables of single runs show the recorded ones."""
    return "without the profiler" if all(time.measured_on == "plain" for time in times) else "with the profiler"


def interval_method(figures: Sequence[StepTimeEstimate]) -> str:
    """Return what the range beside a figure is: over the steps of single runs it is no interval for other runs."""
    kinds = {figure.resampled for figure in figures}
    if kinds == {"runs"}:
        return "intervals: 95 %, bootstrap over runs"
    if "runs" in kinds:
        return (
            "ranges: 95 % intervals over runs where all n are three or more, else only the spread over steps, which "
            "does not show how runs differ"
        )
    if "steps" in kinds:
        return "ranges: only the spread over the steps of these runs, which does not show how runs differ"
    return "too few runs and steps for intervals"
