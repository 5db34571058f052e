"""The document, tables and charts of a `CollectiveBenchmark`."""

from collections.abc import Callable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Final

from perfkit.base.formatting import MISSING, duration, escape_unprintable, format_percent, plural, size, whole_percent
from perfkit.records.benchmark import CollectiveBenchmark, Measurement, PairTest, PairTime, Series, SeriesFit
from perfkit.report.content.document import Document, FindingLine, KeyValue, Section
from perfkit.report.views.comparison import gates_table, time_changes
from perfkit.report.wording.comparisons import describe_collectives
from perfkit.tables.charts import Chart, PageCharts, bandwidths, matrix
from perfkit.tables.labels import byte_rate, counted
from perfkit.tables.specification import Cell, Field, Listing, Table, data, data_of, make_table, number, words

_MOST_IN_MATRIX: Final = 8
"""A matrix of more ranks does not fit on a terminal: then the slowest pairs are listed."""
_FEWEST_IN_MAP, _MOST_IN_MAP = 3, 512
_NOTES = (
    "size: as in nccl-tests, the total over ranks where each has a part (all_gather, reduce_scatter, all_to_all, "
    "gather, scatter); 1 GB = 1,000,000,000 bytes.",
    "time: of one collective, until the slowest rank has its result: median over repeats; "
    "±: distance to the further end of its 95 % interval.",
    "busbw: algbw times the factor of nccl-tests, comparable with the speed of the links.",
)


_UNLISTED: Final = ("series", "samples_ns", "interval_ns")
"""Of a measurement: not in files of a value per row."""


def document(record: CollectiveBenchmark, top: int) -> Document:
    """Return the content of `record`; of the pairs of many ranks, the `top` slowest."""
    section = Section(
        title=_title(record),
        headline=_headline(record),
        tone="error" if any(row.wrong for row in record.measurements) else "info",
        key_values=_facts(record),
        tables=[table for table in _tables(record, top) if table],
        findings=list(map(FindingLine.of, record.findings)),
    )
    return Document("perfkit collectives", [section], list(_NOTES) if record.measurements else [])


# ---- tables --------------------------------------------------------------------------------------------------------


def _tables(record: CollectiveBenchmark, top: int) -> Iterator[Table | None]:
    for index, series in enumerate(record.series):
        yield make_table(
            describe_collectives(series), [row for row in record.measurements if row.series == index], _by_size(series)
        )
    yield _fits(record)
    for index, series in enumerate(record.series):
        overlaps = [row for row in record.overlaps if row.series == index]
        yield make_table(
            f"{describe_collectives(series)}, beside a GEMM that takes as long", overlaps, _OVERLAPS, _OF_OVERLAPS
        )
    if record.pairs:
        yield from _pair_tables(record, record.pairs, top)
    if record.comparison:
        where = escape_unprintable(record.comparison.path)
        for of_series, rows in groupby(record.comparison.changes, key=lambda change: change.series):
            yield make_table(f"{of_series}, against {where}", list(rows), (_BYTES, *time_changes()), _OF_CHANGES)
        yield gates_table(record.comparison.gates)


_BYTES: Final = number("size (B)", lambda row: row.bytes, counted)
_OF_CHANGES: Final = (
    "interval: of the ratio, over the repeats of two launches; how launches differ it does not cover (--assume-noise)"
)


def _by_size(series: Series) -> tuple[Field, ...]:
    return (
        _BYTES,
        number("elements", lambda row: row.elements, counted),
        number("type", lambda row: series.dtype if row.bytes else None),
        number("time", lambda row: row.time_ns, duration),
        number("±", _spread, whole_percent, tone=lambda _: "faint"),
        number("algbw", lambda row: row.algbw, byte_rate),
        number("busbw", lambda row: row.busbw, byte_rate),
        number("wrong", lambda row: row.wrong, counted, tone=lambda row: "error" if row.wrong else "plain"),
    )


def _spread(row: Measurement) -> float | None:
    return max(abs(end / row.time_ns - 1) for end in row.interval_ns) if row.interval_ns else None


