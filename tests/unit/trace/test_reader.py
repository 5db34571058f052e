"""Traces as other programs write them, whole or damaged."""

import gc
import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from perfkit.errors import NotATraceError, TraceError
from perfkit.trace.event_table import EventTableBuilder
from perfkit.trace.events import BAD_CORRELATION, NEGATIVE_DURATION, NO_DURATION, NO_START, EventKind, RankTrace
from perfkit.trace.reader import read_trace
from tests.support.traces import trace_oracle as oracle

OP = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 10, "dur": 5}


def event(**changes: Any) -> dict[str, Any]:
    return {**OP, **changes}


def read(tmp_path: Path, content: bytes | dict[str, Any] | list[Any], name: str = "t.json") -> RankTrace:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return read_trace(path)


def spans(trace: RankTrace) -> list[tuple[int, int]]:
    return list(zip(trace.events.start_ns.tolist(), trace.events.end_ns.tolist(), strict=True))


def test_base_time_is_added_exactly(tmp_path: Path) -> None:
    content = b'{"baseTimeNanoseconds": 1700000000000000001, "traceEvents": [%s]}'
    raw = b'{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":4359611296029.058,"dur":0.001}'
    assert spans(read(tmp_path, content % raw)) == [(1704359611296029059, 1704359611296029060)]


@pytest.mark.parametrize(
    "wrap",
    [
        lambda body: body,
        gzip.compress,
        lambda body: gzip.compress(body[:10]) + gzip.compress(body[10:]),
        lambda body: b"\xef\xbb\xbf" + body,
        lambda body: b"\r\n " + body.replace(b", ", b",\r\n\t"),
    ],
    ids=["plain", "gzip named .json", "two gzip members", "byte order mark", "CRLF"],
)
@pytest.mark.parametrize(
    "shape", [lambda events: {"traceEvents": events}, lambda events: events], ids=["object", "array"]
)
def test_shapes_of_files(tmp_path: Path, wrap: Any, shape: Any) -> None:
    body = wrap(json.dumps(shape([event(), event(ts=20)])).encode())
    assert spans(read(tmp_path, body)) == [(10_000, 15_000), (20_000, 25_000)]


def test_header(tmp_path: Path) -> None:
    info = {"rank": 3, "world_size": 8, "backend": "nccl"}
    header = read(tmp_path, {"distributedInfo": info, "host_name": "node7", "traceEvents": [OP]}).header
    assert (header.rank, header.world_size, header.backend, header.host) == (3, 8, "nccl", "node7")


@pytest.mark.parametrize(
    "name", [b"bad \xff\xfe byte", b"control \x01 character", b"line\nbreak"], ids=["utf-8", "control", "newline"]
)
def test_names_that_json_forbids(tmp_path: Path, name: bytes) -> None:
    good = b'{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1.5,"dur":2,"args":{"correlation":4}}'
    bad = good.replace(b'"k"', b'"' + name + b'"')
    trace = read(tmp_path, b'{"baseTimeNanoseconds": 5, "traceEvents": [' + good + b"," + bad + b"]}")
    assert spans(trace) == [(1505, 3505)] * 2
    assert trace.events.correlation.tolist() == [4, 4]
    assert trace.header.base_ns == 5


def test_nan_anywhere_is_tolerated(tmp_path: Path) -> None:
    body = json.dumps({"traceEvents": [event(args={"occupancy": float("nan")}), event(dur=float("nan"))]}).encode()
    trace = read(tmp_path, body)
    assert spans(trace) == [(10_000, 15_000), (10_000, 10_000)]
    assert trace.repaired == {NO_DURATION: 1}


def test_lenient_reading_keeps_everything_that_strict_reading_does(tmp_path: Path) -> None:
    args = {
        "correlation": 7,
        "Collective name": "allreduce",
        "In msg nelems": 10,
        "Group size": 2,
        "Input Dims": [[5, 2]],
        "dtype": "Float",
    }
    info = {"rank": 1, "world_size": 2}
    body = json.dumps({"distributedInfo": info, "traceEvents": [event(name="record_param_comms", args=args)]}).encode()
    strict = read(tmp_path, body)
    lenient = read(tmp_path, body.replace(b'"aten', b'"\x02aten').replace(b'"ph"', b'"\x02": 1, "ph"'))
    assert lenient.header == strict.header
    assert oracle.collective_rows(lenient.events) == oracle.collective_rows(strict.events)
    assert len(oracle.collective_rows(strict.events)) == 1
    assert spans(lenient) == spans(strict)


def test_damage_is_counted(tmp_path: Path) -> None:
    no_start = {key: value for key, value in OP.items() if key != "ts"}
    no_dur = {key: value for key, value in OP.items() if key != "dur"}
    trace = read(
        tmp_path, [OP, event(dur=-3), no_dur, no_start, event(cat="cuda_runtime", args={"correlation": "seven"})]
    )
    assert spans(trace) == [(10_000, 15_000), (10_000, 10_000), (10_000, 10_000), (10_000, 15_000)]
    assert trace.repaired == {NO_START: 1, NO_DURATION: 1, NEGATIVE_DURATION: 1, BAD_CORRELATION: 1}


