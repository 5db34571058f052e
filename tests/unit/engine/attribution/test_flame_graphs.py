"""Flame graphs of a page: the sums of `perfkit stacks`, bounded."""

from pathlib import Path

import pytest

from perfkit.engine.attribution import stacks as module
from perfkit.engine.attribution.stacks import Stack, flame_graph, flame_graphs
from perfkit.engine.trace_context import TraceContext
from perfkit.records.per_run.flame_graph import FlameGraph
from perfkit.trace.reader import read_trace
from tests.support.traces.samples import header, recorded
from tests.support.traces.trace_builder import TraceBuilder


def graph(stacks: dict[Stack, int]) -> FlameGraph:
    return flame_graph(stacks, {"k": "compute"}, rank=0, trace="t.json", weight="device", by="python")


def frames(found: FlameGraph) -> list[tuple[int, str, int]]:
    return [
        (depth, found.names[name], ns)
        for depth, name, ns in zip(found.depth, found.name, found.duration_ns, strict=True)
    ]


def test_frames_follow_their_callers_the_longest_first() -> None:
    found = graph({("main", "b", "k"): 20, ("main", "a"): 70, ("main",): 5, ("other",): 5})
    assert frames(found) == [(0, "main", 95), (1, "a", 70), (1, "b", 20), (2, "k", 20), (0, "other", 5)]
    assert (found.total_ns, found.left_out) == (100, 0)
    assert found.lanes == ["annotation", "annotation", "annotation", "compute", "annotation"]


def test_frames_of_one_length_stay_with_their_callers() -> None:
    found = graph({("a", "x"): 50, ("b", "x"): 50})
    assert frames(found) == [(0, "a", 50), (1, "x", 50), (0, "b", 50), (1, "x", 50)]


def test_what_no_pixel_shows_is_left_out() -> None:
    found = graph({("main", "a"): 100_000, ("main", "b"): 50})
    assert frames(found) == [(0, "main", 100_050), (1, "a", 100_000)]
    assert found.left_out == 1


def test_a_graph_is_bounded_in_frames_and_depth() -> None:
    wide = graph({("main", f"f{number}"): 10_000 + number for number in range(800)})
    assert len(wide.name) == module.MOST_FRAMES
    assert wide.left_out == 801 - module.MOST_FRAMES
    assert frames(wide)[1] == (1, "f799", 10_799)
    deep = graph({tuple(f"f{number}" for number in range(10_000)): 7})
    assert max(deep.depth) < 100
    assert set(deep.duration_ns) == {7}
    long = graph({("n" * 10_000,): 7})
    assert max(map(len, long.names)) <= 200


def test_samples_are_stacks_of_the_program_and_what_it_called(tmp_path: Path) -> None:
    main, jitter = ("train.py(31): <module>", 40), ("train.py(5): jitter", 7)
    library, inside = ("torch/functional.py(20): norm", 25), ("torch/_tensor.py(1): mul", 2)
    hook = ("perfkit/record/script/hooks/torch_hooks.py(1): hooked", 3)
    stacks = [[main], [inside, library, jitter, hook, main], [hook, main]]
    rows = [(1000 * k, stacks[k % 3]) for k in range(1, 13)]
    builder = TraceBuilder(backend="gloo").step(1, 0, 12_000).op("aten::mm", 0, 1_000)
    path = builder.header(perfkit=header(recorded(rows))).write(tmp_path / "rank0.json")
    work = TraceContext(read_trace(path), path.name)
    (found,) = flame_graphs(work, rank=0, trace=path.name)
    assert (found.weight, found.by) == ("samples", "python")
    # The halves of an interval count for the samples at their ends; all before the first is the first's.
    assert [(depth, name) for depth, name, _ in frames(found)] == [
        (0, "train.py(31): <module>"),
        (1, "train.py(5): jitter"),
        (2, "torch/functional.py(20): norm"),
    ]
    assert found.duration_ns[1] == found.duration_ns[2] == pytest.approx(4.5e6)
    assert found.duration_ns[0] == found.total_ns == pytest.approx(12e6, rel=0.1)
