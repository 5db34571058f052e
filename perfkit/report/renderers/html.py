"""Writes a record as one self-contained HTML file: the tables of the other formats, and charts.

The file contains all of its scripts and fetches nothing; a content security policy enforces that. Charts are drawn as
SVG in the browser from the specifications that notebooks give to plotly: its smallest bundle with bars has 1.2 MB, more
than a whole page. Text from a trace is escaped: by the template, and in the charts as JSON without `<`.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, is_dataclass
from importlib.resources import files
from typing import Any, Final, NamedTuple, TextIO

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from perfkit._version import __version__
from perfkit.base.formatting import escape_unprintable, plural
from perfkit.base.formatting import size as size_text
from perfkit.records.benchmark import CollectiveBenchmark
from perfkit.records.plan import Plan
from perfkit.records.report import Report
from perfkit.records.run import RunReport
from perfkit.report import build_charts, build_document
from perfkit.report.content.answer import RunAnswer, run_answer
from perfkit.report.content.document import Section
from perfkit.report.content.ledger import DrawnLedger, drawn_ledger
from perfkit.report.content.report import FOOTNOTES, MAX_WHOLE_RUNS
from perfkit.report.content.run_facts import Tile, described_workload, tiles
from perfkit.report.renderers.explorer import LANE_COLOURS, SLICE_COLOURS, Explorer, explorer, flames, place_of
from perfkit.tables.charts import Chart
from perfkit.tables.labels import COLOURS, PATTERNS

_DEFINITIONS: Final = (
    ("step", "Starts when the host has started it and the device has finished the previous step; there are no gaps."),
    ("exposed", "Each instant of a step counts for one category, the first active one below; they add up to the step."),
    ("compute", "A kernel other than communication runs; without a device: the innermost host operator computes."),
    ("communication", "Otherwise: a collective runs, including waiting for a slower rank."),
    ("memcpy", "Otherwise: a copy or memset runs."),
    ("data loading", "Otherwise: the host waits for input."),
    (
        "idle",
        "Otherwise, with and without a device: launch gaps, Python, synchronisation, waiting; overhead in files.",
    ),
    (
        "step time without communication",
        "Step minus exposed communication, in which a rank may be waiting for others. Ranks that wait for each other "
        "take equally long, but differ in this time.",
    ),
    ("active", "Total time of a category."),
    ("overlapped", "The part of the active time during which an earlier category is active: active minus exposed."),
    (
        "parallel efficiency",
        "Mean computation over ranks / the longest rank's time: the product of load balance, host / launch, input, "
        "dependency and transfer efficiency. Each is the share that remains when one more cause of loss is counted.",
    ),
    ("load balance", "Mean computation / computation of the rank with the most."),
    ("host / launch", "What remains when copies and idle time (launch gaps, Python, synchronisation) are counted too."),
    ("input", "What remains when waiting for data is counted too."),
    (
        "dependency (serialisation)",
        "What remains when ranks wait for each other although none computes more overall: from a replay of the run "
        "with instant transfers.",
    ),
    ("transfer", "What remains when the bytes of collectives, and collectives without a match, are counted too."),
    ("accelerator utilisation", "Computation / time, without the first recorded step."),
    ("scaling efficiency", "Speedup over the smallest world size of a series / the ratio of ranks; 1 is ideal."),
    (
        "memory",
        "Memory allocated by torch's allocators during the host's steps, including what earlier steps left; on the CPU "
        "only what was allocated since the profiler started. Reserved: held on the device, allocated or not. "
        "Temporary: released in the pass that allocated it. Other: kept for longer than a step, or for an "
        "unknown purpose.",
    ),
    (
        "% of file",
        "Per-rank read rate while waiting for samples, relative to the file's bandwidth: sequential reads of 8 MiB, of "
        "at most its first 256 MiB, by one process after the last step. That bandwidth depends on how much of the file "
        "is in the page cache, which is shown beside it. Above 100 % if samples are stored compressed, or were cached "
        "while they were loaded and no longer afterwards.",
    ),
    (
        "% of in-memory",
        "Bytes of samples per second, all ranks, while waiting for them, relative to reading from memory.",
    ),
)

_SCRIPTS: Final = tuple(
    f"page/{name}.js"
    for name in ("format", "axes", "save", "charts", "timeline", "explorer", "flames", "tables", "page")
)
"""In the order in which they run."""


_SIZE: Final = "\0size\0"
"""Stands for the page's own size, and in nothing from a trace."""
ROWS: Final = 50
"""Least limit of ranked tables: the page shows ten rows at a time, and finds the others by their text."""


