"""What a comparison comes to, whether that is more than noise, what else is not the same; names of what is measured."""

from collections.abc import Sequence
from typing import Final

from perfkit.base.formatting import (
    difference,
    duration,
    escape_unprintable,
    format_percent,
    format_value,
    percent_change,
    plural,
)
from perfkit.records.benchmark import InputSeries, Series
from perfkit.records.comparison import Change, Difference
from perfkit.tables.labels import LONG

_MOST_NAMED: Final = 4
_MOST_VALUES: Final = 3
_COMMIT: Final = 12
"""Characters of a commit."""
_LABELS: Final = {str(category): label for category, label in LONG.items()}


def result(change: Change | None, is_plain: bool) -> str:
    """Return whether the runs after are faster; `is_plain`: the steps ran without the profiler."""
    if change is None or change.ratio is None:
        what = "step time" if change is None or change.unit == "ns" else "throughput"
        return f"No {what} on both sides to compare."
    before, after, per = _amounts(change, is_plain)
    if change.ratio == 1:
        return f"No change: {after} {per}."
    is_slower = (change.ratio > 1) == (change.unit == "ns")
    result = "Slower" if is_slower else "Faster"
    if change.significant is None:
        result = f"Measured {result.lower()}"
    elif not change.significant:
        result = "No change beyond noise"
    return f"{result}: {after} {per} instead of {before} ({percent_change(change.ratio)})."


def _amounts(change: Change, is_plain: bool) -> tuple[str, str, str]:
    """Return the amounts before and after, and what they are of."""
    if change.unit == "ns":
        return duration(change.before), duration(change.after), "per step" if is_plain else "per profiled step"
    return format_value(change.before, "ratio"), format_value(change.after, "ratio"), "samples/s"


def noise(change: Change, runs: Sequence[int], fewest: int, assumed_noise: float | None) -> str:
    """Return whether a change is more than noise; `runs` are the numbers before and after."""
    before, after = runs
    if change.significant is None:
        if min(before, after) < fewest:
            return f"not known from {plural(before, 'run')} before and {after} after: it takes {fewest} of each"
        return "these runs do not suffice to tell"
    within = "beyond" if change.significant else "within"
    if change.resampled != "runs" or change.interval is None:
        return f"{within} the assumed {format_percent(assumed_noise)}"
    low, high = map(percent_change, change.interval)
    return f"{within} run-to-run variation (95 % interval: {low} to {high})"


def changed(differences: Sequence[Difference], category: Change | None) -> str:
    """Return what is not the same, and the category of the step whose time changed most, if steps are comparable."""
    named = [f"{one.name} ({_either(one, one.before)} → {_either(one, one.after)})" for one in differences]
    more = [f"{len(named) - _MOST_NAMED} more"] if len(named) > _MOST_NAMED else []
    parts = [", ".join([*named[:_MOST_NAMED], *more]) or "no option, commit, version or device that is recorded"]
    if category and category.before is not None and category.after is not None:
        changed = difference(category.after - category.before)
        parts.append(f"most in {_LABELS.get(category.name, category.name)} ({changed} per profiled step)")
    return escape_unprintable("; ".join(parts))


def _either(one: Difference, values: Sequence[str]) -> str:
    shown = [value[:_COMMIT] if one.kind == "commit" else value for value in values]
    return " or ".join(shown[:_MOST_VALUES]) + (" or others" if len(shown) > _MOST_VALUES else "")


def describe_collectives(series: Series) -> str:
    """Return a series in words: `all_reduce of float32 among all 2 ranks`."""
    where = "all" if series.dimension is None else f"{series.dimension}'s"
    groups = f", {series.groups} groups at once" if series.groups > 1 else ""
    alone = ", one group alone" if series.dimension is not None and series.groups == 1 else ""
    several = f", {series.concurrent} collectives at once" if series.concurrent > 1 else ""
    place = ", in place" if series.in_place and series.operator in ("all_gather", "reduce_scatter") else ""
    kind = "" if series.operator == "barrier" else f" of {series.dtype}"
    return f"{series.operator}{kind} among {where} {series.group_size} ranks{groups}{alone}{several}{place}"


def describe_input(series: InputSeries) -> str:
    """Return a series in words: `hdf5 per-sample, 2 workers`."""
    workers = f", {series.num_workers} worker{'s' if series.num_workers > 1 else ''}" if series.num_workers else ""
    return f"{name_input(series)} {series.read}{workers}"


def name_input(series: InputSeries) -> str:
    """Return the source and how its files are read, without the way to read samples."""
    words = [f"{name.removeprefix(f'{series.source}_')} {value}" for name, value in series.layout.items()]
    words += [f"{series.files} files"] if series.files > 1 else []
    words += ["preloaded"] if series.preload else []
    words += [f"{series.readers} reader{'s' if series.readers > 1 else ''}"] if series.readers else []
    return escape_unprintable(f"{series.source} ({', '.join(words)})" if words else series.source)
