"""Timelines of a few steps for the page: they are the analysis's own numbers, of the right ranks and steps."""

import shutil
from pathlib import Path
from typing import Any

import pytest

import perfkit
from perfkit.base.parsing import Ranges
from perfkit.engine.runs.drawn_steps import chosen_steps
from perfkit.errors import UsageError
from perfkit.records.common import CATEGORIES
from perfkit.records.cross_rank import CrossRankSummary, Straggler
from perfkit.records.per_rank.idle import CAUSE_WORDS, CAUSES
from perfkit.records.per_run.step_timeline import StepTimeline, TimelineRow
from perfkit.records.report import Report
from perfkit.records.run import RunReport
from perfkit.tables.labels import LONG
from perfkit.tools.merge import step_rows, step_timelines
from perfkit.tools.merge.step_timelines import MOST_RUNS, with_step_timelines
from tests.support.reports.report_builders import MS, make_rank, make_report, make_run, make_step
from tests.support.traces.trace_builder import TraceBuilder

ROOT = Path(__file__).parents[4]
SAMPLE = ROOT / "traces" / "sample-hdf5"
TRACES = ROOT / "tests" / "data" / "traces"


def timelines(report: Report) -> list[StepTimeline]:
    (run,) = with_step_timelines(report).runs
    return run.step_timelines


def sums(timeline: StepTimeline, lane: str) -> dict[str, int]:
    (row,) = [row for row in timeline.rows if row.lane == lane]
    found: dict[str, int] = {}
    for name, ns in zip(row.name, row.duration_ns, strict=True):
        found[timeline.names[name]] = found.get(timeline.names[name], 0) + ns
    return found


@pytest.mark.parametrize("folder", [SAMPLE, TRACES / "nccl-metadata-1of2", TRACES / "mi300-resnet-ddp-1of8"])
def test_categories_and_causes_add_up_to_the_step(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_rows, "MOST_CELLS", 10**6)
    monkeypatch.setattr(step_rows, "MOST_PIECES", 10**6)
    report = perfkit.analyze(folder)
    steps = {(rank.rank, step.step): step for rank in report.runs[0].ranks for step in rank.steps}
    drawn = timelines(report)
    assert drawn
    for timeline in drawn:
        step = steps[timeline.rank, timeline.step]
        exposed = {LONG[name]: ns for name in CATEGORIES if (ns := getattr(step.exposed_ns, name))}
        assert sums(timeline, "category") == exposed
        assert timeline.cell_ns is None
        by_cause = dict.fromkeys(CAUSES, 0)
        words = {text: cause for cause, text in CAUSE_WORDS.items()}
        for text, ns in sums(timeline, "idle").items():
            by_cause[words[text.partition(": ")[0]]] += ns
        assert by_cause == {cause: getattr(step.idle_ns, cause) for cause in CAUSES}


def test_a_row_is_disjoint_and_within_the_step() -> None:
    for timeline in timelines(perfkit.analyze(SAMPLE)):
        for row in timeline.rows:
            ends = [start + ns for start, ns in zip(row.start_ns, row.duration_ns, strict=True)]
            assert row.start_ns[0] >= 0
            assert ends[-1] <= timeline.window_ns
            assert all(end <= start for end, start in zip(ends, row.start_ns[1:], strict=False))
            assert all(row.duration_ns)


def test_cells_take_what_took_most_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_rows, "MOST_CELLS", 4)
    trace = TraceBuilder(rank=0, world_size=1, backend="gloo").step(1, 0, 1000)
    for start in range(0, 400, 100):  # 60 of each 100 us; then nothing, and operators that take most of a cell
        trace.op("aten::mm", start, 60)
    trace.op("aten::add", 760, 130).op("aten::add", 900, 50)
    (timeline,) = timelines(perfkit.analyze(trace.write(tmp_path / "rank0.json")))
    assert timeline.cell_ns == 250_000
    assert rows(timeline, "category") == [
        ("where the time goes", [("compute", 0, 250), ("idle", 250, 500), ("compute", 750, 250)])
    ]


def test_the_longest_slices_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    report = perfkit.analyze(SAMPLE)
    whole = timelines(report)[0]
    monkeypatch.setattr(step_rows, "MOST_EVENTS", 20)
    short = timelines(report)[0]

    def host(timeline: StepTimeline) -> list[int]:
        rows = [row for row in timeline.rows if row.lane in ("annotation", "operator")]
        return sorted((ns for row in rows for ns in row.duration_ns), reverse=True)

    assert host(short) == host(whole)[:20]
    assert short.left_out - whole.left_out == len(host(whole)) - 20


def device_trace(path: Path) -> Path:
    """A step of 1 ms: a copy, a kernel, waiting for the host, a collective."""
    builder = TraceBuilder(rank=0, world_size=2).step(1, 0, 1000).annotation("forward", 50, 600)
    builder.launch(1, 60, 10, name="cudaMemcpyAsync").memcpy(80, 20, 1)
    builder.op("aten::mm", 90, 20).launch(2, 95, 5).kernel("gemm", 110, 190, 2)
    builder.op("aten::relu", 480, 15).launch(3, 490, 5).kernel("relu", 500, 100, 3)
    builder.launch(4, 600, 10).kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 620, 180, 4, stream=20)
    return builder.write(path)


