"""The interval algebra against brute force, near zero and at epoch scale."""

import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.trace import intervals
from perfkit.trace.intervals import Ints

EPOCH = 1_700_000_000_123_456_789
Spans = list[tuple[int, int]]

spans = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12)).map(lambda s: (s[0], s[0] + s[1])), max_size=12)
offsets = st.sampled_from([0, EPOCH])


def columns(these: Spans, offset: int = 0) -> tuple[Ints, Ints]:
    start = np.array([start for start, _ in these], np.int64) + offset
    end = np.array([end for _, end in these], np.int64) + offset
    return start, end


def instants(these: Spans) -> set[int]:
    return {t for start, end in these for t in range(start, end)}


def brute_innermost(these: Spans, t: int) -> tuple[int, int] | None:
    running = [(start, end) for start, end in these if start <= t < end]
    return max(running, key=lambda span: (span[0], -span[1]), default=None)


@given(spans, offsets)
def test_union_covers_the_same_instants_disjointly(these: Spans, offset: int) -> None:
    start, end = intervals.union(*columns(these, offset))
    covered = list(zip((start - offset).tolist(), (end - offset).tolist(), strict=True))
    assert instants(covered) == instants(these)
    assert all(a < b for a, b in covered)
    assert all(left[1] < right[0] for left, right in pairwise(covered))


@given(spans, spans, offsets)
def test_measure_counts_covered_nanoseconds_of_each_window(these: Spans, windows: Spans, offset: int) -> None:
    measured = intervals.measure(intervals.union(*columns(these, offset)), *columns(windows, offset))
    assert measured.tolist() == [len(instants(these) & instants([window])) for window in windows]


@given(spans, spans)
def test_merge_is_union_of_unions(one: Spans, other: Spans) -> None:
    merged = intervals.merge(intervals.union(*columns(one)), intervals.union(*columns(other)))
    assert instants(list(zip(*map(np.ndarray.tolist, merged), strict=True))) == instants(one) | instants(other)


@given(spans, offsets)
def test_innermost_is_the_latest_started_then_the_shortest(these: Spans, offset: int) -> None:
    start, end = columns(these, offset)
    found = intervals.innermost(start, end, np.arange(-1, 45, dtype=np.int64) + offset).tolist()
    assert [these[k] if k >= 0 else None for k in found] == [brute_innermost(these, t) for t in range(-1, 45)]


