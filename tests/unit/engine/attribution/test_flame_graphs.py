"""Flame graphs of a page: the sums of `perfkit stacks`, bounded."""

from perfkit.engine.attribution import stacks as module
from perfkit.engine.attribution.stacks import Stack, flame_graph
from perfkit.records.per_run.flame_graph import FlameGraph


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
