"""Tables of measured loads, of what steps hide of them, and of the files."""

from collections.abc import Iterator
from typing import Final

from perfkit.report.content.document import Cell, Column, Table
from perfkit.schema.benchmark import (
    CacheState,
    InputBenchmark,
    InputFile,
    InputMeasurement,
    InputSeries,
    RankLoads,
)
from perfkit.util.formatting import MISSING, duration, escape_unprintable, rate, size, whole_percent

_WHOLE: Final = 100
_TITLES: Final[dict[CacheState, str]] = {
    "cold": "Cold: files dropped from the page cache before each pass",
    "warm": "Warm: files in the page cache",
}


def describe(series: InputSeries) -> str:
    """Return a series in words: `hdf5 per-sample, 2 workers`."""
    workers = f", {series.num_workers} worker{'s' if series.num_workers > 1 else ''}" if series.num_workers else ""
    return f"{_name(series)} {series.read}{workers}"


def loads(record: InputBenchmark) -> Iterator[Table]:
    """Yield a table of cold and one of warm passes."""
    columns = (
        Column("loads", "words"),
        Column("loads/s"),
        Column("samples"),
        Column("median"),
        Column("p99"),
        Column("file"),
    )
    for cache, title in _TITLES.items():
        rows = [_load_row(record, row) for row in record.measurements if row.cache == cache]
        if rows:
            yield Table(title, columns, rows)


def cost(record: InputBenchmark) -> Table:
    """Return CPU time and memory."""
    columns = (Column("loads", "words"), Column("CPU, cold"), Column("CPU, warm"), Column("memory"))
    of_series = {(row.series, row.cache): row for row in record.measurements}
    rows = []
    for number, series in enumerate(record.series):
        cold, warm = of_series.get((number, "cold")), of_series[number, "warm"]
        memory = [one.memory_bytes for one in warm.ranks]
        known = [size for size in memory if size is not None]
        cells = (_cpu(cold), _cpu(warm), Cell(size(max(known)) if len(known) == len(memory) else MISSING))
        rows.append((Cell(describe(series)), *cells))
    remark = "CPU: per load, mean of the ranks; memory: of the rank with the most; both include its workers"
    return Table("Processor time and memory", columns, rows, remark)


def by_rank(record: InputBenchmark, top: int) -> list[Table]:
    """Return the ranks of warm passes, the slowest first within `top` rows; empty with one rank."""
    if record.world_size == 1:
        return []
    found = [(row, one) for row in record.measurements if row.cache == "warm" for one in row.ranks]
    slowest = sorted(found, key=lambda pair: pair[1].load_ns / pair[0].load_ns, reverse=True)[:top]
    rows = [_rank_row(record, row, one) for row, one in slowest]
    columns = (Column("loads", "words"), Column("rank"), Column("per load"), Column("median"), Column("p99"))
    remark = "" if len(rows) == len(found) else f"{len(rows)} of {len(found)}: the slowest ranks, relative to all ranks"
    return [Table("By rank, warm", columns, rows, remark)]


def hidden(record: InputBenchmark) -> list[Table]:
    """Return how much of the loads steps hide."""
    if not record.hidden:
        return []
    rows = [
        (
            Cell(describe(record.series[one.series])),
            Cell(duration(one.load_ns)),
            Cell(duration(one.wait_ns)),
            Cell(whole_percent(one.hidden)),
        )
        for one in record.hidden
    ]
    title = f"Beside steps of {duration(record.hidden[0].step_ns)}, warm"
    columns = (Column("loads", "words"), Column("per load alone"), Column("wait per step"), Column("hidden"))
    return [Table(title, columns, rows, "a step sleeps: one that computes on the CPU leaves less of it to the workers")]


def files(record: InputBenchmark) -> list[Table]:
    """Return the files and how fast they can be read at all."""
    if not record.files:
        return []
    columns = (
        Column("source", "words"),
        Column("files"),
        Column("bytes"),
        Column("read cold"),
        Column("read warm"),
        *([Column("stripes")] if _striped(record) else []),
    )
    remark = "read: one rank, from the beginning of the first file, in blocks of 8 MiB"
    return [Table("Files", columns, [_file_row(record, one) for one in record.files], remark)]


def _striped(record: InputBenchmark) -> bool:
    return any(one.stripe_count is not None for one in record.files)


def _file_row(record: InputBenchmark, file: InputFile) -> tuple[Cell, ...]:
    stripes = MISSING if file.stripe_count is None else f"{file.stripe_count} x {size(file.stripe_bytes)}"
    return (
        Cell(escape_unprintable(file.source)),
        Cell(f"{file.files:,}"),
        Cell(size(file.bytes)),
        Cell(rate(file.cold_bytes_per_s, "B")),
        Cell(rate(file.warm_bytes_per_s, "B")),
        *([Cell(stripes)] if _striped(record) else []),
    )


def _name(series: InputSeries) -> str:
    """Return the source and how its files are read, without the way to read samples."""
    words = [f"{name.removeprefix(f'{series.source}_')} {value}" for name, value in series.layout.items()]
    words += [f"{series.files} files"] if series.files > 1 else []
    words += ["preloaded"] if series.preload else []
    words += [f"{series.readers} reader{'s' if series.readers > 1 else ''}"] if series.readers else []
    return escape_unprintable(f"{series.source} ({', '.join(words)})" if words else series.source)


def _load_row(record: InputBenchmark, row: InputMeasurement) -> tuple[Cell, ...]:
    ends = row.interval_ns or ()
    spread = f"±{whole_percent(max(abs(end / row.load_ns - 1) for end in ends))}" if ends else ""
    return (
        Cell(describe(record.series[row.series])),
        Cell(f"{row.loads_per_s:,.0f}" if row.loads_per_s >= _WHOLE else f"{row.loads_per_s:.1f}", spread),
        Cell(rate(row.bytes_per_s, "B")),
        Cell(duration(row.median_ns)),
        Cell(duration(row.p99_ns)),
        Cell(MISSING if row.file_share is None else whole_percent(row.file_share)),
    )


def _cpu(row: InputMeasurement | None) -> Cell:
    times = [one.cpu_ns for one in row.ranks] if row is not None else []
    known = [ns for ns in times if ns is not None]
    return Cell(duration(sum(known) / len(known)) if known and len(known) == len(times) else MISSING)


def _rank_row(record: InputBenchmark, row: InputMeasurement, rank: RankLoads) -> tuple[Cell, ...]:
    return (
        Cell(describe(record.series[row.series])),
        Cell(str(rank.rank)),
        Cell(duration(rank.load_ns)),
        Cell(duration(rank.median_ns)),
        Cell(duration(rank.p99_ns)),
    )
