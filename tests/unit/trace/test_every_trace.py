"""Traces in every form that programs write: the same events, or a finding, never a crash."""

import gzip
import json
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import zstandard

from perfkit.engine.trace_summary import TraceSummary
from perfkit.errors import TraceError
from perfkit.pipeline.summarize import summarize_trace
from perfkit.report.wording.findings import word
from perfkit.trace.decompression import TraceText
from perfkit.trace.events import EventKind, RankTrace
from perfkit.trace.json_buffer import TextBuffer
from perfkit.trace.reader import read_trace
from tests.support.processes.launching import LIMIT_S
from tests.support.traces.trace_builder import TraceBuilder

OP = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 10, "dur": 5}
LAUNCH = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 11, "dur": 1}
KERNEL = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 20, "dur": 4}


def read(tmp_path: Path, content: Any, name: str = "t.json", **options: Any) -> RankTrace:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return read_trace(path, **options)


def analyse(tmp_path: Path, events: list[dict[str, Any]]) -> TraceSummary:
    return summarize_trace(read(tmp_path, {"traceEvents": events}), "t.json")


def codes(summary: TraceSummary) -> set[str]:
    return {finding.code for finding in summary.findings}


def spans(trace: RankTrace) -> list[tuple[int, int]]:
    return list(zip(trace.events.start_ns.tolist(), trace.events.end_ns.tolist(), strict=True))


# ---- forms of files ------------------------------------------------------------------------------------------------

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "plain": lambda text: text,
    "gzip": gzip.compress,
    "gzip, three members": lambda text: b"".join(map(gzip.compress, (text[:7], text[7:50], text[50:]))),
    "gzip, padded with zeros": lambda text: gzip.compress(text) + bytes(300),
    "gzip, an empty member": lambda text: gzip.compress(b"") + gzip.compress(text) + gzip.compress(b""),
    "zstd": zstandard.compress,
    "zstd, two frames": lambda text: zstandard.compress(text[:9]) + zstandard.compress(text[9:]),
    "zstd, streamed": lambda text: b"".join(zstandard.ZstdCompressor().read_to_iter(text)),
}
LAYOUTS: dict[str, Callable[[Any], bytes]] = {
    "minified": lambda document: json.dumps(document, separators=(",", ":")).encode(),
    "pretty": lambda document: json.dumps(document, indent=2).encode(),
    "CRLF": lambda document: json.dumps(document, indent=1).replace("\n", "\r\n").encode(),
    "byte order mark": lambda document: b"\xef\xbb\xbf" + json.dumps(document).encode(),
    "blanks around": lambda document: b" \n\t" + json.dumps(document).encode() + b"\r\n \n",
}
HEADER = {"baseTimeNanoseconds": 1000, "distributedInfo": {"rank": 2, "list": [{"a": "]}"}, {}]}}
EVENTS = [OP, LAUNCH | {"args": {"correlation": 3}}, KERNEL | {"args": {"correlation": 3, "x": [{}, {"y": "}, {"}]}}]


@pytest.mark.parametrize("size", [1, 60, 1 << 19])
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("pack", PACKERS.values(), ids=PACKERS)
def test_forms_of_files(tmp_path: Path, pack: Any, layout: Any, size: int) -> None:
    for document in (HEADER | {"traceEvents": EVENTS}, {"traceEvents": EVENTS} | HEADER):
        trace = read(tmp_path, pack(layout(document)), slice_bytes=size)
        assert spans(trace) == [(11_000, 16_000), (12_000, 13_000), (21_000, 25_000)]
        assert trace.events.correlation.tolist() == [-1, 3, 3]
        assert (trace.header.rank, trace.damage, trace.repaired) == (2, (), {})
    assert spans(read(tmp_path, pack(layout(EVENTS)), slice_bytes=size)) == [
        (10_000, 15_000),
        (11_000, 12_000),
        (20_000, 24_000),
    ]


def test_progress_counts_the_bytes_of_the_file(tmp_path: Path) -> None:
    seen: list[int] = []
    content = gzip.compress(json.dumps({"traceEvents": EVENTS}).encode())
    read(tmp_path, content, progress=seen.append)
    assert sum(seen) == len(content)