def rows(timeline: StepTimeline, lane: str) -> list[tuple[str, list[tuple[str, int, int]]]]:
    def slices(row: TimelineRow) -> list[tuple[str, int, int]]:
        columns = zip(row.name, row.start_ns, row.duration_ns, strict=True)
        return [(timeline.names[name], start // 1000, ns // 1000) for name, start, ns in columns]

    return [(row.title, slices(row)) for row in timeline.rows if row.lane == lane]


def test_what_runs_on_a_device(tmp_path: Path) -> None:
    (timeline,) = timelines(perfkit.analyze(device_trace(tmp_path / "rank0.json")))
    assert rows(timeline, "copy") == [("copies", [("Memcpy HtoD (Pageable -> Device)", 80, 20)])]
    assert rows(timeline, "compute") == [("compute, stream 1", [("gemm", 110, 190), ("relu", 500, 100)])]
    assert rows(timeline, "communication") == [("communication", [("all_reduce", 620, 180)])]
    assert rows(timeline, "annotation") == [
        ("main thread, annotations", [("ProfilerStep#1", 0, 1000)]),
        ("main thread, annotations", [("forward", 50, 600)]),
    ]
    ((_, idle),) = rows(timeline, "idle")
    assert [text for text, start, ns in idle if start <= 400 < start + ns] == ["host work: forward"]
    assert timeline.left_out == 0


def with_late_rank(late: int | None) -> RunReport:
    """Four ranks of three steps; in step 7 all take longer, rank 3 computes most, and `late` is the straggler."""
    ranks = [
        make_rank(
            number,
            [
                make_step(step, compute=(60 + number + 40 * (step == 7)) * MS, communication=(20 - number) * MS)
                for step in (5, 6, 7)
            ],
        )
        for number in range(4)
    ]
    shared: dict[str, Any] = {"category": "compute", "lag_ns": 9 * MS, "share": 0.1, "gain_ns": 0}
    stragglers = [] if late is None else [Straggler(rank=late, steps_late=3, steps_last=3, steps=3, **shared)]
    found = CrossRankSummary(collectives=[], rank_waits=[], matched=0, unmatched=0, stragglers=stragglers)
    return make_run(ranks=ranks, cross_rank=found)


@pytest.mark.parametrize(("late", "first"), [(None, 3), (2, 2)])
def test_the_straggler_comes_first_with_its_longest_and_a_median_step(late: int | None, first: int) -> None:
    run = with_late_rank(late)
    (slow, steps), (typical, _) = chosen_steps(run.ranks, run.cross_rank)
    assert (slow.rank, typical.rank) == (first, 1)
    assert [step.step for step in steps] == [5, 7]


def test_without_traces_there_are_none() -> None:
    run = make_run()
    assert timelines(make_report(run)) == []
    assert with_step_timelines(make_report(*[run] * (MOST_RUNS + 1))).runs == [run] * (MOST_RUNS + 1)


def test_names_are_cut(tmp_path: Path) -> None:
    name = "x" * 5000
    builder: Any = TraceBuilder(rank=0, world_size=1).step(1, 0, 1000).op(name, 10, 900)
    (timeline,) = timelines(perfkit.analyze(builder.write(tmp_path / "rank0.json")))
    assert "x" * 200 in timeline.names
    assert name not in timeline.names


def test_steps_can_be_chosen() -> None:
    page_steps = Ranges("--steps", "2,4")
    report = perfkit.analyze(ROOT / "traces" / "sample-memory", page_steps=page_steps)
    (run,) = with_step_timelines(report, steps=page_steps).runs
    assert [(one.rank, one.step) for one in run.step_timelines] == [(1, 2), (1, 4), (0, 2), (0, 4)]
    assert {one.step for one in run.linked_collectives} == {2, 4}
    linked = {place for one in run.step_timelines for row in one.rows for place in row.link}
    assert linked - {-1} == set(range(len(run.linked_collectives)))


@pytest.mark.parametrize(
    ("steps", "runs", "message"),
    [
        ("5,8", 1, r"--steps 8: no such step of example; existing: 5 to 7"),
        ("4-6", 1, r"--steps 4: no such step of example; existing: 5 to 7"),
        ("5-7", 1, r"--steps: 3 steps of example, and a page has the timelines of at most 2"),
        ("5", MOST_RUNS + 1, r"--steps: a page of 5 runs has no timelines: give at most 4 runs"),
    ],
)
def test_steps_that_a_page_cannot_have_are_refused(
    steps: str, runs: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_timelines, "MOST_STEPS", 2)
    report = make_report(*[with_late_rank(None)] * runs)
    with pytest.raises(UsageError, match=message.replace("example", report.runs[0].run)):
        with_step_timelines(report, steps=Ranges("--steps", steps))


def test_chosen_steps_whose_traces_cannot_be_read_again_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(SAMPLE, folder)
    report = perfkit.analyze(folder)
    shutil.rmtree(folder)
    assert with_step_timelines(report).runs[0].step_timelines == []
    with pytest.raises(UsageError, match="--steps: no timelines of these steps of run: its traces cannot be read"):
        with_step_timelines(report, steps=Ranges("--steps", "3"))
