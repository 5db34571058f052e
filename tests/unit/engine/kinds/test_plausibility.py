"""Device work that cannot have been as the trace says is cut, left out or moved, and said; sound work is unchanged."""

from collections.abc import Collection, Mapping
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given

from perfkit.engine.kinds.plausibility import check_work
from perfkit.engine.trace_context import TraceContext
from perfkit.records.common import Observation
from perfkit.trace.reader import read_trace
from tests.support.traces.every_trace import every_real_trace
from tests.support.traces.generated_traces import Document, device_traces, slow_to_generate
from tests.support.traces.trace_builder import TraceBuilder, write

MS = 10**6
STEP_US = 100_000
Span = tuple[int, int]
Place = tuple[int, int]
"""Step and place of a kernel in it."""


def context_of(builder: TraceBuilder, tmp_path: Path) -> TraceContext:
    return TraceContext(read_trace(builder.write(tmp_path / "rank0.json")), "rank0.json")


def training(
    busy_us: int = 9_000,
    gap_us: int = 1_000,
    late_us: int = 0,
    lost: Collection[Place] = (),
    changed: Mapping[Place, Span] | None = None,
) -> TraceBuilder:
    """Return four steps of 100 ms from step 3 on, each with eight kernels in turn, launched 1 ms apart.

    Args:
        busy_us: length of a kernel.
        gap_us: from one to the next.
        late_us: by how much the device's clock is ahead.
        lost: kernels that are missing.
        changed: by how much single kernels begin late, and their lengths (us).
    """
    builder = TraceBuilder()
    for step, place in product(range(4), range(8)):
        begin, number = step * STEP_US, 100 * step + place + 1
        if not place:
            builder.step(step + 3, begin, STEP_US).op("aten::mm", begin + 50, 60_000)
        builder.launch(number, begin + 100 + place * 1_000, 5)
        if (step, place) not in lost:
            late, length = (changed or {}).get((step, place), (0, busy_us))
            start = begin + 1_000 + place * (busy_us + gap_us) + late_us + late
            builder.kernel("gemm", start, length, number)
    return builder


def compute_ms(context: TraceContext) -> list[float]:
    return [step.exposed_ns.compute / MS for step in context.break_down(with_causes=False)]


def found(context: TraceContext, *codes: str) -> list[Observation]:
    wanted = codes or ("kernels_lost", "impossible_times", "device_clock_differs")
    return [one for one in context.own_findings if one.code in wanted]


def test_sound_work_is_unchanged(tmp_path: Path) -> None:
    context = context_of(training(), tmp_path)
    assert compute_ms(context) == [72.0] * 4
    assert not found(context)


@every_real_trace
def test_real_traces_are_unchanged(path: Path) -> None:
    trace = read_trace(path)
    events = trace.events
    work = check_work(events, trace.recorded_until_ns)
    assert work.events is events
    assert not work.findings
    assert not len(work.lost_ns)


@slow_to_generate
@given(device_traces())
def test_work_that_is_in_order_is_unchanged(tmp_path_factory: pytest.TempPathFactory, document: Document) -> None:
    events = read_trace(write(document, tmp_path_factory.getbasetemp() / "in_order.json")).events
    assert check_work(events).events is events


# ---- lost kernels --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lost", "judged"),
    [
        (list(product((0, 1), range(5))), [5, 6]),
        ([(3, 7)], [3, 4, 5]),
        (list(product((1,), range(8))), [5, 6]),
        ([(1, 0), (3, 0)], [5]),
    ],
    ids=["at the start", "at the end", "in the middle", "in turns"],
)
def test_steps_that_lost_kernels_are_not_judged(tmp_path: Path, lost: list[Place], judged: list[int]) -> None:
    context = context_of(training(lost=lost), tmp_path)
    assert context.steps.number == judged
    assert compute_ms(context) == [72.0] * len(judged)
    (finding,) = found(context)
    assert (finding.values["launches"], finding.values["of"], finding.values["judged"]) == (len(lost), 32, judged)


def test_if_each_step_lost_some_all_are_shown(tmp_path: Path) -> None:
    context = context_of(training(lost=[(step, step) for step in range(4)]), tmp_path)
    assert context.steps.number == [3, 4, 5, 6]
    assert [(one.case, one.values["launches"]) for one in found(context)] == [("all", 4)]


def test_launches_that_are_captured_into_a_graph_lost_nothing(tmp_path: Path) -> None:
    builder = training()
    builder.launch(9_000, 90_000, 5, name="cudaStreamBeginCapture").launch(
        9_002, 90_020, 5, name="cudaStreamEndCapture"
    )
    builder.launch(9_001, 90_010, 5)
    assert not found(context_of(builder, tmp_path))


def test_calls_that_never_have_a_kernel_lost_none(tmp_path: Path) -> None:
    assert not found(context_of(training().launch(9_000, 90_000, 5, name="cudaLaunchHostFunc"), tmp_path))