# ---- forms of events -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("category", ["npu_kernel", "my_user_event", "disk_memcpy", "x_profiler_range"])
def test_categories_that_nobody_knows_are_told(tmp_path: Path, category: str) -> None:
    assert read(tmp_path, [OP, OP | {"cat": category}]).unknown == {category: 1}


def test_large_shapes_are_not_kept(tmp_path: Path) -> None:
    event = OP | {"name": "c10d::allreduce_", "args": {"Input Dims": [[7] * 40_000]}}
    columns = read(tmp_path, [event, event | {"args": {"Input Dims": [[8] * 40_000]}}]).events.collective_args
    assert [args.input_dims for args in columns.args] == [None]


@pytest.mark.parametrize("ts", ["10", "10.0", "10.000", '"10"', '"10.000"', "1e1", "0.1e+2", "10.0000004"])
def test_forms_of_times(tmp_path: Path, ts: str) -> None:
    event = json.dumps(OP).replace('"ts": 10', f'"ts": {ts}')
    for others in ([], [json.dumps(OP)]):
        assert set(spans(read(tmp_path, f"[{','.join([event, *others])}]".encode()))) == {(10_000, 15_000)}


@pytest.mark.parametrize("base", ["1700000000000000001", '"1700000000000000001"', "1700000000000000001.0"])
def test_forms_of_the_base_time(tmp_path: Path, base: str) -> None:
    content = f'{{"traceEvents": [{json.dumps(OP)}], "baseTimeNanoseconds": {base}}}'
    assert spans(read(tmp_path, content.encode())) == [(1700000000000010001, 1700000000000015001)]


def test_ids_are_numbers_or_strings(tmp_path: Path) -> None:
    numbers = [LAUNCH | {"args": {"correlation": 3}}, KERNEL | {"args": {"correlation": 3}}]
    texts = [LAUNCH | {"args": {"correlation": "3"}}, KERNEL | {"args": {"correlation": "3"}, "pid": "0", "tid": "7"}]
    for events in (numbers, texts, [numbers[0], texts[1]]):
        assert read(tmp_path, events).events.correlation.tolist() == [3, 3]


def test_infinity_is_no_time(tmp_path: Path) -> None:
    trace = read(
        tmp_path, [OP, OP | {"dur": float("inf")}, OP | {"ts": float("-inf")}, OP | {"args": {"x": float("inf")}}]
    )
    assert spans(trace) == [(10_000, 15_000), (10_000, 10_000), (10_000, 15_000)]
    assert sum(trace.repaired.values()) == 2


def test_one_bad_event_costs_no_other(tmp_path: Path) -> None:
    listed = [json.dumps(OP | {"ts": ts}).encode() for ts in range(1, 400)]
    listed[200] = listed[200].replace(b"aten", b"\xff\x01")
    trace = read(tmp_path, b"[" + b",".join(listed) + b"]", slice_bytes=5_000)
    assert trace.events.start_ns.tolist() == [1000 * ts for ts in range(1, 400)]
    assert trace.events.names == ("aten::mm", "�\x01::mm")


@pytest.mark.parametrize("depth", [10, 100, 200, 300, 400, 500, 700, 900, 1500])
def test_an_odd_event_nested_however_deeply_costs_no_other(tmp_path: Path, depth: int) -> None:
    args = f'"Collective name": "allreduce", "Input Dims": {"[" * depth}{"]" * depth}'.encode()
    odd = b'{"ph": "X", "cat": "cpu_op", "name": "\xff", "ts": 1, "dur": 1, "args": {%s}}' % args
    mark = b'{"ph": "i", "name": "[memory]", "ts": 1, "args": {"note": "\xff", %s}}' % args
    whole = json.dumps(OP).encode()
    trace = read(tmp_path, b"[" + b",".join([whole, odd, mark, whole]) + b"]")
    kept = [trace.events.names[number] for number in trace.events.name]
    assert kept in (["aten::mm", "�", "aten::mm"], ["aten::mm", "aten::mm"])
    assert len(kept) == 3 or "damaged" in trace.damage[0]