def write(record: Any, stream: TextIO, *, top: int) -> None:
    """Write `record` to `stream` as a self-contained page."""
    doc, charts = build_document(record, max(top, ROWS)), build_charts(record)
    page = Environment(
        loader=PackageLoader("perfkit.report", "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    runs = _run_pages(record, doc.sections, charts.sections)
    text = page.get_template("page/report.html.j2").render(
        version=escape_unprintable(getattr(record, "perfkit_version", __version__)),  # a plan is of now
        heading=doc.title,
        notes=[note for note in doc.footnotes if note not in FOOTNOTES],  # the definitions explain the same
        runs=runs,
        headlines=doc.headlines,
        first_findings=doc.first,
        comparison=doc.opening + doc.comparison,
        findings=doc.findings,
        advice=doc.advice,
        pictures=charts.overview,
        beside_tables=charts.beside_tables,
        definitions=()
        if isinstance(record, CollectiveBenchmark | Plan)
        else _DEFINITIONS,  # those are of measured steps
        colours=COLOURS,
        patterns=PATTERNS,
        slice_colours={"categories": SLICE_COLOURS, "lanes": LANE_COLOURS},
        style=_asset("page/report.css"),
        scripts=[_asset(name) for name in _SCRIPTS],
        as_json=_as_json,
        at=place_of,
        size=_SIZE,
        of_timelines=_of_timelines(runs),
    )
    stream.write(text.replace(_SIZE, size_text(len(text.encode("utf-8", "replace")))))


class RunPage(NamedTuple):
    """What the page has of one run, or another section of a record."""

    section: Section
    charts: Sequence[Chart]
    run: "Opening | None" = None
    """None of another record."""


class Opening(NamedTuple):
    """What the page of a run opens with."""

    answer: RunAnswer
    workload: str
    tiles: Sequence[Tile]
    ledger: DrawnLedger | None
    explorer: Explorer | None
    """None without steps, and where the tables of a run are left out."""
    flames: Sequence[dict[str, Any]]


def _run_pages(record: Any, sections: Sequence[Section], charts: Sequence[Sequence[Chart]]) -> list[RunPage]:
    if not isinstance(record, Report):
        return [RunPage(section, drawn) for section, drawn in zip(sections, charts, strict=True)]
    whole = len(record.runs) <= MAX_WHOLE_RUNS
    return [
        RunPage(section, drawn, _opening(run, whole=whole))
        for run, section, drawn in zip(record.runs, sections, charts, strict=True)
    ]


def _opening(run: RunReport, *, whole: bool) -> Opening:
    answer = run_answer(run)
    return Opening(
        answer,
        described_workload(run),
        tiles(run),
        drawn_ledger(run, answer.parts),
        explorer(run) if whole else None,
        flames(run) if whole else (),
    )


def _of_timelines(runs: Sequence[RunPage]) -> str:
    """Return which part of the page are its timelines; empty without."""
    found = [drawn for one in runs if one.run and one.run.explorer for drawn in one.run.explorer.timelines]
    if not found:
        return ""
    size = sum(len(_as_json(one)) for one in found)
    timelines = plural(len(found), "timeline")
    return f", of which {timelines} of a rank's step take {size_text(size)} (perfkit analyze --steps or --no-timelines)"


def _asset(name: str) -> Markup:
    return Markup(files("perfkit.report").joinpath("assets", *name.split("/")).read_text("utf-8"))  # noqa: S704  perfkit's own file


def _as_json(value: Any) -> Markup:
    """Return `value` as JSON safe inside a script element, and inside an attribute in single quotes."""
    plain = asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
    text = json.dumps(plain, separators=(",", ":"), allow_nan=False)
    for character in "<>&'":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)  # noqa: S704  escaped above