def test_a_step_whose_annotation_is_lost_is_said(tmp_path: Path) -> None:
    builder = TraceBuilder().step(3, 0, 100).step(5, 200, 100).step(6, 300, 100).op("aten::mm", 10, 50)
    assert [one.values for one in found(context_of(builder, tmp_path), "steps_missing")] == [{"missing": 1}]
    assert not found(context_of(training(), tmp_path), "steps_missing")


# ---- clock of the device -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset_us", [-30_000, -1_500, -95_000, 10_000_000, 50_000, 3_600])
def test_a_clock_that_is_off_is_aligned_and_said(tmp_path: Path, offset_us: int) -> None:
    context = context_of(training(late_us=offset_us), tmp_path)
    assert compute_ms(context) == pytest.approx([72.0] * 4, abs=1)
    (finding,) = found(context)
    assert (finding.code, finding.case) == ("device_clock_differs", "behind" if offset_us < 0 else "ahead")
    # The shortest way from a launch to its work, 0.9 ms, is not known.
    assert finding.values["ns"] == pytest.approx(abs(offset_us) * 1_000, abs=0.9 * MS)


def idle_launches(late_us: float = 0, faster: float = 0) -> TraceBuilder:
    """Return two steps of 20 kernels, each launched on an idle device, by a clock that is ahead and faster."""
    builder = TraceBuilder()
    for number in range(40):
        begin = 1_000 * number
        if number % 20 == 0:
            builder.step(3 + number // 20, begin, 20_000).op("aten::mm", begin + 1, 19_000)
        start = round((begin + 115) * (1 + faster) + late_us)
        builder.launch(number + 1, begin + 100, 10).kernel("gemm", start, 200, number + 1)
    return builder


def test_many_launches_on_an_idle_device_tell_by_how_little_its_clock_is_ahead(tmp_path: Path) -> None:
    assert not found(context_of(idle_launches(), tmp_path))
    (finding,) = found(context_of(idle_launches(late_us=50), tmp_path))
    assert (finding.code, finding.case, finding.severity) == ("device_clock_differs", "ahead", "info")
    assert finding.values["ns"] == 65_000


def test_a_clock_that_drifts_is_said(tmp_path: Path) -> None:
    (finding,) = found(context_of(idle_launches(faster=0.01), tmp_path))
    assert (finding.code, finding.case) == ("device_clock_differs", "drifts")
    assert finding.values["ns"] == 300_000


def test_a_clock_that_is_ahead_of_all_waits_is_aligned_though_no_launch_found_the_device_idle(tmp_path: Path) -> None:
    builder = training(late_us=10_000_000).launch(9_000, 310_000, 80_500, name="cudaDeviceSynchronize")
    context = context_of(builder.kernel("without a launch", 10_000_500, 400), tmp_path)
    assert compute_ms(context) == pytest.approx([72.0] * 4, abs=1)
    (finding,) = found(context)
    assert (finding.code, finding.case) == ("device_clock_differs", "ahead")


def test_work_may_begin_late_if_the_device_was_busy_with_earlier_work(tmp_path: Path) -> None:
    builder = training(late_us=30_000).kernel("before", 20, 30_000)
    assert not found(context_of(builder, tmp_path), "device_clock_differs")


# ---- times of single activities ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "length_us", "gap_ms"),
    [((1, 2), 1_600_000, 1), ((0, 0), 35_000, 1), ((3, 4), 40_000, 1), ((2, 7), 150_000, 21)],
)
def test_work_that_overruns_the_next_of_its_stream_ends_where_that_begins(
    tmp_path: Path, at: tuple[int, int], length_us: int, gap_ms: int
) -> None:
    context = context_of(training(changed={at: (0, length_us)}), tmp_path)
    assert sum(compute_ms(context)) == 4 * 72 + gap_ms
    (finding,) = found(context)
    assert (finding.code, finding.values["activities"], finding.values["of"]) == ("impossible_times", 1, 32)


def test_of_one_that_runs_over_one_other_neither_is_known_to_be_wrong(tmp_path: Path) -> None:
    context = context_of(training(changed={(1, 2): (0, 20_000)}), tmp_path)
    assert compute_ms(context) == [72.0, 74.0, 72.0, 72.0]
    assert [(one.code, one.severity) for one in found(context)] == [("impossible_times", "warning")]


def test_overlap_with_the_next_of_a_stream_alone_is_possible(tmp_path: Path) -> None:
    """A kernel may begin before the one that it depends on has ended (programmatic dependent launch)."""
    assert not found(context_of(training(busy_us=10_500, gap_us=-500), tmp_path))


@pytest.mark.parametrize("by_us", [-45_000, 10_000_000, 25_000])
def test_a_single_activity_in_another_order_than_its_launch_is_left_out(tmp_path: Path, by_us: int) -> None:
    context = context_of(training(changed={(1, 5): (by_us, 9_000)}), tmp_path)
    assert compute_ms(context) == pytest.approx([72.0, 63.0, 72.0, 72.0], abs=2)
    assert [(one.code, one.values["activities"]) for one in found(context)] == [("impossible_times", 1)]


