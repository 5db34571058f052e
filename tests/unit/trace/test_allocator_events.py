"""Allocator records in a trace, valid and invalid."""

from pathlib import Path
from typing import Any

import pytest

from perfkit.trace.allocator_events import INVALID_RECORD, TOO_MANY_DEVICES
from perfkit.trace.events import RankTrace, device_name
from perfkit.trace.reader import read_trace
from tests.support.traces.trace_builder import BASE_NS, TraceBuilder


def read(builder: TraceBuilder, tmp_path: Path, **options: Any) -> RankTrace:
    return read_trace(builder.op("aten::mm", 0, 100).write(tmp_path / "rank0.json"), **options)


@pytest.mark.parametrize("slice_bytes", [200, 1 << 19])
@pytest.mark.parametrize("detailed", [False, True])
def test_levels_of_each_device_in_order_of_time(tmp_path: Path, detailed: bool, slice_bytes: int) -> None:
    builder = TraceBuilder().memory(20, 300, 100).memory("10.5", 200, 150).memory(30, 0, -300)
    builder.memory(15, 7_000, 7_000, kind=1, device=0, reserved=20_000)
    trace = read(builder, tmp_path, detailed=detailed, slice_bytes=slice_bytes)
    assert [device_name(*key) for key in trace.memory] == ["CPU", "device 0"]
    host, device = trace.memory.values()
    assert (host.time_ns - BASE_NS).tolist() == [10_500, 20_000, 30_000]
    assert host.allocated_bytes.tolist() == [200, 300, 0]
    assert host.before_bytes == 50
    assert device.reserved_bytes.tolist() == [20_000]
    assert trace.repaired == {}


HOSTILE: list[Any] = ["7", "", None, -1, 1e300, 5.0, True, [], {"a": 1}, 2**53, 2**64, 2**200, "💾"]


@pytest.mark.parametrize("value", HOSTILE, ids=repr)
@pytest.mark.parametrize("what", ["allocated", "kind"])
def test_what_is_no_total_is_left_out_and_counted(tmp_path: Path, what: str, value: object) -> None:
    record: dict[str, Any] = {"allocated": 32, "change": -32, "kind": 0} | {what: value}
    trace = read(TraceBuilder().memory(10, 64, 64).memory(20, **record), tmp_path)
    (found,) = trace.memory.values()
    assert found.allocated_bytes.tolist() == [64]
    assert trace.repaired == {INVALID_RECORD: 1}


@pytest.mark.parametrize("value", [*HOSTILE[:9], 2**64], ids=repr)
def test_what_is_not_known_beside_the_total_is_unknown(tmp_path: Path, value: object) -> None:
    trace = read(TraceBuilder().memory(10, 64, value, device=value, reserved=value), tmp_path)
    (key,) = trace.memory
    (found,) = trace.memory.values()
    assert key == (0, -1)
    assert found.allocated_bytes.tolist() == [64]
    assert found.reserved_bytes.tolist() == [-1]
    assert found.before_bytes in (-1, 65)  # of the numbers only -1 can be a change
    assert (found.before_bytes == 65) == (value == -1)
    assert trace.repaired == {}


@pytest.mark.parametrize("args", [None, [], "x", 3, {}, {"Total Allocated": 1}, {"[" * 500: 1}])
@pytest.mark.parametrize("name", ["[memory]", "Iteration Start", None, 7, ["[memory]"]])
def test_marks_of_any_kind_cost_no_other_event(tmp_path: Path, name: object, args: object) -> None:
    mark = {"ph": "i", "name": name, "ts": "soon", "args": args}
    trace = read(TraceBuilder().memory(10, 64, 64).raw(mark).memory(20, 0, -64), tmp_path)
    (found,) = trace.memory.values()
    assert found.allocated_bytes.tolist() == [64, 0]
    assert len(trace.events.name) == 1
    assert trace.repaired == ({INVALID_RECORD: 1} if name == "[memory]" else {})


def test_a_record_with_bytes_that_are_no_text_counts(tmp_path: Path) -> None:
    trace = read(TraceBuilder().memory(10, 64, 64).memory(20, 0, -64), tmp_path)
    path = tmp_path / "rank0.json"
    path.write_bytes(path.read_bytes().replace(b'"Bytes":-64', b'"note":"\xff\x01","Bytes":-64'))
    (found,) = read_trace(path).memory.values()
    assert b"\xff" in path.read_bytes()
    assert found.allocated_bytes.tolist() == [64, 0]
    assert found.time_ns.tolist() == trace.memory[0, -1].time_ns.tolist()


def test_more_devices_than_there_are_cost_no_memory(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for number in range(40):
        builder.memory(number, 64, 64, kind=1, device=number)
    trace = read(builder, tmp_path)
    assert len(trace.memory) == 16
    assert trace.repaired == {TOO_MANY_DEVICES: 24}


@pytest.mark.parametrize(
    ("recorded", "expected"),
    [
        ([{"id": 0, "totalGlobalMem": 80_000}, {"id": 1, "totalGlobalMem": 90_000}], {0: 80_000, 1: 90_000}),
        ([{"id": 0}, {"totalGlobalMem": 5}, 7, {"id": "x", "totalGlobalMem": 5}, {"id": 2, "totalGlobalMem": -1}], {}),
        ([{"id": 3, "totalGlobalMem": 2**70}], {}),
        ({"id": 0}, {}),
        ("none", {}),
        ([{"id": k, "totalGlobalMem": 1} for k in range(1000)], dict.fromkeys(range(64), 1)),
    ],
)
def test_the_memory_of_devices(tmp_path: Path, recorded: object, expected: dict[int, int]) -> None:
    trace = read(TraceBuilder().header(deviceProperties=recorded), tmp_path)
    assert trace.header.device_bytes == expected
    assert trace.damage == ()


def test_real_traces_name_their_devices(real_traces: Path) -> None:
    trace = read_trace(real_traces / "nccl-metadata-1of2" / "rank0.json.gz")
    assert set(trace.header.device_bytes.values()) == {42_297_524_224}
    assert trace.memory == {}
