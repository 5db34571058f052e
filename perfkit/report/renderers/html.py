"""Writes a record as one self-contained HTML file: the tables of the other formats, and charts.

The file contains its plotting library (plotly.js) and fetches nothing; a content security policy enforces that. Text
from a trace is escaped: by the template, and in the charts as JSON without `<`.
"""

import json
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, TextIO

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from perfkit._version import __version__
from perfkit.errors import StoreError
from perfkit.report import build_charts, build_document
from perfkit.report.content.report import FOOTNOTES
from perfkit.schema.benchmark.collectives import CollectiveBenchmark
from perfkit.schema.plan import Plan

_DEFINITIONS: Final = (
    ("step", "Starts when the host has started it and the device has finished the previous step; there are no gaps."),
    ("exposed", "Each instant of a step counts for one category, the first active one below; they add up to the step."),
    ("compute", "A kernel other than communication runs; without a device: the innermost host operator computes."),
    ("communication", "Otherwise: a collective runs, including waiting for a slower rank."),
    ("memcpy", "Otherwise: a copy or memset runs."),
    ("data loading", "Otherwise: the host waits for input."),
    (
        "idle / launch gaps, no operator running",
        "Otherwise, with and without a device: launch gaps, Python, synchronisation, waiting; overhead in files.",
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
        "Temporary: released in the pass that allocated it. Other: kept for longer than a step, or nothing tells what "
        "for.",
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


def write(record: Any, stream: TextIO, *, top: int) -> None:
    """Write `record` to `stream` as a self-contained page."""
    doc, charts = build_document(record, top), build_charts(record)
    page = Environment(
        loader=PackageLoader("perfkit.report", "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    parts = page.get_template("report.html.j2").generate(
        version=getattr(record, "perfkit_version", __version__),  # a plan is of now
        heading=doc.title,
        notes=[note for note in doc.footnotes if note not in FOOTNOTES],  # the definitions explain the same
        runs=list(zip(doc.sections, charts.sections, strict=True)),
        comparison=doc.comparison,
        findings=doc.findings,
        advice=doc.advice,
        scaling=charts.overview,
        definitions=()
        if isinstance(record, CollectiveBenchmark | Plan)
        else _DEFINITIONS,  # those are of measured steps
        style=_asset("report.css"),
        script=_asset("report.js"),
        plotly=Markup(_plotly()),  # noqa: S704  plotly's own file
        as_json=_as_json,
    )
    for part in parts:
        stream.write(part)


def _asset(name: str) -> Markup:
    return Markup(files("perfkit.report").joinpath("assets", name).read_text("utf-8"))  # noqa: S704  perfkit's own file


def _plotly() -> str:
    # Not imported: only its JavaScript is needed.
    spec = find_spec("plotly")
    for place in (spec.submodule_search_locations or []) if spec else []:
        library = Path(place, "package_data", "plotly.min.js")
        if library.is_file():
            return library.read_text("utf-8").replace("</script", "<\\/script")
    raise StoreError("cannot find plotly.min.js in the package plotly: reinstall plotly")


def _as_json(value: Any) -> Markup:
    """Return `value` as JSON safe inside a script element: `<`, `>` and `&` are escaped."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)  # noqa: S704  escaped above