def test_a_kernel_that_is_in_the_trace_twice_counts_once(tmp_path: Path) -> None:
    builder = training().kernel("gemm", 1_000, 9_000, 1).kernel("gemm", 250_000, 300, 1)
    context = context_of(builder, tmp_path)
    assert compute_ms(context) == [72.0] * 4
    assert context.device.is_compute.sum() == 32
    assert [one.values["activities"] for one in found(context)] == [2]


@pytest.mark.parametrize(("late_us", "length_us", "compute"), [(0, 10**6, 79.0), (10**6, 9_000, 63.0)])
def test_the_last_work_does_not_outlast_the_recording(
    tmp_path: Path, late_us: int, length_us: int, compute: float
) -> None:
    """It ended when the last step did, at 400 ms; the last kernel begins 29 ms before it."""
    document = training(changed={(3, 7): (late_us, length_us)}).to_dict()
    for event in document["traceEvents"]:
        if event["name"] == "Record Window End":
            event["ts"] = 4 * STEP_US
    context = TraceContext(read_trace(write(document, tmp_path / "rank0.json")), "rank0.json")
    assert compute_ms(context) == pytest.approx([72.0, 72.0, 72.0, compute + 13 * (length_us > late_us)], abs=1)
    assert [(one.code, one.values["activities"]) for one in found(context)] == [("impossible_times", 1)]


def test_a_mark_before_most_of_the_work_is_no_end_of_the_recording(tmp_path: Path) -> None:
    document = training().to_dict()
    for event in document["traceEvents"]:
        if event["name"] == "Record Window End":
            event["ts"] = STEP_US
    context = TraceContext(read_trace(write(document, tmp_path / "rank0.json")), "rank0.json")
    assert compute_ms(context) == [72.0] * 4
    assert not found(context)


def test_if_one_call_launched_nearly_all_the_launches_are_unknown(tmp_path: Path) -> None:
    document = training().to_dict()
    for event in document["traceEvents"]:
        if "correlation" in event.get("args", {}):
            event["args"]["correlation"] = 5
    context = TraceContext(read_trace(write(document, tmp_path / "rank0.json")), "rank0.json")
    assert (context.device.launch_row < 0).all()
    assert compute_ms(context) == [72.0] * 4
    assert [one.severity for one in found(context, "launches_missing")] == ["warning"]


def test_work_of_one_graph_may_run_at_once(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 1_000).launch(1, 10, 5, name="cudaGraphLaunch")
    builder.kernel("long", 20, 500, 1).kernel("gemm", 30, 10, 1).kernel("gemm", 50, 10, 1).kernel("gemm", 50, 10, 1)
    assert not found(context_of(builder, tmp_path))


def test_work_of_graphs_runs_in_the_order_of_their_launches(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 1_000)
    for graph in range(4):
        begin = 200 * graph
        builder.launch(graph + 1, begin + 5, 5, name="cudaGraphLaunch").kernel("long", begin + 20, 100, graph + 1)
        builder.kernel("gemm", begin + 30, 10, graph + 1)
    assert not found(context_of(builder, tmp_path))
    (finding,) = found(context_of(builder.kernel("gemm", 630, 10, 1), tmp_path))
    assert (finding.code, finding.values["activities"]) == ("impossible_times", 1)


def test_work_cannot_end_after_the_call_that_waited_for_it(tmp_path: Path) -> None:
    builder = training(changed={(3, 7): (0, 10**7)})
    builder.launch(9_000, 310_000, 80_500, name="cudaDeviceSynchronize")
    assert not found(context_of(training().launch(9_000, 310_000, 80_500, name="cudaDeviceSynchronize"), tmp_path))
    context = context_of(builder, tmp_path)
    assert compute_ms(context) == pytest.approx([72.0] * 4, abs=11)
    assert [one.values["activities"] for one in found(context)] == [1]


def test_work_without_a_launch_cannot_begin_after_the_last_wait(tmp_path: Path) -> None:
    builder = training().launch(9_000, 310_000, 80_500, name="cudaDeviceSynchronize").kernel("gemm", 10**7, 5)
    context = context_of(builder, tmp_path)
    assert compute_ms(context) == [72.0] * 4
    assert [one.values["activities"] for one in found(context)] == [1]


def test_a_stream_without_any_order_is_said_and_unchanged(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 1_000)
    for place in range(8):
        builder.launch(place + 1, 10 + place, 1).kernel("gemm", 100 + 10 * (7 - place), 5, place + 1)
    context = context_of(builder, tmp_path)
    assert compute_ms(context) == [0.04]
    assert [(one.code, one.values["removed_ns"]) for one in found(context)] == [("impossible_times", 0)]
