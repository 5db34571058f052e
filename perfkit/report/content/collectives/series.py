"""Tables of measured collectives by size, and of their fits."""

from collections.abc import Iterator
from typing import Final

from perfkit.report.content.document import Cell, Column, Table
from perfkit.schema.benchmark import CollectiveBenchmark, Measurement, Series
from perfkit.util.formatting import MISSING, duration, format_percent, size, whole_percent

_COLUMNS: Final = (
    Column("size (B)"),
    Column("elements"),
    Column("type"),
    Column("time"),
    Column("±"),
    Column("algbw"),
    Column("busbw"),
    Column("wrong"),
)


def describe(series: Series) -> str:
    """Return a series in words: `all_reduce of float32 among all 2 ranks`."""
    where = "all" if series.dimension is None else f"{series.dimension}'s"
    groups = f", {series.groups} groups at once" if series.groups > 1 else ""
    alone = ", one group alone" if series.dimension is not None and series.groups == 1 else ""
    several = f", {series.concurrent} collectives at once" if series.concurrent > 1 else ""
    place = ", in place" if series.in_place and series.operator in ("all_gather", "reduce_scatter") else ""
    kind = "" if series.operator == "barrier" else f" of {series.dtype}"
    return f"{series.operator}{kind} among {where} {series.group_size} ranks{groups}{alone}{several}{place}"


def by_size(record: CollectiveBenchmark) -> Iterator[Table]:
    """Yield a table per series, with one row per size."""
    for number, series in enumerate(record.series):
        rows = [_row(series, row) for row in record.measurements if row.series == number]
        if rows:
            yield Table(describe(series), _COLUMNS, rows)


def _row(series: Series, row: Measurement) -> tuple[Cell, ...]:
    ends = row.interval_ns or ()
    spread = whole_percent(max(abs(end / row.time_ns - 1) for end in ends)) if ends else MISSING
    wrong = Cell(MISSING) if row.wrong is None else Cell(f"{row.wrong:,}", tone="error" if row.wrong else "plain")
    return (
        Cell(f"{row.bytes:,}"),
        Cell(f"{row.elements:,}"),
        Cell(series.dtype if row.bytes else MISSING),
        Cell(duration(row.time_ns)),
        Cell(spread, tone="faint"),
        Cell(rate(row.algbw)),
        Cell(rate(row.busbw)),
        wrong,
    )


def fits(record: CollectiveBenchmark) -> Table | None:
    """Return the fitted latencies and bandwidths; None if there is none."""
    known = [one for one in record.fits if one.fit.reason is None]
    if not known:
        return None
    rows = [
        (
            Cell(describe(record.series[one.series])),
            Cell(duration(one.fit.alpha_ns)),
            Cell(rate(one.fit.beta)),
            Cell(MISSING if one.fit.error is None else f"±{format_percent(one.fit.error)}"),
        )
        for one in known
    ]
    columns = (Column("collective", "words"), Column("latency"), Column("bandwidth"), Column("error"))
    remark = "comparable with busbw; error: root mean square over the sizes"
    return Table("Fit by size: time = latency + bytes on the bus / bandwidth", columns, rows, remark)


def rate(bytes_per_s: float | None) -> str:
    """Return bytes per second with their unit."""
    return MISSING if bytes_per_s is None else f"{size(bytes_per_s)}/s"