def _fits(record: CollectiveBenchmark) -> Table | None:
    """Return the fitted latencies and bandwidths; None if there is none."""
    columns = (
        words("collective", lambda one: describe_collectives(record.series[one.series])),
        number("latency", lambda one: one.fit.alpha_ns, duration),
        number("bandwidth", lambda one: one.fit.beta, byte_rate),
        number("error", lambda one: one.fit.error, lambda error: f"±{format_percent(error)}"),
    )
    known = [one for one in record.fits if one.fit.reason is None]
    remark = "comparable with busbw; error: root mean square over the sizes"
    return make_table("Fit by size: time = latency + bytes on the bus / bandwidth", known, columns, remark)


_OVERLAPS: Final = (
    _BYTES,
    number("alone", lambda row: row.communication_ns, duration),
    number("GEMM", lambda row: row.compute_ns, duration),
    number("together", lambda row: row.together_ns, duration),
    number("hidden", lambda row: row.hidden, whole_percent),
    number("it slowed", lambda row: _slower(row.overlapped_communication_ns, row.communication_ns)),
    number("GEMM slowed", lambda row: _slower(row.overlapped_compute_ns, row.compute_ns)),
)
_OF_OVERLAPS: Final = (
    "hidden: share of the shorter that ran in the time of the other; slowed: time beside the other / alone"
)


def _slower(beside_ns: float, alone_ns: float) -> str | None:
    return f"{beside_ns / alone_ns:.2f} ×" if alone_ns else None


def _pair_tables(record: CollectiveBenchmark, test: PairTest, top: int) -> Iterator[Table | None]:
    """Yield the matrices of latency and bandwidth; of many ranks the pairs with the lowest bandwidth."""
    remark = (
        f"{plural(test.rounds, 'round')} of disjoint pairs, {test.passes} times; a time varies "
        f"by {whole_percent(test.latency_noise)} (latency) and {whole_percent(test.bandwidth_noise)} (bandwidth) "
        "between them"
    )
    small, large = size(test.small_bytes), size(test.large_bytes)
    if record.world_size > _MOST_IN_MATRIX:
        columns = (
            words("ranks", lambda pair: f"{pair.ranks[0]} and {pair.ranks[1]}"),
            number(f"time of {small}", lambda pair: pair.latency_ns, duration),
            number("bandwidth", lambda pair: pair.bandwidth, byte_rate),
        )
        slowest = sorted(test.pairs, key=lambda pair: pair.bandwidth)
        title = f"Pairs with the lowest bandwidth ({large} each way), of {len(test.pairs):,}"
        yield make_table(title, slowest, columns, remark, top=top)
        return
    times = _matrix(record.world_size, test, lambda pair: duration(pair.latency_ns))
    yield make_table(f"Time of {small} between two ranks", range(record.world_size), times)
    rates = _matrix(record.world_size, test, lambda pair: byte_rate(pair.bandwidth))
    yield make_table(f"Bandwidth of {large} each way", range(record.world_size), rates, remark)


def _matrix(ranks: int, test: PairTest, show: Callable[[PairTime], str]) -> list[Field]:
    shown = {pair.ranks: show(pair) for pair in test.pairs}
    slow = {tuple(sorted(link.ranks)) for link in test.slow if link.kind == "pair"}

    def column(other: int) -> Field:
        def cell(rank: int) -> Cell:
            pair = (min(rank, other), max(rank, other))
            return Cell(shown.get(pair, MISSING), tone="warning" if pair in slow else "plain")

        return number(str(other), cell)

    return [words("", lambda rank: f"rank {rank}"), *map(column, range(ranks))]


MEASUREMENTS: Final = Listing(
    lambda record: ((record.series[row.series], row) for row in record.measurements),
    (
        *data_of(Series, itemgetter(0)),
        *(column for column in data_of(Measurement, itemgetter(1)) if column.key not in _UNLISTED),
        data("repeats", int, lambda row: len(row[1].samples_ns)),
        data("low_ns", float | None, lambda row: row[1].interval_ns[0] if row[1].interval_ns else None),
        data("high_ns", float | None, lambda row: row[1].interval_ns[1] if row[1].interval_ns else None),
    ),
)
"""One row per measured collective and size."""


# ---- page ----------------------------------------------------------------------------------------------------------


