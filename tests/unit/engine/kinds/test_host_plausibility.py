"""Host events that cannot have been as the trace says count once or are cut, and it is said; others are unchanged."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.engine.kinds.host_plausibility import OVERRUNNING, REPEATED, SHIFTED, check_host
from perfkit.engine.trace_context import TraceContext
from perfkit.trace.events import Repair
from perfkit.trace.reader import read_trace
from tests.support.traces.every_trace import every_real_trace
from tests.support.traces.trace_builder import TraceBuilder, write

THREAD = 1


def training() -> TraceBuilder:
    """Return a step of 1 ms with six operators, two of them within others, and a collective of gloo."""
    builder = TraceBuilder(world_size=2, backend="gloo").step(3, 0, 1_000)
    for place in range(4):
        builder.op("aten::linear", 10 + 200 * place, 100).op("aten::addmm", 20 + 200 * place, 50)
    return builder.gloo("gloo:all_reduce", 300, 60)


def context_of(document: dict[str, Any], tmp_path: Path) -> TraceContext:
    return TraceContext(read_trace(write(document, tmp_path / "rank0.json")), "rank0.json")


def self_times_us(context: TraceContext) -> dict[str, tuple[int, int]]:
    return {row.name: (row.count, row.total_ns // 1_000) for row in context.operators}


def repaired(context: TraceContext) -> dict[Repair, int]:
    return context.trace.repaired


SOUND = {"aten::addmm": (4, 200), "aten::linear": (4, 200)}


@every_real_trace
def test_real_traces_are_unchanged(path: Path) -> None:
    trace = read_trace(path)
    assert check_host(trace) is trace


@pytest.mark.parametrize("by", [1, 3])
def test_events_that_are_in_the_trace_again_count_once(tmp_path: Path, by: int) -> None:
    document = training().to_dict()
    document["traceEvents"] = document["traceEvents"] * (1 + by)
    context = context_of(document, tmp_path)
    assert self_times_us(context) == SOUND
    assert len(context.collectives.start) == 1
    assert repaired(context) == {REPEATED: 10 * by}
    assert [one.code for one in context.own_findings if one.code.startswith("repaired")] == ["repaired_events"]


def test_an_operator_that_calls_itself_within_a_microsecond_is_none(tmp_path: Path) -> None:
    builder = training()
    for number in (7, 8):
        builder.op("aten::zeros", 900, 4, args={"External id": number})
    context = context_of(builder.to_dict(), tmp_path)
    assert self_times_us(context) == SOUND | {"aten::zeros": (2, 4)}
    assert not repaired(context)


@pytest.mark.parametrize(
    ("at", "start", "length", "expected", "cut"),
    [
        ("aten::linear", 10, 230, {"aten::linear": (4, 300)}, 1),
        ("aten::addmm", 20, 205, {"aten::addmm": (4, 240)}, 1),
        ("aten::addmm", 20, 700, {}, 1),
        ("aten::linear", 10, 201, {}, 0),
        ("aten::addmm", 20, 91, {}, 0),
    ],
    ids=["over the next", "over its caller and into the next", "over several", "rounded", "rounded in its caller"],
)
def test_what_runs_on_when_its_thread_has_gone_on_is_cut(
    tmp_path: Path, at: str, start: int, length: int, expected: dict[str, tuple[int, int]], cut: int
) -> None:
    document = training().to_dict()
    (event,) = (one for one in document["traceEvents"] if (one["name"], one.get("ts")) == (at, start))
    event["dur"] = length
    context = context_of(document, tmp_path)
    found = self_times_us(context)
    assert {name: found[name] for name in expected} == expected
    assert repaired(context).get(OVERRUNNING, 0) == cut


def numbered() -> dict[str, Any]:
    builder = TraceBuilder().step(3, 0, 1_000)
    for number in range(20):
        builder.op("aten::mm", 50 * number, 10, args={"External id": number + 1})
    return builder.to_dict()


def test_an_operator_that_is_there_again_at_another_time_counts_once(tmp_path: Path) -> None:
    document = numbered()
    operators = [one for one in document["traceEvents"] if one["name"] == "aten::mm"]
    document["traceEvents"] += [{**one, "ts": one["ts"] + 425} for one in operators[3:8]]
    context = context_of(document, tmp_path)
    assert self_times_us(context) == {"aten::mm": (20, 200)}
    assert repaired(context) == {REPEATED: 5}


def test_a_second_recording_repeats_nothing(tmp_path: Path) -> None:
    document = numbered()
    events = [one for one in document["traceEvents"] if one["ph"] == "X"]
    document["traceEvents"] += [{**one, "ts": one["ts"] + 2_000} for one in events]
    context = context_of(document, tmp_path)
    assert self_times_us(context) == {"aten::mm": (40, 400)}
    assert not repaired(context)


@pytest.mark.parametrize(
    ("at", "by_ms", "longer_ms", "overlapping"),
    [(1, 6, 0, 1), (2, -7, 0, 1), (0, 4, 0, 1), (1, 0, 5, 1), (2, 0, -3, 0)],
    ids=["later", "earlier", "the first", "longer", "with a gap that is possible"],
)
def test_a_step_that_overlaps_the_next_is_said(
    tmp_path: Path, at: int, by_ms: float, longer_ms: float, overlapping: int
) -> None:
    builder = TraceBuilder()
    for step in range(4):
        start = 10_000 * step + (round(1_000 * by_ms) if step == at else 0)
        builder.step(step + 3, start, 10_000 + (round(1_000 * longer_ms) if step == at else 0))
        builder.op("aten::mm", 10_000 * step + 9_950, 10)
    assert repaired(context_of(builder.to_dict(), tmp_path)).get(SHIFTED, 0) == overlapping


spans = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 10)), min_size=1, max_size=12)


@given(spans)
def test_what_is_cut_nests(tmp_path_factory: pytest.TempPathFactory, spans: list[tuple[int, int]]) -> None:
    builder = TraceBuilder().step(0, 0, 400)
    for number, (start, length) in enumerate(spans):
        builder.op(f"aten::op{number}", 10 * start, 10 * length)
    events = check_host(read_trace(builder.write(tmp_path_factory.getbasetemp() / "spans.json"))).events
    own = [row for row, name in enumerate(events.name.tolist()) if events.names[name].startswith("aten::")]
    columns = zip(events.start_ns[own].tolist(), events.end_ns[own].tolist(), strict=True)
    ordered = sorted(columns, key=lambda span: (span[0], -span[1]))
    for place, (start, end) in enumerate(ordered):
        for later, until in ordered[place + 1 :]:
            assert min(end - later, until - end, later - start) <= 0
