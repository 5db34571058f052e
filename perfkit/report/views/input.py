"""The document, tables and chart of an `InputBenchmark`."""

from collections.abc import Iterator
from operator import itemgetter
from typing import Final

from perfkit.base.formatting import duration, escape_unprintable, in_ms, plural, rate, size, whole_percent
from perfkit.records.benchmark import CacheState, InputBenchmark, InputFile, InputMeasurement, InputSeries
from perfkit.report.content.document import Document, FindingLine, KeyValue, Section
from perfkit.report.views.comparison import gates_table, time_changes
from perfkit.report.wording.comparisons import describe_input
from perfkit.tables.charts import SHAPES, Chart, PageCharts, axis, bars
from perfkit.tables.labels import HUES, counted
from perfkit.tables.specification import Field, Listing, Table, data, data_of, make_table, number, words

_NOTES: Final = (
    "loads/s, samples: of all ranks together, by the slowest one; {spread}median, p99: of single loads, over all "
    "ranks.",
    "file: rate at which bytes of the files are loaded, as a share of the rate of reading the first file from its "
    "beginning (see Files).",
)
_SPREAD: Final = "±: distance to the further end of the 95 % interval over the passes; "


def document(record: InputBenchmark, top: int) -> Document:
    """Return the content of `record`."""
    spread = _SPREAD if any(row.interval_ns for row in record.measurements) else ""
    section = Section(
        title=_title(record),
        headline=_headline(record),
        tone="error" if any(one.severity == "error" for one in record.findings) else "info",
        key_values=_facts(record),
        tables=[table for table in _tables(record, top) if table],
        findings=list(map(FindingLine.of, record.findings)),
    )
    return Document("perfkit input", [section], [note.format(spread=spread) for note in _NOTES])


# ---- tables --------------------------------------------------------------------------------------------------------

_WHOLE: Final = 100
_TITLES: Final[dict[CacheState, str]] = {
    "cold": "Cold: files dropped from the page cache before each pass",
    "warm": "Warm: files in the page cache",
}


def _tables(record: InputBenchmark, top: int) -> Iterator[Table | None]:
    for cache, title in _TITLES.items():
        yield make_table(title, [row for row in record.measurements if row.cache == cache], _loads(record))
    yield _hidden(record)
    yield _cost(record)
    yield _by_rank(record, top)
    yield _files(record)
    if record.comparison:
        title = f"Time per load, against {escape_unprintable(record.comparison.path)}"
        remark = "interval: of the ratio, over the passes of two launches; how launches differ it does not cover"
        yield make_table(title, record.comparison.changes, _CHANGES, remark)
        yield gates_table(record.comparison.gates)


_CHANGES: Final = (
    words("loads", lambda change: change.series),
    words("cache", lambda change: change.cache),
    *time_changes(),
)


def _loads(record: InputBenchmark) -> tuple[Field, ...]:
    return (
        words("loads", lambda row: _named(record, row)),
        number("loads/s", lambda row: row.loads_per_s, _figure, note=_spread),
        number("samples", lambda row: rate(row.bytes_per_s, "B")),
        number("median", lambda row: row.median_ns, duration),
        number("p99", lambda row: row.p99_ns, duration),
        number("file", lambda row: row.file_share, whole_percent),
    )


def _figure(per_s: float) -> str:
    return f"{per_s:,.0f}" if per_s >= _WHOLE else f"{per_s:.1f}"


def _spread(row: InputMeasurement) -> str:
    ends = row.interval_ns
    return f"±{whole_percent(max(abs(end / row.load_ns - 1) for end in ends))}" if ends else ""


def _hidden(record: InputBenchmark) -> Table | None:
    """Return how much of the loads steps hide."""
    columns = (
        words("loads", lambda row: describe_input(record.series[row.series])),
        number("per load alone", lambda row: row.load_ns, duration),
        number("wait per step", lambda row: row.wait_ns, duration),
        number("hidden", lambda row: row.hidden, whole_percent),
    )
    title = f"Beside steps of {duration(record.hidden[0].step_ns)}, warm" if record.hidden else ""
    remark = "a step sleeps: one that computes on the CPU leaves less of it to the workers"
    return make_table(title, record.hidden, columns, remark)


def _cost(record: InputBenchmark) -> Table | None:
    """Return CPU time and memory."""
    measured = {(row.series, row.cache): row for row in record.measurements}
    columns = (
        words("loads", lambda index: describe_input(record.series[index])),
        number("CPU, cold", lambda index: _cpu_ns(measured.get((index, "cold"))), duration),
        number("CPU, warm", lambda index: _cpu_ns(measured[index, "warm"]), duration),
        number("memory", lambda index: _memory_bytes(measured[index, "warm"]), size),
    )
    remark = "CPU: per load, mean of the ranks; memory: of the rank with the most; both include its workers"
    return make_table("Processor time and memory", range(len(record.series)), columns, remark)


def _cpu_ns(row: InputMeasurement | None) -> float | None:
    """Return the mean over ranks; None unless it is known of all."""
    times = [rank.cpu_ns for rank in row.ranks] if row is not None else []
    known = [ns for ns in times if ns is not None]
    return sum(known) / len(known) if known and len(known) == len(times) else None


