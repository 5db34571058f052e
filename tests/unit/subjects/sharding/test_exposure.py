"""All-gathers of sharded parameters: how much of each is hidden, and what exposes the rest, in exact cases."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfkit.records.per_rank.sharding import ROOT_LAYER, ParameterGathers
from tests.support.traces.sharded_traces import ELEMENTS, ShardedTrace

US = 1000
CAUSES = ("late", "queued", "held", "first", "short", "synchronous")


def causes(row: ParameterGathers) -> dict[str, int]:
    """Return the causes of exposed time that are not zero, in microseconds."""
    split = {cause: getattr(row, f"{cause}_ns") // US for cause in CAUSES}
    return {cause: us for cause, us in split.items() if us}


def forward() -> ShardedTrace:
    """A forward pass of which the root's all-gather, at 10 to 30, has nothing to overlap with."""
    return ShardedTrace().forward(0, 900).gather(None, 5, 10, 20).compute(8, 30, 100)


def test_the_first_all_gather_has_nothing_to_overlap_with(tmp_path: Path) -> None:
    rows = forward().gather("layers.0", 9, 40, 60).gathers(tmp_path)
    assert causes(rows[ROOT_LAYER]) == {"first": 20}
    assert (rows[ROOT_LAYER].exposed_ns, rows[ROOT_LAYER].bytes, rows[ROOT_LAYER].phase) == (20 * US, 4000, "forward")


def test_a_hidden_one_has_no_cause(tmp_path: Path) -> None:
    row = forward().gather("layers.0", 9, 40, 60).gathers(tmp_path)["layers.0"]
    assert (row.total_ns, row.exposed_ns, row.late, causes(row)) == (60 * US, 0, 0, {})


def test_issued_after_the_compute_that_could_have_hidden_it(tmp_path: Path) -> None:
    """Issued when the queue was free, at 30, it would have been hidden by as much as it is called late."""
    rows = forward().gather("layers.0", 125, 130, 60).compute(9, 190, 50).gathers(tmp_path)
    assert causes(rows["layers.0"]) == {"late": 60}
    assert rows["layers.0"].late == 1
    earlier = forward().gather("layers.0", 30, 30, 60).compute(9, 130, 50).gathers(tmp_path)
    assert earlier["layers.0"].exposed_ns == rows["layers.0"].exposed_ns - rows["layers.0"].late_ns == 0


def test_an_all_gather_is_late_only_as_far_as_compute_could_have_hidden_it(tmp_path: Path) -> None:
    row = forward().gather("layers.0", 125, 130, 150).compute(9, 280, 50).gathers(tmp_path)["layers.0"]
    # The compute before its issue lasts from 30 to 125, and goes on until it starts; the rest stays exposed.
    assert causes(row) == {"late": 95, "held": 5, "short": 50}
    earlier = forward().gather("layers.0", 30, 30, 150).compute(9, 180, 50).gathers(tmp_path)["layers.0"]
    assert earlier.exposed_ns == 50 * US


def test_behind_a_reduction_in_its_queue(tmp_path: Path) -> None:
    trace = ShardedTrace().backward(0, 900).compute(5, 10, 190)
    trace.reduce("layers.1", 20, 30, 170).gather("layers.0", 40, 200, 50).compute(45, 250, 50)
    assert causes(trace.gathers(tmp_path)["layers.0"]) == {"queued": 50}


def test_behind_compute_that_it_need_not_wait_for(tmp_path: Path) -> None:
    """Its queue is free from 30 on, it is issued at 40, and starts with the end of compute in another stream."""
    row = forward().gather("layers.0", 40, 130, 30).compute(9, 160, 50).gathers(tmp_path)["layers.0"]
    assert causes(row) == {"late": 10, "held": 20}
    assert row.late == 1


def test_several_causes_add_up_exactly(tmp_path: Path) -> None:
    trace = ShardedTrace().forward(0, 900).gather(None, 5, 10, 20).compute(8, 30, 25).compute(9, 65, 5)
    row = trace.gather("layers.0", 60, 80, 60).compute(10, 140, 9).gathers(tmp_path)["layers.0"]
    assert causes(row) == {"late": 25, "held": 5, "short": 30}


def test_compute_of_an_earlier_pass_could_not_hide_it(tmp_path: Path) -> None:
    """The optimizer's kernels run while the host has begun the next forward: its parameters are not yet there."""
    trace = ShardedTrace().compute(5, 10, 190).forward(20, 800).gather("layers.0", 30, 200, 40).compute(35, 240, 100)
    assert causes(trace.gathers(tmp_path)["layers.0"]) == {"first": 40}


def test_few_late_nanoseconds_do_not_make_it_late(tmp_path: Path) -> None:
    trace = forward().gather("layers.0", 35, 35, 100).compute(9, 135, 50)
    row = trace.gathers(tmp_path)["layers.0"]
    assert causes(row) == {"late": 5}
    assert row.late == 0