@pytest.mark.parametrize(
    ("category", "kind"),
    [
        ("mtia_ccp_events", EventKind.KERNEL),
        ("mtia_runtime", EventKind.LAUNCH),
        ("mtia_insight", EventKind.OTHER),
        ("mtia_workloadd", EventKind.OTHER),
        ("hpu_op", EventKind.LAUNCH),
        ("xpu_memcpy", EventKind.COPY),
        ("cuda_event", EventKind.OTHER),
        ("cpu_instant_event", EventKind.OTHER),
        ("xpu_runtime", EventKind.LAUNCH),
        ("xpu_driver", EventKind.LAUNCH),
        ("privateuse1_runtime", EventKind.LAUNCH),
        ("hip_runtime", EventKind.LAUNCH),
        ("gpu_memset", EventKind.COPY),
        ("Operator", EventKind.OPERATOR),
    ],
)
def test_categories_of_accelerators(tmp_path: Path, category: str, kind: EventKind) -> None:
    trace = read(tmp_path, [OP | {"cat": category}])
    assert trace.counts == {kind: 1}
    assert trace.unknown == {}


# ---- arguments of events --------------------------------------------------------------------------------------------


def test_without_correlation_work_belongs_where_it_runs(tmp_path: Path) -> None:
    step = OP | {"cat": "user_annotation", "name": "ProfilerStep#1", "dur": 50}
    summary = analyse(tmp_path, [step, OP, LAUNCH, KERNEL])
    assert [one.total_ns.compute for one in summary.steps] == [4000]


def test_on_mtia_copies_are_known_by_their_name(tmp_path: Path) -> None:
    on_device = KERNEL | {"cat": "mtia_ccp_events"}
    copy = on_device | {"name": "dma_request", "ts": 40, "dur": 2}
    summary = analyse(tmp_path, [OP, LAUNCH | {"cat": "mtia_runtime"}, on_device, copy])
    total = summary.steps[0].total_ns
    assert (total.compute, total.memcpy) == (4000, 2000)


def test_stream_zero_is_a_stream(tmp_path: Path) -> None:
    args = {"correlation": 0, "stream": 0}
    summary = analyse(tmp_path, [OP, LAUNCH | {"args": args}, KERNEL | {"tid": 0, "args": args}])
    assert summary.steps[0].total_ns.compute == 4000
    assert summary.has_device


def test_a_cuda_graph_is_many_kernels_to_one_launch(tmp_path: Path) -> None:
    step = {**OP, "cat": "user_annotation", "dur": 60}
    steps = [step | {"name": "ProfilerStep#1", "ts": 10}, step | {"name": "ProfilerStep#2", "ts": 70}]
    launch = LAUNCH | {"name": "cudaGraphLaunch", "args": {"correlation": 3}}
    kernels = [KERNEL | {"ts": 20 + 10 * k, "args": {"correlation": 3}} for k in range(5)]
    summary = analyse(tmp_path, [*steps, launch, *kernels])
    assert [one.total_ns.compute for one in summary.steps] == [20_000, 0]


@pytest.mark.parametrize(
    ("steps", "code"),
    [
        ([(1, 10, 30), (1, 50, 20)], "repeated_steps"),
        ([(1, 10, 30), (2, 20, 50)], None),
        ([(1, 10, 30), (2, 100, 5)], "steps_without_device_work"),
        ([], "no_steps"),
    ],
    ids=["repeated", "overlapping", "without work", "none"],
)
def test_steps_of_every_kind_tile_their_span(tmp_path: Path, steps: Any, code: str | None) -> None:
    marks = [OP | {"cat": "user_annotation", "name": f"ProfilerStep#{n}", "ts": ts, "dur": dur} for n, ts, dur in steps]
    summary = analyse(
        tmp_path, [*marks, OP, LAUNCH | {"args": {"correlation": 3}}, KERNEL | {"args": {"correlation": 3}}]
    )
    assert code is None or code in codes(summary)
    ends = [one.start_ns + one.wall_ns for one in summary.steps]
    assert ends[:-1] == [one.start_ns for one in summary.steps[1:]]