def _memory_bytes(row: InputMeasurement) -> int | None:
    """Return the largest over ranks; None unless it is known of all."""
    known = [rank.memory_bytes for rank in row.ranks if rank.memory_bytes is not None]
    return max(known) if len(known) == len(row.ranks) else None


def _by_rank(record: InputBenchmark, top: int) -> Table | None:
    """Return the ranks of warm passes, the slowest first within `top` rows; None with one rank."""
    found = [(row, rank) for row in record.measurements if row.cache == "warm" for rank in row.ranks]
    slowest = sorted(found, key=lambda pair: pair[1].load_ns / pair[0].load_ns, reverse=True)[:top]
    columns = (
        words("loads", lambda pair: _named(record, pair[0])),
        number("rank", lambda pair: pair[1].rank),
        number("per load", lambda pair: pair[1].load_ns, duration),
        number("median", lambda pair: pair[1].median_ns, duration),
        number("p99", lambda pair: pair[1].p99_ns, duration),
    )
    left = len(found) - len(slowest)
    remark = f"{len(slowest)} of {len(found)}: the slowest ranks, relative to all ranks" if left else ""
    return make_table("By rank, warm", slowest if record.world_size > 1 else [], columns, remark)


def _files(record: InputBenchmark) -> Table | None:
    """Return the files and how fast they can be read at all."""
    striped = any(file.stripe_count is not None for file in record.files)
    columns = (
        words("source", lambda file: file.source),
        number("files", lambda file: file.files, counted),
        number("bytes", lambda file: file.bytes, size),
        number("read cold", lambda file: rate(file.cold_bytes_per_s, "B")),
        number("read warm", lambda file: rate(file.warm_bytes_per_s, "B")),
        *([number("stripes", _stripes)] if striped else []),
    )
    return make_table(
        "Files", record.files, columns, "read: one rank, from the beginning of the first file, in blocks of 8 MiB"
    )


def _stripes(file: InputFile) -> str | None:
    return None if file.stripe_count is None else f"{file.stripe_count} x {size(file.stripe_bytes)}"


def _own(kind: type, index: int, *left_out: str) -> list[Field]:
    return [column for column in data_of(kind, itemgetter(index)) if column.key not in left_out]


MEASUREMENTS: Final = Listing(
    lambda record: ((record.series[row.series], row) for row in record.measurements),
    (
        *_own(InputSeries, 0, "layout"),
        data("layout", str, lambda row: " ".join(f"{key}={value}" for key, value in row[0].layout.items())),
        *_own(InputMeasurement, 1, "series", "passes", "interval_ns", "ranks"),
        data("passes", int, lambda row: len(row[1].passes)),
        data("low_ns", float | None, lambda row: row[1].interval_ns[0] if row[1].interval_ns else None),
        data("high_ns", float | None, lambda row: row[1].interval_ns[1] if row[1].interval_ns else None),
    ),
)
"""One row per way to read and state of the page cache."""


# ---- page ----------------------------------------------------------------------------------------------------------


def page_charts(record: InputBenchmark) -> PageCharts:
    """Return the chart of the page: the time per load of each series, cold and warm."""
    names = [describe_input(series) for series in record.series]
    states: tuple[CacheState, ...] = ("cold", "warm")
    data = []
    for place, cache in enumerate(states):
        times = {row.series: in_ms(row.load_ns) for row in record.measurements if row.cache == cache}
        if times:
            hover = f"%{{x}}, {cache}: %{{y:.4~g}} ms<extra></extra>"
            values = [times.get(number) for number in range(len(names))]
            data.append(bars(cache, names, values, HUES[place], SHAPES[place], hover))
    layout = {"barmode": "group", "xaxis": axis("", type="category"), "yaxis": axis("ms per load", type="log")}
    return PageCharts([], [[Chart("Time per load", "", {"data": data, "layout": layout})]])


def _title(record: InputBenchmark) -> str:
    hosts = len(set(record.hosts))
    where = f"{hosts} hosts" if hosts > 1 else escape_unprintable(record.hosts[0])
    return f"{plural(record.world_size, 'rank')} on {where}"


def _headline(record: InputBenchmark) -> str:
    """Return the fastest and the slowest warm way to read."""
    warm = [row for row in record.measurements if row.cache == "warm"]
    fastest, slowest = (choose(warm, key=lambda row: row.load_ns) for choose in (min, max))
    best = f"Warm, a load takes {duration(fastest.load_ns)} from {_named(record, fastest)}"
    if fastest is slowest:
        return f"{best}."
    times = slowest.load_ns / fastest.load_ns
    return f"{best}, and {duration(slowest.load_ns)} ({times:.1f} times) from {_named(record, slowest)}."


def _named(record: InputBenchmark, row: InputMeasurement) -> str:
    return describe_input(record.series[row.series])


def _facts(record: InputBenchmark) -> list[KeyValue]:
    versions = ", ".join(f"{name} {version}" for name, version in record.versions.items())
    load = f"{record.batch_size} samples of {size(record.sample_bytes)}"
    dropped = [] if record.cache_dropped_by is None else [KeyValue("cold", f"by {record.cache_dropped_by}")]
    return [
        KeyValue("load", f"{load}, of {record.samples:,} ({size(record.samples * record.sample_bytes)})"),
        *dropped,
        KeyValue("threads", f"{record.threads} per rank"),
        KeyValue("versions", escape_unprintable(versions)),
    ]
