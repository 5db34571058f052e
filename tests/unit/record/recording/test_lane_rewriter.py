"""Traces with lanes: no slices cross, and the analysis reads the same as without lanes."""

import gzip
import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.profiler import ProfilerActivity, profile, record_function

from perfkit.pipeline.summarize import summarize_trace
from perfkit.record.recording import lane_rewriter as lanes
from perfkit.record.recording.lane_rewriter import Edit, apply_edits, find_edits
from perfkit.record.recording.trace_export import compress, write_trace
from perfkit.trace.lanes import MOST_LANES, assign_lanes, decode_lanes
from perfkit.trace.reader import read_trace

SPANS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30), st.integers(0, 30)), max_size=40)


@given(SPANS)
def test_on_each_lane_slices_nest_or_stand_apart(spans: list[tuple[int, int, int]]) -> None:
    thread, start, size = np.array(spans, np.int64).reshape(-1, 3).T
    end = start + size
    lane = assign_lanes(thread, start, end)
    for a in range(len(spans)):
        for b in range(len(spans)):
            crosses = start[a] < start[b] < end[a] < end[b]
            assert not (crosses and thread[a] == thread[b] and lane[a] == lane[b])


@given(SPANS)
def test_what_does_not_cross_stays_on_the_first_lane(spans: list[tuple[int, int, int]]) -> None:
    cuts = sorted({edge for _, start, size in spans for edge in (start, start + size)})
    start = np.array([0, *cuts[:-1]], np.int64)
    end = np.array([cuts[-1] if cuts else 0, *cuts[1:]], np.int64)
    assert not assign_lanes(np.zeros(len(start), np.int64), start, end).any()


def test_lanes_are_bounded() -> None:
    start = np.arange(MOST_LANES + 5)
    lane = assign_lanes(np.zeros(len(start)), start, start + 1000)
    assert lane.tolist() == [*range(MOST_LANES), -1, -1, -1, -1, -1]


@pytest.mark.parametrize("value", [b"1", b"[[1, 2]]", b'{"a": 1}', b"[[1, 2, null]]", b"[", b"[" * 10_000, b'["\xff"]'])
def test_a_foreign_use_of_the_key_is_no_lanes(value: bytes) -> None:
    assert decode_lanes(value) == {}


@given(st.binary(max_size=60), st.data())
def test_edits_are_made_wherever_the_text_is_cut(text: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    spans = [(a, b - a) for a, b in zip(cuts[::2], cuts[1::2], strict=False)]
    edits = [Edit(at, size, b"<%d>" % n) for n, (at, size) in enumerate(spans)]
    expected, done = b"", 0
    for at, size, by in edits:
        expected += text[done:at] + by
        done = at + size
    expected += text[done:]
    size = data.draw(st.integers(1, 70))
    pieces = (text[at : at + size] for at in range(0, max(len(text), 1), size))
    # An edit right behind the last byte has no piece to be made in; a trace ends with a bracket.
    if not any(edit.at == len(text) for edit in edits):
        assert b"".join(apply_edits(pieces, edits)) == expected


def crossing(folder: Path) -> tuple[Path, Path]:
    """Profile ranges that cross; return the trace as torch writes it and as perfkit does."""
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for step in range(3):
            ranges: list[Any] = [
                record_function(name) for name in (f"ProfilerStep#{step}", "a {range}, tid: 7", "inner")
            ]
            for one in ranges:
                one.__enter__()
            for one in ranges:
                one.__exit__(None, None, None)
    plain, packed = folder / "plain.json", folder / "rank0.json.gz"
    profiler.export_chrome_trace(str(plain))
    for target, edits in ((folder / "plain.json.gz", []), (packed, find_edits(plain))):
        with target.open("w+b") as stream:
            compress(plain, stream, edits)
    return folder / "plain.json.gz", packed


def test_the_analysis_reads_a_trace_with_lanes_as_the_one_without(tmp_path: Path) -> None:
    plain, laned = crossing(tmp_path)
    text = gzip.decompress(laned.read_bytes())
    header = msgspec.json.decode(text)["perfkitLanes"]
    assert len(header) == 2  # the step and the range cross what is inside them
    assert re.search(rb'"name": "thread \d+ \(.*\) \(3\)"', text)
    assert header[0][2] == header[1][2] not in (header[0][1], header[1][1])
    before, after = read_trace(plain), read_trace(laned)
    assert all(
        np.array_equal(getattr(before.events, name), getattr(after.events, name))
        for name in ("kind", "name", "start_ns", "end_ns", "thread", "correlation")
    )
    assert summarize_trace(before, "a") == summarize_trace(after, "a")


def test_a_lane_in_detail_is_its_thread(tmp_path: Path) -> None:
    plain, laned = crossing(tmp_path)
    before, after = (read_trace(path, detailed=True) for path in (plain, laned))
    assert before.detail
    assert after.detail
    assert before.events.threads == after.events.threads
    assert np.array_equal(before.events.thread, after.events.thread)


def test_a_trace_whose_lanes_fail_is_written_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Path) -> None:
        raise MemoryError

    monkeypatch.setattr("perfkit.record.recording.trace_export.find_edits", fail)
    with profile(activities=[ProfilerActivity.CPU]) as profiler, record_function("ProfilerStep#0"):
        pass
    write_trace(profiler, tmp_path / "rank0.json.gz")
    assert read_trace(tmp_path / "rank0.json.gz").events.names