def test_gathers_of_backward_and_what_they_hold(tmp_path: Path) -> None:
    """Two backward passes gather two layers each; the root's parameters stay gathered."""
    trace = ShardedTrace().forward(0, 90).gather(None, 5, 10, 20).backward(100, 100).backward(300, 100)
    for start in (100, 300):
        trace.gather("layers.1", start + 1, start + 2, 10, thread=2).gather("layers.0", start + 20, start + 22, 10)
    sharded = trace.summary(tmp_path).sharded_parameters
    assert sharded is not None
    assert sharded.regathered_bytes == 2 * 4 * ELEMENTS
    assert {(row.phase, row.layer, row.count) for row in sharded.gathers} == {
        ("forward", ROOT_LAYER, 1),
        ("backward", "layers.0", 2),
        ("backward", "layers.1", 2),
    }


def test_the_tail_of_backward(tmp_path: Path) -> None:
    """A reduction is exposed after the last compute issued before it; what copies its result counts for nothing."""
    trace = (
        ShardedTrace().backward(0, 900).gather("layers.0", 1, 2, 3).compute(5, 10, 90).reduce("layers.1", 20, 30, 20)
    )
    trace.reduce("layers.0", 60, 80, 60).compute(70, 140, 5)
    sharded = trace.summary(tmp_path).sharded_parameters
    assert sharded is not None
    assert (sharded.reductions, sharded.reductions_ns) == (2, 80 * US)
    assert sharded.reductions_exposed_ns == sharded.tail_ns == 40 * US


def test_exposed_in_the_middle_of_backward_is_no_tail(tmp_path: Path) -> None:
    trace = (
        ShardedTrace().backward(0, 900).gather("layers.0", 1, 2, 3).compute(5, 10, 40).reduce("layers.1", 20, 30, 50)
    )
    trace.compute(25, 80, 50).reduce("layers.0", 60, 80, 50)
    sharded = trace.summary(tmp_path).sharded_parameters
    assert sharded is not None
    assert (sharded.reductions_exposed_ns, sharded.tail_ns) == (30 * US, 0)


@st.composite
def streams(draw: st.DrawFn) -> dict[str, Any]:
    """Return spans of compute and of all-gathers, each in order, and when each all-gather was issued."""

    def spans(count: int) -> list[tuple[int, int]]:
        at, found = 1, []
        for _ in range(count):
            begin = at + draw(st.integers(0, 30))
            at = begin + draw(st.integers(1, 30))
            found.append((begin, at))
        return found

    gathers, issues = spans(draw(st.integers(1, 5))), [0]
    for begin, _ in gathers:
        issues.append(draw(st.integers(issues[-1] + 1, begin)))
    return {"compute": spans(draw(st.integers(0, 5))), "gathers": gathers, "issues": issues[1:]}


def expected(compute: list[tuple[int, int]], gathers: list[tuple[int, int]], issues: list[int]) -> list[dict[str, int]]:
    """Return the causes of each all-gather by counting microseconds."""
    busy = {at for begin, end in compute for at in range(begin, end)}
    rows, free = [], 0
    for (begin, end), issued in zip(gathers, issues, strict=True):
        rest = len(set(range(begin, end)) - busy)
        row = {}
        windows = {"late": (free, issued), "queued": (issued, free), "held": (max(issued, free), begin)}
        for cause, (first, last) in windows.items():
            row[cause] = min(rest, len(busy & set(range(first, min(last, begin)))))
            rest -= row[cause]
        row["short" if busy & set(range(begin)) else "first"] = rest
        rows.append({cause: us for cause, us in row.items() if us})
        free = end
    return rows


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=20)
@given(streams())
def test_the_split_equals_counted_microseconds(tmp_path: Path, given_streams: dict[str, Any]) -> None:
    trace = ShardedTrace().forward(0, 900)
    for begin, end in given_streams["compute"]:
        trace.compute(1, begin, end - begin)
    pairs = zip(given_streams["gathers"], given_streams["issues"], strict=True)
    for number, ((begin, end), issued) in enumerate(pairs):
        trace.gather(f"layers.{number}", issued, begin, end - begin)
    rows = trace.gathers(tmp_path)
    assert [causes(rows[f"layers.{k}"]) for k in range(len(rows))] == expected(**given_streams)
    assert all(sum(causes(row).values()) * US == row.exposed_ns for row in rows.values())


@pytest.mark.parametrize("overlap", [True, False])
def test_without_all_gathers_of_parameters_nothing_is_said(tmp_path: Path, *, overlap: bool) -> None:
    trace = ShardedTrace().backward(0, 900).compute(5, 10, 90 if overlap else 5).reduce("layers.0", 20, 30, 20)
    assert trace.summary(tmp_path).sharded_parameters is None