def test_a_kernel_that_ends_before_it_starts_is_a_finding(tmp_path: Path) -> None:
    summary = analyse(tmp_path, [OP, KERNEL, KERNEL | {"dur": -3}])
    assert "repaired_events" in codes(summary)
    assert summary.steps[0].total_ns.compute == 4000


@pytest.mark.parametrize(("count", "message"), [(1, "1 event without a usable"), (2, "2 events without a usable")])
def test_events_without_a_start_are_counted_in_words(tmp_path: Path, count: int, message: str) -> None:
    summary = analyse(tmp_path, [OP, KERNEL, *[KERNEL | {"ts": "x"}] * count])
    (finding,) = (one for one in summary.findings if one.code == "skipped_events")
    assert word(finding).message == f"{message} start, skipped"


def test_keys_that_occur_twice_are_a_finding_and_the_last_counts(tmp_path: Path) -> None:
    events = json.dumps([OP]).encode()
    twice = b'{"distributedInfo": {"rank": 1}, "traceEvents": %s, "distributedInfo": {"rank": 2}, "traceEvents": %s}'
    trace = read(tmp_path, twice % (json.dumps([OP, OP]).encode(), events))
    assert trace.header.rank == 2
    assert spans(trace) == [(10_000, 15_000)]
    (message,) = trace.damage
    assert "distributedInfo, traceEvents" in message
    assert "damaged_trace" in codes(summarize_trace(trace, "t.json"))


def test_a_header_that_cannot_be_read_is_a_finding(tmp_path: Path) -> None:
    trace = read(tmp_path, b'{"distributedInfo": {"rank" 1}, "traceEvents": [%s]}' % json.dumps(OP).encode())
    assert trace.header.rank is None
    assert "distributedInfo" in trace.header_damage[0]
    assert "damaged_header" in codes(summarize_trace(trace, "t.json"))


def test_perfkits_own_header_that_cannot_be_is_a_finding(tmp_path: Path) -> None:
    own = {"perfkit": {"rank": 2**70, "world_size": 2}, "traceEvents": [OP]}
    assert read(tmp_path, own).header_damage == ("the header's perfkit cannot be read and is ignored",)
    assert read(tmp_path, own | {"perfkit": {"rank": "first"}}).header_damage == ()


@pytest.mark.parametrize("rank", [1, {"of": "another type"}])
def test_the_header_of_a_newer_perfkit_is_ignored_with_a_line_that_says_so(rank: object, tmp_path: Path) -> None:
    own = {"schema_version": 2, "rank": rank, "world_size": 2}
    trace = read(tmp_path, {"perfkit": own, "traceEvents": [OP]})
    (line,) = trace.header_damage
    assert line.startswith("a newer perfkit wrote the header's perfkit (version 2; this one reads 1)")
    assert (trace.header.perfkit, trace.header.rank) == (None, None)


def test_a_header_with_a_key_twice_has_lost_no_events(tmp_path: Path) -> None:
    twice = b'{"deviceProperties": [], "deviceProperties": [], "traceEvents": [%s]}'
    trace = read(tmp_path, twice % json.dumps(OP).encode())
    assert trace.damage == ()
    assert "deviceProperties" in trace.header_damage[0]


# ---- damage --------------------------------------------------------------------------------------------------------


def whole() -> bytes:
    builder = TraceBuilder(0, 2).step(0, 0, 10_000)
    for k in range(400):
        builder.op(f"aten::op{k % 7}", 10 * k, 5).launch(k, 10 * k + 1, 2).kernel("gemm", 10 * k + 3, 4, k)
    return builder.to_bytes()


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
@pytest.mark.parametrize("size", [100, 1 << 19])
def test_what_is_whole_in_a_truncated_file_is_kept(tmp_path: Path, share: float, size: int) -> None:
    text = whole()
    cut = int(share * len(text))
    trace = read(tmp_path, text[:cut], slice_bytes=size)
    all_of_it = read(tmp_path, text)
    kept = len(trace.events.kind)
    assert kept > 0.8 * share * len(all_of_it.events.kind)
    base = trace.header.base_ns - all_of_it.header.base_ns  # the header may stand behind the events
    assert (trace.events.start_ns - base).tolist() == all_of_it.events.start_ns[:kept].tolist()
    begin = text.rindex(b'{"ph', 0, cut)
    assert f"at byte {begin:,} of its text" in trace.damage[0]
    assert f"the {kept:,} whole events" in trace.damage[0]
    assert "damaged_trace" in codes(summarize_trace(trace, "t.json"))


