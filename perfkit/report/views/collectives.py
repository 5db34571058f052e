"""The document and charts of a `CollectiveBenchmark`."""

from perfkit.report.charts.specs import Chart, PageCharts, bandwidths, matrix
from perfkit.report.content.collectives.comparison import changes
from perfkit.report.content.collectives.overlap import overlaps
from perfkit.report.content.collectives.pairs import pair_tables
from perfkit.report.content.collectives.series import by_size, describe, fits, rate
from perfkit.report.content.document import Document, FindingLine, KeyValue, Section
from perfkit.report.views.comparison import gates_table
from perfkit.schema.benchmark import CollectiveBenchmark, Measurement, PairTest, SeriesFit
from perfkit.util.formatting import escape_unprintable, size

_FEWEST_IN_MAP, _MOST_IN_MAP = 3, 512
_NOTES = (
    "size: as in nccl-tests, the total over ranks where each has a part (all_gather, reduce_scatter, all_to_all, "
    "gather, scatter); 1 GB = 1,000,000,000 bytes.",
    "time: of one collective, until the slowest rank has its result: median over repeats; "
    "±: distance to the further end of its 95 % interval.",
    "busbw: algbw times the factor of nccl-tests, comparable with the speed of the links.",
)


def document(record: CollectiveBenchmark, top: int) -> Document:
    """Return the content of `record`; of the pairs of many ranks, the `top` slowest."""
    fitted = fits(record)
    gates = record.comparison.gates if record.comparison else []
    section = Section(
        title=_title(record),
        headline=_headline(record),
        tone="error" if any(row.wrong for row in record.measurements) else "info",
        summary=[],
        key_values=_facts(record),
        tables=[
            *by_size(record),
            *([fitted] if fitted else []),
            *overlaps(record),
            *pair_tables(record, top),
            *changes(record),
            *([gates_table(gates)] if gates else []),
        ],
        findings=[FindingLine(one.severity, escape_unprintable(one.message)) for one in record.findings],
    )
    return Document("perfkit collectives", [], [section], list(_NOTES) if record.measurements else [])


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
    return f"Up to {rate(best.busbw)} busbw ({describe(record.series[best.series])}, {size(best.bytes)}); {results}."


def _pairs_headline(test: PairTest) -> str:
    bandwidths = [pair.bandwidth for pair in test.pairs]
    found = f"{len(test.slow)} slow, see the findings" if test.slow else "none stands out from the noise"
    return f"{len(test.pairs):,} pairs, {rate(min(bandwidths))} to {rate(max(bandwidths))} each way: {found}."


def _facts(record: CollectiveBenchmark) -> list[KeyValue]:
    devices = escape_unprintable(", ".join(record.device_names))
    versions = ", ".join(f"{name} {version}" for name, version in record.versions.items())
    threads = "1 CPU thread" if record.threads == 1 else f"{record.threads} CPU threads"
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
            describe(record.series[number]),
            [row.bytes for row in rows],
            [row.busbw or 0 for row in rows],
            _fitted(fits_of.get(number), rows),
        )
        for number, rows in by_series.items()
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