def test_kinds(tmp_path: Path) -> None:
    categories = {
        "kernel": EventKind.KERNEL,
        "gpu_memcpy": EventKind.COPY,
        "gpu_memset": EventKind.COPY,
        "Operator": EventKind.OPERATOR,
        "user_annotation": EventKind.ANNOTATION,
        "cuda_runtime": EventKind.LAUNCH,
        "hip_runtime": EventKind.LAUNCH,
        "xpu_driver": EventKind.LAUNCH,
        "python_function": EventKind.PYTHON,
        "gpu_user_annotation": EventKind.DEVICE_ANNOTATION,
        "cuda_sync": EventKind.OTHER,
        "tomorrow's": EventKind.UNKNOWN,
    }
    trace = read(tmp_path, [event(cat=category) for category in categories])
    kept = {*EventKind} - {EventKind.PYTHON, EventKind.OTHER, EventKind.UNKNOWN}
    assert trace.events.kind.tolist() == [kind for kind in categories.values() if kind in kept]
    assert trace.unknown == {"tomorrow's": 1}
    assert trace.counts[EventKind.OTHER] == 1


@pytest.mark.parametrize("category", ["kernel", "mtia_ccp_events", "none of them", None, 7])
def test_a_category_is_read_whichever_others_are_beside_it(tmp_path: Path, category: Any) -> None:
    events = [{"ph": "X", "cat": of, "name": "x", "ts": 1, "dur": 1} for of in ("cpu_op", category, "cpu_op")]
    counts = read(tmp_path, events).counts
    kinds = {"kernel": EventKind.KERNEL, "mtia_ccp_events": EventKind.KERNEL}
    assert counts == {EventKind.OPERATOR: 2, kinds.get(category, EventKind.UNKNOWN): 1}


def test_what_reads_is_released_when_it_has_read(tmp_path: Path) -> None:
    gc.collect()
    gc.disable()
    try:
        trace = read(tmp_path, [{"ph": "X", "cat": "cpu_op", "name": "x", "ts": 1, "dur": 1}])
        assert not [one for one in gc.get_objects() if isinstance(one, EventTableBuilder)]
    finally:
        gc.enable()
    assert len(trace.events.kind) == 1


def test_names_and_threads_of_any_type(tmp_path: Path) -> None:
    trace = read(tmp_path, [event(name=12, tid="stream 7"), event(name=None, pid=None, tid=1.5), event(tid="1"), OP])
    assert [trace.events.names[name] for name in trace.events.name] == ["12", "None", "aten::mm", "aten::mm"]
    assert len(set(trace.events.thread.tolist())) == 4


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b"   \n", "empty"),
        (b'{"traceEvents": [{"ph": "X"', "not JSON, or incomplete"),
        (b'{"a": 1}', "traceEvents"),
        (b"12", "traceEvents"),
        (b'{"traceEvents": 5}', "traceEvents"),
        (gzip.compress(b'{"traceEvents": []}' * 100, mtime=0)[:-20], "damaged gzip"),
        (b"\x1f\x8bgarbage", "damaged gzip"),
        (b"[" * 200_000, "not JSON, or incomplete"),
        (b'{"baseTimeNanoseconds": 1e300, "traceEvents": []}', "baseTimeNanoseconds"),
    ],
)
def test_what_is_no_trace_gets_one_line(tmp_path: Path, content: bytes, reason: str) -> None:
    with pytest.raises(TraceError, match=reason) as caught:
        read(tmp_path, content)
    assert "\n" not in str(caught.value)
    assert "t.json" in str(caught.value)


def test_a_missing_file_gets_one_line(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="No such file"):
        read_trace(tmp_path / "none.json")


@pytest.mark.parametrize(
    "content",
    [
        b"[1,2,3]",
        b"[[0, 1], [2.5, null]]",
        b'[{"step": 1, "loss": 2.0}, {"step": 2, "loss": NaN}]',
        b'{"traceEvents": ["a", {"name": "x", "ph": null}]}',
        b'{"a": 1}',
        b'{"a": 1}\n{"a": 2}\n',
        b'{"a": 1}{"a":',
        b"[1, 2]\n[3, 4]\n",
        b"null",
    ],
)
@pytest.mark.parametrize("slice_bytes", [1, 1 << 19])
@pytest.mark.parametrize("detailed", [False, True])
def test_json_that_is_something_else_is_no_trace(
    tmp_path: Path, content: bytes, slice_bytes: int, *, detailed: bool
) -> None:
    path = tmp_path / "metrics.json"
    path.write_bytes(content)
    with pytest.raises(NotATraceError, match="is JSON but not a trace"):
        read_trace(path, slice_bytes=slice_bytes, detailed=detailed)


@pytest.mark.parametrize(
    "content",
    [
        b"[]",
        b"[\n ]",
        b'{"traceEvents": []}',
        b'[{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}}]',
        b'[1, {"ph": "of tomorrow"}]',
        json.dumps([1, {}, OP]).encode(),
        json.dumps({"traceEvents": [OP]}).encode() + b'\n{"a": 1}',
    ],
)
def test_a_trace_is_one_however_little_it_holds(tmp_path: Path, content: bytes) -> None:
    assert len(read(tmp_path, content).events.start_ns) == content.count(b"aten::mm")


@pytest.mark.parametrize("content", [b"[1, 2", b'[{"a": 1}, {"a"', b"[1, }, 2]", b'{"a": 1} b', b"[1, 2] 3", b"[]{}"])
def test_what_is_not_whole_may_have_been_a_trace(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(TraceError) as raised:
        read(tmp_path, content)
    assert not isinstance(raised.value, NotATraceError)


@pytest.mark.timeout(200)  # a terabyte of zeros takes minutes to read
def test_a_file_that_is_large_only_by_its_holes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rank0.json"
    path.write_bytes(b'{"traceEvents": [' + b" " * 100_000)
    os.truncate(path, 1 << 40)
    with pytest.raises(TraceError, match=r"nothing was written from byte \d{3},\d{3} on"):
        read_trace(path)