@pytest.mark.parametrize("size", [100, 1 << 19])
@pytest.mark.parametrize("byte", [b"#", b"{", b"\\"])
def test_a_byte_in_the_middle_costs_one_event(tmp_path: Path, byte: bytes, size: int) -> None:
    text = whole()
    at = text.index(b'"ph":"X"', len(text) // 2)
    trace = read(tmp_path, text[:at] + byte + text[at + 1 :], slice_bytes=size)
    (message,) = trace.damage
    assert f"first at byte {text.rindex(b'{', 0, at):,}" in message
    assert f"{len(trace.events.kind):,} whole events" in message
    undamaged = read(tmp_path, text).events.start_ns.tolist()
    found = trace.events.start_ns.tolist()
    assert len(found) == len(undamaged) - 1
    assert set(found) <= set(undamaged)


@pytest.mark.parametrize(
    ("pack", "word"),
    [(gzip.compress, "gzip"), (zstandard.ZstdCompressor(write_checksum=True).compress, "zstd")],
    ids=["gzip", "zstd"],
)
def test_damaged_compression_is_named(tmp_path: Path, pack: Callable[[bytes], bytes], word: str) -> None:
    packed = pack(whole() * 20)  # more than one piece of it; what follows the first document is damage too
    for damaged in (packed[: len(packed) * 2 // 3], flipped(packed)):
        assert any(word in message for message in read(tmp_path, damaged).damage)


def test_damaged_compressed_data_costs_what_a_kilobyte_of_it_has(tmp_path: Path) -> None:
    chance = random.Random(1)  # noqa: S311
    text = b"".join(b"%032x" % chance.getrandbits(128) for _ in range(2_000))  # 2 bytes a byte packed
    packed = bytearray(gzip.compress(text))
    packed[-6] ^= 1  # of the checksum
    (tmp_path / "t.json.gz").write_bytes(packed)
    buffer = TextBuffer(TraceText(tmp_path / "t.json.gz").pieces())
    buffer.fill(2 * len(text))
    assert "damaged gzip data" in str(buffer.stream_error)
    assert text.startswith(buffer.data)
    assert len(text) - 2_500 < len(buffer.data) < len(text)


def test_damaged_nonsense_is_the_same_error_however_it_is_cut(tmp_path: Path) -> None:
    chance = random.Random(1)  # noqa: S311
    packed = flipped(gzip.compress(b"no trace, but " + b"".join(b"%x " % chance.getrandbits(32) for _ in range(1_000))))
    messages = set()
    for size in (1, 17, 1 << 19):
        with pytest.raises(TraceError, match="is a text file, not a torch") as caught:
            read(tmp_path, packed, slice_bytes=size)
        messages.add(str(caught.value))
    assert len(messages) == 1


def flipped(data: bytes) -> bytes:
    out = bytearray(data)
    out[len(out) * 3 // 4] ^= 16
    return bytes(out)


TEARS: dict[str, Callable[[str], str]] = {
    "a brace is missing": lambda event: event[:-1],
    "a brace too many": lambda event: event + "}",
    "a bracket is missing": lambda event: event.replace("]", "", 1),
    "a quote is missing": lambda event: event.replace('gemm"', "gemm"),
    "a bare quote": lambda event: event.replace("gemm", 'ge"mm'),
    "a colon is missing": lambda event: event.replace(":", "", 1),
    "cut off": lambda event: event[:70],
    "zeros": lambda event: event[:20] + "\x00" * 40 + event[60:],
}
NESTED = {"list": [{"a": 1}, {"args": {}}, {"ts": 2, "x": "}, {"}, {"b": [{}, {"dur": 1}]}], "correlation": 3}
ORDERS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "as torch writes them": lambda event: event,
    "sorted": lambda event: dict(sorted(event.items())),
    "arguments first": lambda event: {"args": event["args"], **event},
    "duration first": lambda event: {"dur": event["dur"], **event},
    "a key nobody knows first": lambda event: {"nobody knows": 1, **event},
}


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS)
@pytest.mark.parametrize("tear", TEARS.values(), ids=TEARS)
def test_however_many_events_are_torn_the_others_are_kept(tmp_path: Path, tear: Any, order: Any) -> None:
    listed = [json.dumps(order(KERNEL | {"ts": ts, "args": NESTED})) for ts in range(160)]
    torn = set(range(1, 140, 3)) | set(range(80, 90))
    text = ", ".join(tear(event) if ts in torn else event for ts, event in enumerate(listed))
    first = len("[, " + listed[0]) + (len(listed[1]) if tear is TEARS["a brace too many"] else 0)
    damage = read(tmp_path, f"[{text}]".encode(), slice_bytes=777).damage
    for size in (100, 3000, 1 << 19):
        trace = read(tmp_path, f"[{text}]".encode(), slice_bytes=size)
        assert {1000 * ts for ts in range(160) if ts not in torn} <= set(trace.events.start_ns.tolist())
        assert len(trace.events.kind) in (160 - len(torn), 160)
        (message,) = trace.damage
        assert f"places, first at byte {first:,} " in message
        assert f"{len(trace.events.kind):,} whole events are analysed" in message
        assert trace.damage == damage


def test_many_events_that_are_nested_too_deeply_cost_no_other(tmp_path: Path) -> None:
    event, deep = json.dumps(OP), '{"ph": "X", "args": %s}' % ("[" * 1500 + "]" * 1500)
    trace = read(tmp_path, f"[{', '.join([event] * 5 + [deep + '}'] * 40 + [event] * 5)}]".encode())
    assert len(trace.events.kind) == 10


def test_events_that_are_torn_one_after_the_other_are_one_place(tmp_path: Path) -> None:
    event = json.dumps(OP)
    trace = read(tmp_path, f"[{event}, {event[:-1]}, {event[:-1]}, {event}, {event[:-1]}, {event}]".encode())
    assert len(trace.events.kind) == 3
    assert "damaged in 2 places" in trace.damage[0]


@pytest.mark.parametrize("size", [100, 1 << 19])
def test_a_large_event_behind_damage_is_kept(tmp_path: Path, size: int) -> None:
    event = json.dumps(OP)
    for large in (300_000, 2_000_000):
        text = ", ".join([event, event[:-1], json.dumps(OP | {"args": {"note": "x" * large}, "ts": 30}), event])
        assert [start for start, _ in spans(read(tmp_path, f"[{text}]".encode(), slice_bytes=size))] == [
            10_000,
            30_000,
            10_000,
        ]


@pytest.mark.parametrize(
    ("written", "name"),
    [
        (r"C:\Users\me", r"C:\Users\me"),
        (r"C:\users\new", "C:\\users\new"),
        (r"a\\Users\\\q", r"a\Users\\q"),
        (r"\u12 \u00e9 \\u12", r"\u12 é \u12"),
        (r"say \"\x\"", r'say "\x"'),
    ],
)
@pytest.mark.parametrize("size", [60, 1 << 19])
def test_a_bare_backslash_is_one(tmp_path: Path, written: str, name: str, size: int) -> None:
    event = json.dumps(OP)
    trace = read(tmp_path, f"[{event}, {event.replace('aten::mm', written)}, {event}]".encode(), slice_bytes=size)
    assert [trace.events.names[number] for number in trace.events.name] == ["aten::mm", name, "aten::mm"]
    assert trace.damage == ()


def test_a_bare_backslash_in_the_header_costs_nothing(tmp_path: Path) -> None:
    header = rb'{"C:\Users": 1, "host_name": "C:\Users", "traceEvents": [%s]}'
    trace = read(tmp_path, header % json.dumps(OP).encode())
    assert (trace.header.host, trace.damage, trace.header_damage) == (r"C:\Users", (), ())


@pytest.mark.parametrize("content", [b"{", b'{"traceEvents": [', b"nonsense", b'{"traceEvents": [}', b"\x00" * 5000])
def test_nothing_usable_is_one_clear_error(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(
        TraceError, match=r"not JSON, or incomplete: parsing fails at byte \d+|is a text file"
    ) as caught:
        read(tmp_path, content)
    assert "\n" not in str(caught.value)


# ---- limits --------------------------------------------------------------------------------------------------------

_MEASURE = """
import re, sys
from pathlib import Path
from perfkit.errors import TraceError
from perfkit.trace.reader import read_trace
try:
    print(read_trace(Path(sys.argv[1]), max_bytes=int(sys.argv[2]) if len(sys.argv) > 2 else None).damage)
except TraceError as error:
    print(error)
# Of this program alone: getrusage would count what its parent had before it became this program.
print(int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024)
"""


needs_proc = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")


def repeated(piece: bytes, count: int, pack: Callable[[bytes], bytes] = gzip.compress) -> bytes:
    """Return compressed data that expands to `piece`, 64 KiB or more, over and over."""
    return pack(piece) * count


BOMBS = {
    "blanks": (b" " * (1 << 24), 60),
    "a string": (b"x" * (1 << 24), 60),
    "nesting": (b"[" * (1 << 24), 30),
    "small values": (b"[]," * (1 << 22), 60),
    "events": (b'{"ph":"X","cat":"kernel","name":"nccl_Kernel","ts":1,"dur":1},' * (1 << 16), 60),
    "steps": (b'{"ph":"X","cat":"user_annotation","name":"ProfilerStep#1","ts":1},' * (1 << 16), 60),
}
OPENINGS = {
    "blanks": b'{"traceEvents": [ ',
    "a string": b'{"traceEvents": [{"name": "',
    "nesting": b'{"traceEvents": [{"args": ',
    "small values": b'{"traceEvents": [{"ph": "X", "cat": "kernel", "ts": 1, "pid": [',
    "events": b"[",
    "steps": b"[",
}


@pytest.mark.slow  # a dozen hostile files, each read in a separate process to measure its memory: 15 s
@needs_proc
@pytest.mark.parametrize(
    ("kind", "pack", "limit"),
    [
        *((kind, gzip.compress, []) for kind in BOMBS),
        *((kind, zstandard.compress, []) for kind in ("nesting", "events", "steps")),
        # A limit that allows all of it need not save memory.
        ("a string", gzip.compress, ["1000000000000"]),
        ("a string", zstandard.compress, ["1000000000000"]),
    ],
)
def test_a_small_file_cannot_allocate_much(
    tmp_path: Path, kind: str, pack: Callable[[bytes], bytes], limit: list[str]
) -> None:
    path = tmp_path / "t.json.gz"
    path.write_bytes(pack(OPENINGS[kind]) + repeated(*BOMBS[kind], pack))
    done = subprocess.run(
        [sys.executable, "-c", _MEASURE, path, *limit], capture_output=True, text=True, check=True, timeout=LIMIT_S
    )
    output, peak_mb = done.stdout.splitlines()
    assert "MiB" in output or "bomb" in output
    assert int(peak_mb) < 400


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_a_limit_stops_a_bomb_long_before_its_end(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "t.json.gz"
    path.write_bytes(pack(OPENINGS["blanks"]) + repeated(b" " * (1 << 24), 60, pack))
    done: list[int] = []
    with pytest.raises(TraceError, match="more than 1,000,000 bytes of text: --max-bytes allows more"):
        read_trace(path, max_bytes=1_000_000, progress=done.append)
    assert sum(done) <= path.stat().st_size


def test_a_zstd_window_beyond_the_usual_is_refused_and_said(tmp_path: Path) -> None:
    large = zstandard.ZstdCompressor(compression_params=zstandard.ZstdCompressionParameters(window_log=28))
    packing = large.compressobj()
    packed = packing.compress(whole()) + packing.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK) + packing.flush()
    with pytest.raises(TraceError, match="more than 128 MiB: compress it without --long"):
        read(tmp_path, packed)


MARK = {"ph": "i", "name": "[memory]", "ts": 1, "args": {"Total Allocated": 64, "Device Type": 1, "Device Id": 0}}


@needs_proc
@pytest.mark.parametrize("event", [KERNEL, MARK], ids=["kernels", "records of memory"])
def test_memory_follows_the_events_that_are_kept(tmp_path: Path, event: dict[str, Any]) -> None:
    path = tmp_path / "t.json.gz"
    kept = 8 << 17
    begin = gzip.compress(f"[{json.dumps(OP)},".encode())
    path.write_bytes(begin + repeated((json.dumps(event) + ",").encode() * (1 << 17), 8))
    done = subprocess.run(
        [sys.executable, "-c", _MEASURE, path, "1000000000"],
        capture_output=True,
        text=True,
        check=True,
        timeout=LIMIT_S,
    )
    output, peak_mb = done.stdout.splitlines()
    assert f"the {kept + 1 if event is KERNEL else 1:,} whole events" in output
    assert int(peak_mb) < 120 + 64 * kept / 2**20


SHREDS = {
    "no event is whole": b'{"ph"},',
    "every other event": b'{"ph": "X", "cat": "kernel", "ts": 1, "dur": 1}, {"ph"}, ',
    "every other event lacks its end": b'{"ph": "X", "cat": "kernel", "ts": 1, "dur": 1}, {"ph": "B", ',
    "backslashes": b',{"\\',
    "each within the one before": b'{"ph":[{},',
    "too deep": b'{"ph":' + b"[" * 1500 + b",",
}
TANGLE = b'{"ph":[{},' * 900 + b"0," * 500_000
"""Each of its events goes on to the end."""


@pytest.mark.slow  # as above: 10 s
@needs_proc
@pytest.mark.parametrize(
    "shreds",
    [*(piece * (10**6 // len(piece)) for piece in SHREDS.values()), TANGLE],
    ids=[*SHREDS, "each to the end"],
)
def test_shreds_of_events_are_cheap(tmp_path: Path, shreds: bytes) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(b"[" + shreds)
    done = subprocess.run(
        [sys.executable, "-c", _MEASURE, path],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (30, 30)),  # of which a busy machine takes none
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout.splitlines()[-1]) < 120


@pytest.mark.parametrize("item", [b"1.5,", b"[],", b'"a",', b"null,"])
def test_a_long_list_of_no_events_is_read_at_once(tmp_path: Path, item: bytes) -> None:
    before = time.process_time()
    with suppress(TraceError):
        read(tmp_path, b"[" + item * (10**7 // len(item)) + b"0]")
    assert time.process_time() - before < 5  # half a minute, if each were decoded for itself


def test_among_numbers_events_are_found_and_what_cannot_be_read(tmp_path: Path) -> None:
    event = json.dumps(OP).encode()
    numbers = b"1.5, " * 100
    for size in (60, 1 << 19):
        trace = read(tmp_path, b"[%s%s, %s01, %s, 1]" % (numbers, event, numbers, event), slice_bytes=size)
        assert spans(trace) == [(10_000, 15_000)] * 2
        at = 1 + 2 * len(numbers) + len(event) + 2
        assert f"damaged in 1 place, first at byte {at:,}" in trace.damage[0]


def test_the_limit_can_be_set(tmp_path: Path) -> None:
    text = whole()
    assert read(tmp_path, text, max_bytes=len(text)).damage == ()
    with pytest.raises(TraceError, match="--max-bytes"):
        read(tmp_path, gzip.compress(text), max_bytes=len(text) - 1)


@pytest.mark.parametrize("member", [b'"a":1,', b'"a":[],', b'"traceEvents":[{}],', b'"a":{"b":"}"},'])
def test_a_header_of_very_many_keys_is_read_in_linear_time(tmp_path: Path, member: bytes) -> None:
    text = b"{" + member * 30_000 + b'"traceEvents": [' + json.dumps(OP).encode() + b"]}"
    before = time.process_time()
    with suppress(TraceError):
        assert spans(read(tmp_path, text)) == [(10_000, 15_000)]
    assert time.process_time() - before < 20  # minutes, if each key cost a pass over what is at hand
