"""Traces with lanes, imported by Perfetto's own trace processor: no slice is dropped."""

import gzip
from pathlib import Path

import pytest

from perfkit.record.recording.lane_rewriter import find_edits
from perfkit.record.recording.trace_export import compress
from tests.support.traces.trace_processor import TraceProcessor, needs_trace_processor
from tests.unit.record.recording.test_lane_rewriter import crossing

pytestmark = needs_trace_processor


@pytest.mark.slow  # imports two traces of real steps into the trace processor: 7 s
def test_a_trace_with_lanes_loses_nothing_that_a_plain_one_does(tmp_path: Path) -> None:
    plain, laned = (TraceProcessor(path) for path in crossing(tmp_path))
    assert plain.errors()["slice_drop_overlapping_complete_event"] >= 3
    assert laned.errors() == {}
    lost = plain.errors()["slice_drop_overlapping_complete_event"]
    count = "select count(*) from slice"
    assert laned.column(count)[0] == plain.column(count)[0] + lost
    steps = "select name from slice where name glob 'ProfilerStep#*' order by ts"
    assert laned.column(steps) == [f"ProfilerStep#{step}" for step in range(3)]
    assert any(name.endswith("(2)") for name in laned.column("select name from thread where name is not null"))


@pytest.mark.slow  # imports a trace twice into the trace processor: 8 s; test_lane_rewriter has the rules
def test_a_real_trace_of_a_device_loses_nothing(real_traces: Path, tmp_path: Path) -> None:
    source, plain, laned = (
        real_traces / "mi300-resnet-ddp-1of8/rank0.json.gz",
        tmp_path / "a.json",
        tmp_path / "a.json.gz",
    )
    plain.write_bytes(gzip.decompress(source.read_bytes()))
    with laned.open("w+b") as stream:
        compress(plain, stream, find_edits(plain))
    before, after = TraceProcessor(source), TraceProcessor(laned)
    assert before.errors() == {"slice_drop_overlapping_complete_event": 15}
    assert after.errors() == {}
    assert after.column("select count(*) from slice")[0] == before.column("select count(*) from slice")[0] + 15
    assert after.column("select count(*) from flow") == before.column("select count(*) from flow")
