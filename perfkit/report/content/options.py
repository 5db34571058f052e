"""The tables of otherwise identical runs that differ in one option, or in how they share the model.

Their figures are estimates, with intervals; so are those of scaling series.
"""

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple

from perfkit.base.formatting import MISSING, duration, escape_unprintable, figures, format_percent, rate, size
from perfkit.options.identity import is_input_option
from perfkit.records.report import Report
from perfkit.records.run import LoadTimes
from perfkit.records.scaling import (
    Estimate,
    OptionComparison,
    OptionLoads,
    OptionRow,
    StepTimeEstimate,
    StrategyComparison,
    StrategyRow,
)
from perfkit.tables.specification import Cell, Field, Listing, Show, Table, data, make_table, number, words

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


# ---- options ---------------------------------------------------------------------------------------------------------

_COMMUNICATION: Final = " communication"
_MIN_SHARE: Final = 0.005


class _Row(NamedTuple):
    """A value of an option."""

    comparison: OptionComparison
    of: OptionRow
    loads: OptionLoads | None
    """In one state of the page cache."""

    @property
    def times(self) -> LoadTimes | None:
        return self.loads.times if self.loads else None


def _share(title: str, key: str) -> Field:
    return _own(key, float | None, number(title, lambda row: getattr(row.of, key), format_percent))


def _own(key: str, of: object, shown: Field | None) -> Field:
    return data(key, of, lambda row: getattr(row.of, key), shown)


_RUNS: Final = (
    data("option", str, lambda row: row.comparison.option),
    data("name", str, lambda row: row.comparison.name, words("runs", lambda row: row.comparison.name)),
    data(
        "world_size", int, lambda row: row.comparison.world_size, number("ranks", lambda row: row.comparison.world_size)
    ),
)
_STEPS: Final = (
    data("repeats", int, lambda row: len(row.of.step_time.runs), number("n", lambda row: len(row.of.step_time.runs))),
    data("measured_on", str, lambda row: row.of.step_time.measured_on),
    data("resampled", str | None, lambda row: row.of.step_time.resampled),
    *estimates("step_ns", lambda row: row.of.step_time.step_ns, "step", duration),
    *estimates("samples_per_s", lambda row: row.of.step_time.samples_per_s, "samples/s", whole_rate),
)
_RATIO: Final = estimates("ratio", lambda row: row.of.ratio)
_EFFICIENCY: Final = _share("efficiency", "efficiency")


def _of_loads(key: str, of: object, get: Callable[[LoadTimes], Any], shown: Field | None = None) -> Field:
    return data(key, of, lambda row: get(row.times) if row.times else None, shown)


def _median_load(row: _Row) -> Cell:
    times = row.times
    return Cell(duration(times.quartiles_ns[1]), interval_note(times.interval_ns, duration)) if times else Cell(MISSING)


def _quartiles(row: _Row) -> Cell:
    return Cell(interval_note(row.times.quartiles_ns[::2], duration) or MISSING if row.times else MISSING)


_CACHE: Final = _of_loads(
    "load_cache",
    str | None,
    attrgetter("cache"),
    words("cache", lambda row: (row.times and row.times.cache) or MISSING),
)
_LOADS: Final = (
    _of_loads("load_measured_on", str | None, attrgetter("measured_on")),
    _of_loads("loads", int | None, attrgetter("count"), number("loads", lambda row: row.times and row.times.count)),
    _of_loads("load_median_ns", float | None, lambda times: times.quartiles_ns[1], number("median load", _median_load)),
    _of_loads("load_low_ns", float | None, lambda times: times.quartiles_ns[0]),
    _of_loads("load_high_ns", float | None, lambda times: times.quartiles_ns[2], number("quartiles", _quartiles)),
    _of_loads(
        "load_max_ns",
        float | None,
        attrgetter("max_ns"),
        number("slowest", lambda row: row.times and row.times.max_ns, duration),
    ),
    _share("% of step", "exposed_share"),
)
_LOAD_RATIO: Final = estimates("load_ratio", lambda row: row.loads and row.loads.ratio, "vs. memory", two_decimals)
_READ: Final = _own("read_bytes_per_s", float | None, number("read", lambda row: rate(row.of.read_bytes_per_s, "B")))
_RATES: Final = (
    _share("% of in-memory", "memory_share"),
    _own("file_bytes_per_s", float | None, number("file bandwidth", lambda row: rate(row.of.file_bytes_per_s, "B"))),
    _share("in cache", "file_cached_share"),
    _share("% of file", "file_share"),
)


