"""A timeline has every event of any trace, and no slices overlap without nesting."""

import gzip
import json
import tempfile
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

from hypothesis import given, reject

from perfkit.errors import TraceError
from perfkit.tools.merge.merge import merge
from perfkit.trace.reader import read_trace
from tests.support.traces.generated_traces import Document, slow_to_generate, traces
from tests.support.traces.trace_builder import write


def nanoseconds(text: str) -> int:
    return int(Decimal(text) * 1000)


@slow_to_generate
@given(traces())
def test_a_timeline_holds_all_events_and_none_cross(document: Document) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = write(document, folder / "rank0.json.gz")
        try:
            native = merge(source, folder / "merged.pftrace")
        except TraceError as error:
            if "nothing to analyse" in str(error):
                reject()
            raise
        merged = merge(source, folder / "merged.json.gz")
        text = gzip.decompress((folder / "merged.json.gz").read_bytes())
        trace = read_trace(source, detailed=True)
    events: list[dict[str, Any]] = json.loads(text, parse_float=str)["traceEvents"]
    spans: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    own = kept = 0
    for event in events:
        if event["ph"] == "X":
            start_ns = nanoseconds(event["ts"])
            spans[event["pid"], event["tid"]].append((start_ns, start_ns + nanoseconds(event["dur"])))
            own += event["cat"] == "perfkit"
            kept += event["cat"] != "perfkit"
    assert merged.slices == native.slices == own + kept
    assert kept == len(trace.events.kind)
    for here in spans.values():
        open_ends: list[int] = []
        for start, end in sorted(here, key=lambda span: (span[0], -span[1])):
            while open_ends and open_ends[-1] <= start:
                open_ends.pop()
            assert not open_ends or end <= open_ends[-1]
            open_ends.append(end)
    arrows: dict[int, list[str]] = defaultdict(list)
    for event in events:
        if event["ph"] in "stf":
            arrows[int(event["id"])].append(event["ph"])
    assert all(sorted(phases) == ["f", "s"] for phases in arrows.values())
