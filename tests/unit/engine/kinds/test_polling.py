"""A host that asks in a loop whether the device is done waits for it, as if it had called for that."""

from pathlib import Path

import pytest

from perfkit.engine.kinds.polling import merge_polls
from perfkit.engine.kinds.runtime_calls import POLLING
from perfkit.engine.trace_context import TraceContext
from perfkit.trace.events import EventKind
from perfkit.trace.reader import read_trace
from tests.support.traces.every_trace import every_real_trace
from tests.support.traces.trace_builder import TraceBuilder

QUERIES = ("cudaEventQuery", "cudaStreamQuery", "hipEventQuery", "hipStreamQuery")
MS = 10**6


def step(name: str, spans: list[tuple[int, int]], tid: int = 1) -> TraceBuilder:
    """Return a step in which a kernel runs from 1 to 51 ms, and the host makes calls (us) after it launched it."""
    builder = TraceBuilder().step(0, 0, 100_000).op("aten::mm", 50, 100).launch(1, 100, 5)
    builder.kernel("gemm", 1_000, 50_000, 1)
    for number, (begin, end) in enumerate(spans):
        builder.launch(10 + number, begin, end - begin, tid, name=name)
    return builder.op("aten::add", 80_000, 10_000).launch(5, 80_100, 5).kernel("add", 80_200, 100, 5)


def context_of(builder: TraceBuilder, tmp_path: Path) -> TraceContext:
    return TraceContext(read_trace(builder.write(tmp_path / "rank0.json")), "rank0.json")


@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("every_us", [10, 50, 2_000])
def test_a_loop_of_queries_is_one_wait(tmp_path: Path, name: str, every_us: int) -> None:
    polls = [(at, at + 3) for at in range(1_200, 77_000, every_us)]
    context = context_of(step(name, polls), tmp_path)
    waited = context_of(step("cudaStreamSynchronize", [(1_200, polls[-1][1])]), tmp_path)
    (cause,) = (one.idle_ns.synchronisation for one in context.break_down(with_causes=True))
    assert cause == pytest.approx(26 * MS, abs=2 * MS)
    assert context.break_down(with_causes=True) == waited.break_down(with_causes=True)
    assert [context.events.names[at] for at in context.events.name[context.events.kind == EventKind.LAUNCH]].count(
        name + POLLING
    ) == 1


@pytest.mark.parametrize(
    ("spans", "tid"),
    [
        ([(1_200, 1_203)], 1),
        ([(at, at + 2) for at in range(1_200, 1_290, 10)], 1),
        ([(at, at + 2) for at in range(1_200, 70_000, 50)], 9),
    ],
    ids=["one", "the allocator's", "of a thread that launches nothing"],
)
def test_queries_that_wait_for_nothing_are_unchanged(tmp_path: Path, spans: list[tuple[int, int]], tid: int) -> None:
    events = read_trace(step("cudaEventQuery", spans, tid).write(tmp_path / "rank0.json")).events
    assert merge_polls(events) is events


def test_a_loop_ends_where_the_host_goes_on(tmp_path: Path) -> None:
    polls = [(at, at + 3) for at in range(1_200, 30_000, 50)]
    builder = step("cudaEventQuery", polls + [(at + 40_000, at + 40_003) for at, _ in polls]).op(
        "aten::mul", 35_000, 20
    )
    names = context_of(builder, tmp_path).events
    spans = [
        (names.end_ns[row] - names.start_ns[row]) / MS
        for row in names.rows(EventKind.LAUNCH).tolist()
        if names.names[names.name[row]].endswith(POLLING)
    ]
    assert spans == pytest.approx([28.753, 28.753], abs=0.1)


@every_real_trace
def test_real_traces_are_unchanged(path: Path) -> None:
    events = read_trace(path).events
    assert merge_polls(events) is events