def option_tables(option: str, comparisons: Sequence[OptionComparison]) -> list[Table]:
    """Return the tables of one option: steps first, then input and read bandwidth where the option is one of input."""
    rows = [row for comparison in comparisons for row in _rows(comparison)]
    times = [row.of.step_time for row in rows]
    names = {comparison.name for comparison in comparisons}
    label = escape_unprintable(option)
    alike = f" ({escape_unprintable(names.pop())})" if len(names) == 1 else ""
    shared = (*_RUNS[2 if alike else 1 :], words(label, lambda row: row.of.value))
    ratio = number("vs. baseline", lambda row: estimated(row.of.ratio, two_decimals) if row.of.ratio else "1")
    remark = (
        f"step: {measured_steps(times)}; vs. baseline: step time relative to the first row; {interval_method(times)}"
    )
    tables = [
        make_table(
            f"By {label}: otherwise identical runs{alike}",
            rows,
            (*shared, *_STEPS, _EFFICIENCY, ratio),
            remark + _samples_differ(comparisons),
        )
    ]
    if is_input_option(option) and any(row.loads for row in rows):
        each = [one._replace(loads=loads) for one in rows for loads in (*one.of.loads,) or (None,)]
        cache = (_CACHE,) if any(row.times and row.times.cache for row in each) else ()
        columns = (*shared, *cache, *_LOADS, *_LOAD_RATIO)
        tables.append(make_table(f"By {label}: input{alike}", each, columns, _of_load_times(each)))
        if any(row.of.read_bytes_per_s is not None or row.of.file_bytes_per_s is not None for row in rows):
            columns = (*shared, _READ, *_RATES)
            tables.append(make_table(f"By {label}: read bandwidth{alike}", rows, columns, _OF_RATES))
    return [table for table in tables if table]


def _of_load_times(rows: Sequence[_Row]) -> str:
    """Return what the figures of loads are."""
    is_plain = all(row.times.measured_on == "plain" for row in rows if row.times)
    known = any(row.times.interval_ns for row in rows if row.times)
    ranges = "ranges: 95 % intervals of the median, and of its ratio, which include that of the fastest loads; "
    return (
        f"loads: waits for a batch, of all ranks, {'without' if is_plain else 'with'} the profiler; "
        f"{ranges if known else ''}% of step: exposed; vs. memory: median relative to that from memory"
    )


_OF_RATES: Final = (
    "read: all ranks together, while waiting for samples; % of in-memory: relative to reading from memory; file "
    "bandwidth: sequential reads by one process after the run; in cache: share of the file in the page cache then; "
    "% of file: per-rank rate relative to the file bandwidth"
)


def _samples_differ(comparisons: Sequence[OptionComparison]) -> str:
    """Return a remark if compared steps have different numbers of samples, so that their times are not comparable."""
    each = ({row.step_time.samples_per_step for row in comparison.rows} for comparison in comparisons)
    return "; steps have different numbers of samples: compare samples/s" if any(len(one) > 1 for one in each) else ""


def _rows(comparison: OptionComparison) -> list[_Row]:
    return [_Row(comparison, row, row.loads[0] if row.loads else None) for row in comparison.rows]


def _options(report: Report) -> Iterator[_Row]:
    for comparison in report.multi_run.option_comparisons if report.multi_run else ():
        yield from _rows(comparison)


LISTINGS: Final = {
    "options": Listing(
        _options,
        (
            *_RUNS,
            data("value", str, lambda row: row.of.value),
            *(*_STEPS, *_RATIO, _EFFICIENCY),
            *(_CACHE, *_LOADS, _READ, *_LOAD_RATIO, *_RATES),
        ),
    )
}


# ---- strategies: ways to share a model between the same ranks, at the same global batch ------------------------------


def strategies(comparisons: Sequence[StrategyComparison]) -> list[Table]:
    """Return one table per comparison."""
    return [table for comparison in comparisons if (table := _strategies(comparison))]


def _strategies(comparison: StrategyComparison) -> Table | None:
    times = [row.step_time for row in comparison.rows]
    tokens = all(time.tokens_per_s is not None for time in times)
    where = "without" if all(time.measured_on == "plain" for time in times) else "with"
    columns = (
        words("strategy", lambda row: row.strategy),
        number("n", lambda row: len(row.step_time.runs)),
        number("step", lambda row: row.step_time.step_ns.value, duration),
        number("tokens/s" if tokens else "samples/s", lambda row: _per_s(row, tokens), _without_unit),
        number("vs. fastest", _ratio),
        number("memory", lambda row: row.memory_bytes, size),
        words("exposed communication", _exposed),
    )
    title = (
        f"Strategies: {escape_unprintable(comparison.name)} ({comparison.world_size} ranks, "
        f"{comparison.samples_per_step} samples per step)"
    )
    remark = (
        f"{escape_unprintable(comparison.sentence)}.\nstep: {where} the profiler; memory: parameters, gradients and "
        "optimizer state of the rank that holds most; exposed: share of the profiled step"
    )
    return make_table(title, comparison.rows, columns, remark)


def _per_s(row: StrategyRow, tokens: bool) -> float | None:
    samples = row.step_time.samples_per_s
    return row.step_time.tokens_per_s if tokens else (samples.value if samples else None)


def _without_unit(per_s: float) -> str:
    return rate(per_s, "").removesuffix(" /s")


def _ratio(row: StrategyRow) -> Cell:
    interval = row.ratio.interval if row.ratio else None
    return Cell(
        "1" if row.ratio is None else f"{row.ratio.value:.2f}",
        "" if interval is None else f"{interval[0]:.2f}–{interval[1]:.2f}",
    )


def _exposed(row: StrategyRow) -> str:
    """Return the shares of the profiled step that communication is exposed in, by dimension, largest first."""
    whole = sum(row.parts_ns.values())
    parts = sorted(((ns, name) for name, ns in row.parts_ns.items() if name.endswith(_COMMUNICATION)), reverse=True)
    shown = [
        f"{escape_unprintable(name.removesuffix(_COMMUNICATION))} {format_percent(ns / whole)}"
        for ns, name in parts
        if whole and ns >= _MIN_SHARE * whole
    ]
    return ", ".join(shown) or MISSING
