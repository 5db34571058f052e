"""What the series of benchmarks are called."""

from perfkit.base.formatting import escape_unprintable
from perfkit.records.benchmark import InputSeries, Series


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