def page_charts(record: CollectiveBenchmark) -> PageCharts:
    """Return the charts of the page."""
    charts = [_bandwidth(record), _pairs(record)]
    return PageCharts([], [[chart for chart in charts if chart is not None]])


def _title(record: CollectiveBenchmark) -> str:
    hosts = len(set(record.hosts))
    where = f"{hosts} hosts" if hosts > 1 else escape_unprintable(record.hosts[0])
    return f"{record.world_size} ranks on {where}, {escape_unprintable(record.backend)}"


def _headline(record: CollectiveBenchmark) -> str:
    """Return the highest bus bandwidth, and whether the results were right."""
    checked = [row for row in record.measurements if row.wrong is not None]
    if not checked:
        return _pairs_headline(record.pairs) if record.pairs else "No operator with a message was measured."
    best = max(checked, key=lambda row: row.busbw or 0)
    wrong = sum(row.wrong or 0 for row in checked)
    results = f"{wrong:,} elements are wrong" if wrong else f"all results are right ({len(checked)} checked)"
    measured = f"{describe_collectives(record.series[best.series])}, {size(best.bytes)}"
    return f"Up to {byte_rate(best.busbw)} busbw ({measured}); {results}."


def _pairs_headline(test: PairTest) -> str:
    bandwidths = [pair.bandwidth for pair in test.pairs]
    found = f"{len(test.slow)} slow, see the findings" if test.slow else "none stands out from the noise"
    return f"{len(test.pairs):,} pairs, {byte_rate(min(bandwidths))} to {byte_rate(max(bandwidths))} each way: {found}."


def _facts(record: CollectiveBenchmark) -> list[KeyValue]:
    devices = escape_unprintable(", ".join(record.device_names))
    versions = ", ".join(f"{name} {version}" for name, version in record.versions.items())
    threads = plural(record.threads, "CPU thread")
    return [
        KeyValue("device", f"{devices} ({escape_unprintable(record.device)}), {threads} per rank"),
        KeyValue("started by", escape_unprintable(record.launcher)),
        KeyValue("versions", escape_unprintable(versions)),
    ]


def _bandwidth(record: CollectiveBenchmark) -> Chart | None:
    """Return bus bandwidth against size, one series each; None without two sizes."""
    by_series: dict[int, list[Measurement]] = {}
    for row in record.measurements:
        if row.busbw:
            by_series.setdefault(row.series, []).append(row)
    fits_of = {one.series: one for one in record.fits}
    series = [
        (
            describe_collectives(record.series[index]),
            [row.bytes for row in rows],
            [row.busbw or 0 for row in rows],
            _fitted(fits_of.get(index), rows),
        )
        for index, rows in by_series.items()
    ]
    if not any(len(sizes) > 1 for _, sizes, _, _ in series):
        return None
    return bandwidths("Bus bandwidth by size", series, note="Lines: fitted latency and bandwidth.")


def _fitted(one: SeriesFit | None, rows: list[Measurement]) -> list[float] | None:
    """Return the fitted busbw at each size: factor * S / (alpha + factor * S / beta)."""
    if one is None or one.fit.alpha_ns is None:
        return None
    on_bus = [row.bytes * (row.busbw or 0) / (row.algbw or 1) for row in rows]
    times = [one.fit.alpha_ns + (size * 1e9 / one.fit.beta if one.fit.beta else 0) for size in on_bus]
    return [size * 1e9 / ns for size, ns in zip(on_bus, times, strict=True)] if all(times) else None


def _pairs(record: CollectiveBenchmark) -> Chart | None:
    """Return the bandwidth between every two ranks; None for too few or too many ranks to see."""
    if record.pairs is None or not _FEWEST_IN_MAP <= record.world_size <= _MOST_IN_MAP:
        return None
    cells: list[list[float | None]] = [[None] * record.world_size for _ in range(record.world_size)]
    for pair in record.pairs.pairs:
        a, b = pair.ranks
        cells[a][b] = cells[b][a] = pair.bandwidth
    ranks = [str(rank) for rank in range(record.world_size)]
    note = f"{size(record.pairs.large_bytes)} each way at once."
    return matrix("Bandwidth between two ranks", ranks, cells, unit="B/s", note=note)