@given(st.lists(spans, max_size=4), st.sampled_from([1, 1 << 30, 1 << 56]), st.integers(-1, 5), st.integers(-5, 50))
def test_side_by_side_spans_are_found_as_those_of_each_key_alone(
    of_keys: list[Spans], scale: int, key: int, at: int
) -> None:
    """With the largest scale the spans do not fit beside each other, and their order stands for their times."""
    keys = np.repeat(np.arange(len(of_keys)), [len(these) for these in of_keys])
    start, end = columns([(scale * a, scale * b) for these in of_keys for a, b in these])
    axis = intervals.SideBySide(keys, start, end)
    placed = axis.place(keys, start), axis.place(keys, end)
    assert axis.instant(keys, placed[0]).tolist() == start.tolist()
    (row,) = intervals.innermost(*placed, axis.place(np.array([key]), np.array([scale * at])))
    found = None if row < 0 else (start[row] // scale, end[row] // scale)
    assert found == brute_innermost(of_keys[key] if 0 <= key < len(of_keys) else [], at)
    assert row < 0 or keys[row] == key


@given(spans)
def test_innermost_segments_give_each_running_instant_to_its_innermost(these: Spans) -> None:
    cut = intervals.innermost_segments(*columns(these))
    owners = {
        t: these[owner]
        for start, end, owner in zip(*map(np.ndarray.tolist, cut), strict=True)
        for t in range(start, end)
    }
    assert owners == {t: brute_innermost(these, t) for t in instants(these)}


@given(spans, st.integers(1, 5))
def test_groups_apart_share_no_instant_and_hold_all(these: Spans, at_once: int) -> None:
    groups = [group.tolist() for group in intervals.disjoint_groups(*columns(these), at_once)]
    assert sorted(k for group in groups for k in group) == list(range(len(these)))
    running = [instants([these[k] for k in group]) for group in groups]
    assert sum(map(len, running)) == len(instants(these))
    assert all(len(group) >= at_once for group in groups[:-1])


@given(spans, offsets)
def test_earliest_share_gives_each_instant_to_the_earliest_started(these: Spans, offset: int) -> None:
    start, end = intervals.split_overlap_to_earliest(*columns(these, offset))
    own = [set(range(a - offset, b - offset)) for a, b in zip(start.tolist(), end.tolist(), strict=True)]
    for k, span in enumerate(these):
        before = [other for j, other in enumerate(these) if (other[0], j) < (span[0], k)]
        assert own[k] == instants([span]) - instants(before)


@given(spans, spans)
def test_contained_in_some_single_span(these: Spans, outer: Spans) -> None:
    inside = intervals.contained(*columns(these), *columns(outer)).tolist()
    assert inside == [any(a <= start and end <= b for a, b in outer) for start, end in these]


@given(spans)
def test_outermost_keeps_one_of_equals_and_drops_what_another_contains(these: Spans) -> None:
    start, end = columns(these)
    outer = intervals.outermost(start, end).tolist()
    for k, (a, b) in enumerate(these):
        containing = [
            j for j, (c, d) in enumerate(these) if j != k and c <= a and b <= d and ((c, d) != (a, b) or j < k)
        ]
        assert outer[k] == (not containing)


@pytest.mark.parametrize("siblings", [1, 1000])
def test_innermost_with_many_siblings_in_one_parent(siblings: int) -> None:
    start = np.concatenate(([0], np.arange(siblings) * 2 + 1)).astype(np.int64)
    end = np.concatenate(([siblings * 2 + 2], np.arange(siblings) * 2 + 2)).astype(np.int64)
    between = intervals.innermost(start, end, np.arange(siblings, dtype=np.int64) * 2 + 2)
    assert between.tolist() == [0] * siblings


def test_deep_nests_take_no_longer_than_flat_ones() -> None:
    depth = 100_000
    start, end = np.arange(depth), 2 * depth - np.arange(depth)
    before = time.process_time()
    cut = intervals.innermost_segments(start, end)
    assert time.process_time() - before < 10  # half a minute, if each level cost a pass
    assert cut.owner.tolist() == [*range(depth), *reversed(range(depth - 1))]


@given(st.lists(st.tuples(st.integers(-1, 3), st.integers(-1, 1 << 40), st.integers(-1, 2)), max_size=12))
def test_combinations_are_those_of_numpy(rows: list[tuple[int, int, int]]) -> None:
    given_columns = np.array(rows, np.int64).reshape(-1, 3).T
    distinct, index = intervals.combinations(given_columns)
    assert distinct.T.tolist() == sorted(map(list, set(rows)))
    assert distinct[:, index].tolist() == given_columns.tolist()
    assert not rows or distinct.tolist() == np.unique(given_columns, axis=1).tolist()


@given(spans, spans, st.lists(st.integers(-5, 50), max_size=8))
def test_split_cuts_only_what_is_there(these: Spans, others: Spans, cuts: list[int]) -> None:
    whole = intervals.union(*columns(these))
    parts = intervals.split(whole, np.array([*cuts, *(edge for span in others for edge in span)], np.int64))
    pieces = list(zip(parts.start.tolist(), parts.end.tolist(), strict=True))
    assert instants(pieces) == instants(these)
    assert sum(end - start for start, end in pieces) == len(instants(these))
    assert not any(start < cut < end for start, end in pieces for cut in cuts)
    edges = {*whole.start.tolist(), *whole.end.tolist(), *cuts, *(edge for span in others for edge in span)}
    assert {edge for piece in pieces for edge in piece} <= edges
