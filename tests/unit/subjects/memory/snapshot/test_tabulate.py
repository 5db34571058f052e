"""What a snapshot of memory tells, on snapshots of made allocators."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import perfkit
from perfkit.cli import main
from perfkit.errors import TraceError, UsageError
from perfkit.records.per_rank.memory import DeviceSnapshot
from perfkit.storage import memory_snapshot_file
from perfkit.storage.memory_snapshot_file import read_snapshot
from perfkit.subjects.memory import snapshot as module
from perfkit.subjects.memory.snapshot import function_of, tabulate
from tests.support.traces.memory.memory_snapshots import (
    CPP,
    FORWARD,
    LOAD,
    SEGMENT,
    MadeAllocator,
    made_training,
    write_snapshot,
)
from tests.support.traces.trace_builder import TraceBuilder

MIB = 1 << 20
FORWARD_FUNCTION = "/home/me/train.py(30): forward"


def device_of(snapshot: Any, path: Path) -> DeviceSnapshot:
    (memory,) = read_snapshot(write_snapshot(path / "rank3.memory.pickle", snapshot))
    return tabulate(memory)


def test_who_holds_the_memory_at_the_peak(tmp_path: Path) -> None:
    device = device_of(made_training().snapshot(), tmp_path)

    # At the peak: the batch and four activations of the first step, and the gradient.
    assert device.peak_bytes == 23 * MIB + 1000
    assert device.reserved_at_peak_bytes == 2 * SEGMENT
    assert [(row.function, row.callee, row.count, row.bytes, row.largest_bytes) for row in device.holders] == [
        (FORWARD_FUNCTION, FORWARD[0][0] + "(125): forward", 4, 20 * MIB, 5 * MIB),
        ("/home/me/data.py(7): to_device", None, 1, 3 * MIB, 3 * MIB),
        (None, CPP[0][2], 1, 1000, 1000),
    ]
    assert [(row.count, row.bytes) for row in device.largest] == [(4, 5 * MIB), (1, 3 * MIB), (1, 1000)]
    assert device.largest[0].stack == [f"{file}({line}): {name}" for file, line, name in FORWARD]


def test_how_reserved_memory_is_divided_at_the_end(tmp_path: Path) -> None:
    device = device_of(made_training().snapshot(), tmp_path)

    assert (device.allocated_bytes, device.reserved_bytes) == (7 * MIB, 2 * SEGMENT)
    assert device.fragmented_bytes == SEGMENT - 7 * MIB
    assert device.unused_bytes == device.largest_free_bytes == SEGMENT
    assert device.rounding_bytes == 0
    assert device.allocated_bytes + device.fragmented_bytes + device.unused_bytes == device.reserved_bytes


@given(st.lists(st.integers(-9, 3 * SEGMENT // 2), min_size=1, max_size=30), st.integers(0, 60))
@example(moves=[0], late=3)  # only the completion of a release is left
def test_levels_are_those_of_the_allocator(
    tmp_path_factory: pytest.TempPathFactory, moves: list[int], late: int
) -> None:
    allocator, live, levels = MadeAllocator(), list[tuple[int, int]](), [0]
    for move in (1, *moves):
        if move > 0:
            live.append((allocator.alloc(move, LOAD if move % 2 else FORWARD), move))
            levels += [levels[-1]] * (len(allocator.history) - len(levels)) + [levels[-1] + move]
        elif live:
            address, size = live.pop(move % len(live))
            allocator.free(address)
            levels += [levels[-1] - size] * 2
    late = min(late, len(levels) - 1)
    device = device_of(allocator.snapshot(forgotten=late), tmp_path_factory.mktemp("snapshot"))

    if device.records:
        assert device.peak_bytes == max(levels[late:])
        assert sum(row.bytes for row in device.holders) == device.peak_bytes
    else:
        assert device.peak_bytes is None
        assert sum(row.bytes for row in device.holders) == levels[-1]


def test_what_a_late_history_has_forgotten_has_no_function(tmp_path: Path) -> None:
    allocator = made_training((4,))
    device = device_of(allocator.snapshot(forgotten=4), tmp_path)

    assert device.peak_bytes == 23 * MIB + 1000
    assert {row.function: row.bytes for row in device.holders if not row.callee} == {None: 13 * MIB}
    # Made before the history, and still there at its end: its block tells the stack.
    end = device_of(made_training((1,)).snapshot(forgotten=99), tmp_path)
    assert [(row.function, row.bytes) for row in end.holders] == [("/home/me/data.py(7): to_device", 7 * MIB)]


def test_a_failed_allocation(tmp_path: Path) -> None:
    allocator = MadeAllocator()
    allocator.alloc(6 * MIB)
    allocator.fail(90 * MIB, 5 * MIB)
    allocator.alloc(1 * MIB)
    (failure,) = device_of(allocator.snapshot(), tmp_path).out_of_memory

    assert (failure.requested_bytes, failure.device_free_bytes) == (90 * MIB, 5 * MIB)
    assert (failure.allocated_bytes, failure.reserved_bytes) == (6 * MIB, SEGMENT)
    assert failure.function == FORWARD_FUNCTION


def test_a_history_that_does_not_fit_the_blocks_has_no_peak(tmp_path: Path) -> None:
    snapshot = made_training().snapshot()
    snapshot["device_traces"][0].append({"action": "alloc", "addr": 5, "size": 1 << 39, "frames": []})
    device = device_of(snapshot, tmp_path)

    assert device.peak_bytes is None
    assert device.allocated_bytes == 7 * MIB


def test_many_functions_add_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_HOLDERS", 3)
    allocator = MadeAllocator()
    for line in range(9):
        allocator.alloc(512 * (line + 1), (("/home/me/train.py", line, "f"),))
    holders = device_of(allocator.snapshot(), tmp_path).holders

    assert [(row.function, row.count) for row in holders[2:]] == [("/home/me/train.py(6): f", 1), ("(others)", 6)]
    assert sum(row.bytes for row in holders) == 512 * 45


def test_the_function_of_a_stack() -> None:
    library = "/usr/lib/python3/dist-packages/torch/optim/adam.py(9): step"
    assert function_of(("aten::empty", library, "/me/a.py(3): f")) == ("/me/a.py(3): f", library)
    assert function_of((library, "torch::x")) == (library, None)
    assert function_of(("torch::x", "y")) == (None, "torch::x")
    assert function_of(()) == (None, None)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda s: s["segments"][0]["blocks"][0].update(size=-1), "not a memory snapshot"),
        (lambda s: s["segments"][0]["blocks"][0].update(size=1 << 60), "not a memory snapshot"),
        (lambda s: s["segments"][0]["blocks"][0].update(address=1 << 70), "not a memory snapshot"),
        (lambda s: s["segments"][0]["blocks"][0].update(frames=7), "not a memory snapshot"),
        (lambda s: s["segments"][0]["blocks"][0].update(frames=[7]), "not a memory snapshot"),
        (lambda s: s["segments"][0].update(device=10**9), "not a memory snapshot"),
        (lambda s: s.pop("segments"), "segments is missing"),
        (lambda s: s.update(segments=[s["segments"][0]] * 40), "more than 60 blocks and records"),
        (lambda s: s.update(segments=(s["segments"][0],) * 40), "more than 60 blocks and records"),
        (lambda s: s["segments"][0].update(blocks=(s["segments"][0]["blocks"][0],) * 61), "more than 60 blocks"),
        (lambda s: s.update(device_traces=[(s["device_traces"][0][0],) * 61]), "more than 60 blocks and records"),
        (lambda s: s.update(segments={"a": 1}), "not a memory snapshot"),
    ],
)
def test_what_is_no_snapshot_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Any, problem: str
) -> None:
    monkeypatch.setattr(memory_snapshot_file, "MOST_ROWS", 60)
    snapshot = made_training((1,)).snapshot()
    change(snapshot)
    with pytest.raises(TraceError) as caught:
        device_of(snapshot, tmp_path)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_torchs_own_tools_read_the_made_snapshot() -> None:
    # Its file by itself: importing torch takes seconds.
    folder = next(Path(path) / "torch" for path in sys.path if (Path(path) / "torch" / "cuda").is_dir())
    spec = spec_from_file_location("_memory_viz", folder / "cuda" / "_memory_viz.py")
    assert spec is not None
    assert spec.loader is not None
    _memory_viz = module_from_spec(spec)
    spec.loader.exec_module(_memory_viz)

    snapshot = made_training().snapshot()
    summary = _memory_viz.segsum(snapshot)
    assert "total_reserved: 40.0MiB" in summary
    assert "total_allocated: 7.0MiB" in summary
    assert _memory_viz.trace(snapshot).count("= cudaMalloc(") == 2


def test_the_report_shows_the_snapshot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = TraceBuilder(world_size=1).step(0, 0, 100).op("aten::mm", 0, 50).write(tmp_path / "rank3.json")
    allocator = made_training()
    allocator.alloc(100, (("/home/me/\x1b[31m<b>.py", 1, "f"),))
    snapshot = write_snapshot(tmp_path / "rank3.memory.pickle", allocator.snapshot())

    assert main(["analyze", str(trace), "--memory-snapshot", str(snapshot), "--section", "memory"]) == 0
    shown = capsys.readouterr().out
    assert "rank 3, device 0" in shown
    assert "train.py(30): forward" in shown
    assert "\x1b[31m" not in shown

    (tmp_path / "b").mkdir()
    other = TraceBuilder(world_size=1).step(0, 0, 9).op("aten::mm", 0, 5).write(tmp_path / "b" / "rank0.json")
    with pytest.raises(UsageError, match=r"rank3.memory.pickle belongs to one run; PATH has 2"):
        perfkit.analyze(trace, other, memory_snapshot=snapshot)
    assert main(["analyze", str(trace), "--memory-snapshot", str(trace)]) == 1
    assert "not a memory snapshot" in capsys.readouterr().err
