"""The document and chart of an `InputBenchmark`."""

from typing import Final

from perfkit.report.charts.specs import HUES, SHAPES, Chart, PageCharts, axis, bars
from perfkit.report.content.document import Document, FindingLine, KeyValue, Section
from perfkit.report.content.input.comparison import changes
from perfkit.report.content.input.series import by_rank, cost, describe, files, hidden, loads
from perfkit.report.views.comparison import gates_table
from perfkit.schema.benchmark import CacheState, InputBenchmark, InputMeasurement
from perfkit.util.formatting import duration, escape_unprintable, in_ms, size

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
    gates = record.comparison.gates if record.comparison else []
    section = Section(
        title=_title(record),
        headline=_headline(record),
        tone="error" if any(one.severity == "error" for one in record.findings) else "info",
        summary=[],
        key_values=_facts(record),
        tables=[
            *loads(record),
            *hidden(record),
            cost(record),
            *by_rank(record, top),
            *files(record),
            *changes(record),
            *([gates_table(gates)] if gates else []),
        ],
        findings=[FindingLine(one.severity, escape_unprintable(one.message)) for one in record.findings],
    )
    return Document("perfkit input", [], [section], [note.format(spread=spread) for note in _NOTES])


def page_charts(record: InputBenchmark) -> PageCharts:
    """Return the chart of the page: the time per load of each series, cold and warm."""
    names = [describe(series) for series in record.series]
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
    return f"{record.world_size} rank{'s' if record.world_size > 1 else ''} on {where}"


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
    return describe(record.series[row.series])


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