def with_a_huge_event(size: int) -> bytes:
    """Return a trace as torch writes it: slices that cross, before and after a very long event."""
    event = """
  {
    "ph": "X", "cat": "cpu_op", "name": "%s", "pid": 7, "tid": 7,
    "ts": %d.123, "dur": 5000.456,
    "args": {
      "External id": 1
    }
  }"""
    names = ["a", "b", "h" * size, "c", "d"]
    events = ",".join(event % (name, 1000 + 1000 * place) for place, name in enumerate(names))
    return f'{{"schemaVersion": 1,\n  "traceEvents": [{events}\n  ],\n  "traceName": "x"\n}}\n'.encode()


def test_a_huge_event_is_not_kept_whole_in_memory(tmp_path: Path) -> None:
    text = with_a_huge_event(5 * lanes._LARGEST_BYTES // 2)
    plain, packed = tmp_path / "plain.json", tmp_path / "rank0.json.gz"
    plain.write_bytes(text)
    pieces = list(lanes.event_pieces(plain))
    assert max(len(data) for _, data in pieces) <= lanes._LARGEST_BYTES + lanes._SLICE_BYTES
    assert b"".join(data for _, data in pieces) == text
    assert [at for at, _ in pieces] == [sum(len(data) for _, data in pieces[:n]) for n in range(len(pieces))]
    edits = find_edits(plain)
    assert len(edits) == 2 + 3  # what announces the lanes, and all but the first slice and the huge one
    with packed.open("w+b") as stream:
        compress(plain, stream, edits)
    events = msgspec.json.decode(gzip.decompress(packed.read_bytes()))["traceEvents"]
    assert [event["name"][0] for event in events if event["ph"] == "X"] == ["a", "b", "h", "c", "d"]


def test_wherever_a_huge_event_is_cut_numbers_stay_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plain.json").write_bytes(with_a_huge_event(1))
    monkeypatch.setattr(lanes, "_SLICE_BYTES", 1)
    whole = {(start, start + 5_000_456) for start in range(1_000_123, 6_000_000, 1_000_000)}
    seen: set[tuple[int, int]] = set()
    for largest in range(10, 200):
        monkeypatch.setattr(lanes, "_LARGEST_BYTES", largest)
        scan = lanes._Scan()
        for at, data in lanes.event_pieces(tmp_path / "plain.json"):
            scan.add(at, data)
        _, start_ns, end_ns, _ = scan.slices.columns().tolist()
        seen.update(zip(start_ns, end_ns, strict=True))
    assert seen == whole


@pytest.mark.parametrize("name", ["gpu-dlrm-2of128/rank0", "mi300-resnet-ddp-1of8/rank0", "nccl-metadata-1of2/rank0"])
def test_real_traces_of_devices_keep_their_figures(name: str, real_traces: Path, tmp_path: Path) -> None:
    plain, laned = tmp_path / "plain.json", tmp_path / "laned.json"
    plain.write_bytes(gzip.decompress((real_traces / f"{name}.json.gz").read_bytes()))
    edits = find_edits(plain)
    laned.write_bytes(b"".join(apply_edits(iter([plain.read_bytes()]), edits)))
    assert (len(edits) > 0) == name.startswith("mi300")
    assert summarize_trace(read_trace(plain), "a") == summarize_trace(read_trace(laned), "a")
