"""Writes a report as one HTML file that opens anywhere, offline: the tables of the other reporters, and charts.

The file brings its own plotting library (plotly.js) and fetches nothing; a content security policy says so to the
browser. What is in a trace is text: the template escapes it, and in the figures it is JSON in which no `<` stands.
"""

import json
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, TextIO

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from perfkit.errors import StoreError
from perfkit.report import build_charts, build_document
from perfkit.report.content.report import FOOTNOTES

_DEFINITIONS: Final = (
    ("step", "Begins when the host has started it and the device has left the step before; steps leave no gap."),
    ("exposed", "Every instant of a step belongs to one category, the first below that was active; they add up to it."),
    ("compute", "A kernel that is not communication runs; without a device: the innermost host operator computes."),
    ("communication", "Otherwise: a collective runs. Waiting for a slower rank is part of it."),
    ("memcpy", "Otherwise: a copy or memset runs."),
    ("data loading", "Otherwise: the host waits for input."),
    ("overhead", "None of these: launch gaps, Python, synchronisation, waiting."),
    (
        "parallel efficiency",
        "Mean computation over ranks / the longest rank's time: the product of load balance, host, input, "
        "serialisation and transfer. Each tells what share is left when one more thing is counted.",
    ),
    ("load balance", "Mean computation / that of the rank that computes most."),
    ("host", "What is left when copies and overhead (launch gaps, Python, synchronisation) are counted too."),
    ("input", "What is left when waiting for data is counted too."),
    ("serialisation", "What is lost to waiting for each other although no rank does more over all (a replay tells)."),
    ("transfer", "What is lost to moving the bytes of collectives, and to those that found no counterpart."),
    ("accelerator utilisation", "Computation / time, without the first recorded step."),
    (
        "scaling efficiency",
        "Of a series: the speedup against the smallest world size by the ranks it took; 1 is ideal.",
    ),
    ("active", "How long a category was active at all; what is active but not exposed was hidden by an earlier one."),
    (
        "memory",
        "What torch's allocators have given out, in the host's steps (each begins with what is left); on the CPU only "
        "what was allocated since the profiler started. Reserved: what they hold of the device, given out or not.",
    ),
    (
        "of file",
        "What a rank reads a second while it waits for samples, against the file's own speed: plain reads of 8 MiB "
        "one after the other, of its first 256 MiB at most, by one process after the last step. How fast that is "
        "depends on how much of it the run has left in the page cache, which stands beside it. Above 100 % where "
        "samples are stored compressed, or were cached while they were loaded and no longer after.",
    ),
    ("of memory", "The samples' bytes a second of all ranks while they wait for them, against those from memory."),
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
        version=record.perfkit_version,
        heading=doc.title,
        notes=[note for note in doc.footnotes if note not in FOOTNOTES],  # the definitions explain the same
        runs=list(zip(doc.sections, charts.sections, strict=True)),
        comparison=doc.comparison,
        findings=doc.findings,
        advice=doc.advice,
        scaling=charts.overview,
        definitions=_DEFINITIONS,
        style=_asset("report.css"),
        script=_asset("report.js"),
        plotly=Markup(_plotly()),  # noqa: S704  the library's own file
        as_json=_as_json,
    )
    for part in parts:
        stream.write(part)


def _asset(name: str) -> Markup:
    return Markup(files("perfkit.report").joinpath("assets", name).read_text("utf-8"))  # noqa: S704  perfkit's own


def _plotly() -> str:
    # Not imported: its JavaScript is all that is needed of it.
    spec = find_spec("plotly")
    for place in (spec.submodule_search_locations or []) if spec else []:
        library = Path(place, "package_data", "plotly.min.js")
        if library.is_file():
            return library.read_text("utf-8").replace("</script", "<\\/script")
    raise StoreError("the page needs plotly.js, and the package plotly is not whole: reinstall it")


def _as_json(value: Any) -> Markup:
    """Return `value` as JSON that nothing in it can leave: `<`, `>` and `&` are written as escapes."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)  # noqa: S704  escaped above
