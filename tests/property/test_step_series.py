"""A step is its number and its series: how a program numbers the steps of recordings changes nothing of a report."""

import gzip
import io
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.base.parsing import parse_step
from perfkit.base.step_numbers import RESTART, numbered
from perfkit.cli import main
from perfkit.pipeline.analyze import analyze
from perfkit.pipeline.compare import compare
from perfkit.pipeline.whatif import predict
from perfkit.records.aggregate import traced_step_ns
from perfkit.records.run import RunReport
from perfkit.report.renderers import console
from perfkit.subjects.comparison.metrics import metrics
from perfkit.tools.merge.step_timelines import with_step_timelines
from perfkit.tools.serve.step_window import step_window
from tests.support.traces.pipeline_builder import one_forward_one_backward, traces
from tests.support.traces.trace_builder import BASE_NS, MAIN_THREAD, TraceBuilder

STEPS = 5
RECORDING_US = 10_000_000
LATE_US = 60_000

Numbering = Callable[[int, int], int]
"""Number of a step, by its recording and its place in that."""


def restarted(recording: int, step: int) -> int:
    return step + 2


def from_zero(recording: int, step: int) -> int:
    return step


def continued(recording: int, step: int) -> int:
    return 8 * recording + step + 2


def all_equal(recording: int, step: int) -> int:  # as of a marker without a number that counts
    return 7


def of_their_own(recording: int, step: int) -> int:
    """Training and validation count by themselves, as Lightning's profiler does."""
    return step + STEPS * (recording // 2) + 2 - recording % 2


def late_at_first(rank: int, recording: int) -> bool:
    return rank == 1 and recording < 3


class Recordings:
    """Ranks that record several times: each step computes, then all wait for the last in an all-reduce."""

    def __init__(
        self,
        numbering: Numbering = restarted,
        *,
        ranks: int = 2,
        lengths: Sequence[int] = (STEPS,) * 4,
        late: Callable[[int, int], bool] = late_at_first,
        seed: int = 0,
    ) -> None:
        self.numbering, self.ranks, self.lengths = numbering, ranks, lengths
        noise = random.Random(seed)  # noqa: S311
        self.work_us = [
            [
                [9_000 + noise.randrange(2_000) + LATE_US * late(rank, recording) for rank in range(ranks)]
                for _ in range(steps)
            ]
            for recording, steps in enumerate(lengths)
        ]

    @property
    def mean_us(self) -> float:
        """The mean step: its last rank's work and the transfer."""
        each = [max(work) + 1_000 for recording in self.work_us for work in recording]
        return sum(each) / len(each)

    def write(
        self, folder: Path, *, one_file: bool = False, lost: Sequence[tuple[int, int]] = (), ahead: int = 0
    ) -> Path:
        """Write the traces; without those of `lost` (rank, recording), rank 1's clock ahead by so many us."""
        folder.mkdir()
        for rank in range(self.ranks):
            whole, at = self._builder(rank), ahead * (rank == 1)
            for recording in range(len(self.lengths)):
                if (rank, recording) not in lost:
                    trace = whole if one_file else self._builder(rank)
                    end = self._record(trace, rank, recording, at)
                    if not one_file:
                        trace.write(folder / f"rank{rank}.{recording}.json")
                at = end if one_file else at + RECORDING_US
            if one_file:
                whole.write(folder / f"rank{rank}.json")
        return folder

    def _builder(self, rank: int) -> TraceBuilder:
        return TraceBuilder(rank, self.ranks, backend="gloo", base_ns=BASE_NS)

    def _record(self, trace: TraceBuilder, rank: int, recording: int, at: int) -> int:
        for step, work in enumerate(self.work_us[recording]):
            wall = max(work) + 1_000
            trace.step(self.numbering(recording, step), at, wall)
            trace.op("aten::mm", at, work[rank])
            trace.gloo("all_reduce", at + work[rank], wall - work[rank], tid=MAIN_THREAD + 1)
            at += wall
        return at


def report_of(folder: Path) -> RunReport:
    (run,) = analyze(folder, cache=False, executor="serial").runs
    return run


def said(run: RunReport) -> dict[str, Any]:
    """Return what a report says, with steps by their place."""
    place = {step: at for at, step in enumerate(traced_step_ns(run.ranks))}

    def by_place(value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            return {key: by_place(one, key) for key, one in value.items()}
        if isinstance(value, list):
            return [by_place(one, "step" if name == "steps" else "") for one in value]
        return place.get(value, value) if name in {"step", "max_step", "first_step", "last_step"} else value

    parts = msgspec.to_builtins(
        [run.ranks, run.cross_rank, run.ledger, run.step_time, run.critical_path, run.verdict, run.predicted_savings]
    )
    return {"parts": by_place(parts), "findings": {one.code for one in run.findings} - {"repeated_steps"}}


def check_late(run: RunReport, truth: Recordings) -> None:
    assert run.cross_rank is not None
    (late,) = run.cross_rank.stragglers
    assert (late.rank, late.steps_late, late.steps) == (1, 15, 20)
    assert late.lag_ns == pytest.approx(LATE_US * 1000, rel=0.05)
    assert run.step_time is not None
    assert run.step_time.mean_ns == pytest.approx(truth.mean_us * 1000, rel=0.01)
    assert run.ledger is not None
    assert (run.ledger.rows[0].cause, run.ledger.rows[0].ranks) == ("late_ranks", [1])
    assert run.ledger.rows[0].ns == pytest.approx(0.75 * LATE_US * 1000, rel=0.05)


@pytest.mark.parametrize("numbering", [restarted, from_zero, continued, all_equal, of_their_own])
@pytest.mark.parametrize("one_file", [False, True])
def test_a_rank_late_in_most_recordings_is_late(tmp_path: Path, numbering: Numbering, one_file: bool) -> None:
    """A new profiler per epoch, the rank late in three of four; also with all of it in one trace."""
    truth = Recordings(numbering)
    run = report_of(truth.write(tmp_path / "run", one_file=one_file))
    assert [len({step.step for step in rank.steps}) for rank in run.ranks] == [20, 20]
    check_late(run, truth)
    found = predict(tmp_path / "run", ["rank1=healthy"])
    assert run.ledger is not None
    assert found.prediction is not None
    assert round(found.prediction.saving_ns) == run.ledger.rows[0].ns
    assert round(found.measured_step_ns) == run.ledger.step_ns
    assert len(found.steps) == 20


@given(
    offsets=st.lists(st.integers(0, 10**6), min_size=3, max_size=3),
    lengths=st.lists(st.integers(2, 6), min_size=3, max_size=3),
    ranks=st.integers(1, 3),
    late=st.sets(st.integers(0, 2)),
    seed=st.integers(0, 99),
)
def test_numbers_of_steps_change_nothing(
    offsets: list[int], lengths: list[int], ranks: int, late: set[int], seed: int
) -> None:
    """Restarted, continued or with any offset, of recordings of equal length or not."""

    def shifted(recording: int, step: int) -> int:
        return offsets[recording] + step

    def run_with(numbering: Numbering) -> dict[str, Any]:
        with TemporaryDirectory() as folder:
            truth = Recordings(
                numbering,
                ranks=ranks,
                lengths=lengths,
                late=lambda rank, recording: rank == 1 and recording in late,
                seed=seed,
            )
            return said(report_of(truth.write(Path(folder) / "run")))

    assert run_with(from_zero) == run_with(continued) == run_with(shifted)


def test_recordings_are_compared_in_order_whatever_the_clocks(tmp_path: Path) -> None:
    truth = Recordings()
    check_late(report_of(truth.write(tmp_path / "run", ahead=RECORDING_US)), truth)


@pytest.mark.parametrize("lost", [0, 1, 2, 3])
def test_a_rank_that_lacks_a_recording_is_compared_in_the_others(tmp_path: Path, lost: int) -> None:
    """By order, its third recording would be the others' second."""
    folder = Recordings(late=lambda rank, recording: rank == 1 and recording > 1).write(
        tmp_path / "run", lost=[(1, lost)]
    )
    run = report_of(folder)
    assert run.cross_rank is not None
    assert run.cross_rank.compared_steps == 15
    here, other = ({step.step: step.start_ns for step in rank.steps} for rank in run.ranks)
    assert all(here[step] == start_ns for step, start_ns in other.items())
    assert {step // RESTART for step in other if step is not None} == {0, 1, 2, 3} - {lost}


def test_a_step_recorded_twice_on_one_rank_costs_the_rest_of_its_recording(tmp_path: Path) -> None:
    """What follows the second record of a number in one trace is another series, and the next recording is not."""
    folder = Recordings().write(tmp_path / "run")
    path = folder / "rank1.1.json"
    trace = msgspec.json.decode(path.read_bytes())
    again = next(one for one in trace["traceEvents"] if one.get("name") == "ProfilerStep#4")
    trace["traceEvents"].append({**again, "ts": again["ts"] + 50})
    path.write_bytes(msgspec.json.encode(trace))
    run = report_of(folder)
    assert run.cross_rank is not None
    assert run.cross_rank.compared_steps == 18
    assert {"repeated_steps", "uneven_steps"} <= {one.code for one in run.findings}


def test_equal_work_is_equal_however_it_is_numbered(tmp_path: Path) -> None:
    before, after = (Recordings(one).write(tmp_path / one.__name__) for one in (continued, restarted))
    for change in compare(before, after).changes:
        assert change.after == pytest.approx(change.before), change.name


def test_the_step_is_the_mean_of_all_recordings(tmp_path: Path) -> None:
    """Not of the one in the middle, which the graph is of."""
    truth = Recordings(late=lambda rank, recording: rank == 1 and recording in (0, 3))
    run = report_of(truth.write(tmp_path / "run"))
    assert run.step_time is not None
    assert run.step_time.mean_ns == pytest.approx(truth.mean_us * 1000, rel=0.01)
    assert run.ledger is not None
    assert run.ledger.rows[0].ns == pytest.approx(LATE_US * 1000 / 2, rel=0.05)


def test_a_step_that_is_recorded_twice_is_one(tmp_path: Path) -> None:
    trace = TraceBuilder(0, 1)
    for number in (1, 2, 2, 3):
        trace.step(number, 100 * number, 100).op("aten::mm", 100 * number, 50)
    (rank,) = report_of(trace.write(tmp_path / "rank0.json")).ranks
    assert [(step.step, step.wall_ns) for step in rank.steps] == [(1, 100_000), (2, 100_000), (3, 100_000)]


def test_a_page_shows_the_steps_by_series(tmp_path: Path) -> None:
    folder = Recordings().write(tmp_path / "run")
    drawn = with_step_timelines(analyze(folder, cache=False, executor="serial"))
    (run,) = drawn.runs
    walls = traced_step_ns(run.ranks)
    longest = max(walls, key=walls.__getitem__)
    timeline = next(one for one in run.step_timelines if one.step == longest)
    assert timeline.window_ns == walls[longest]
    stream = io.StringIO()
    console.write(drawn, stream, top=30, width=100)
    assert "20 (2-6, 2:2-6, 3:2-6, 4:2-6)" in stream.getvalue()
    assert "step numbers start again 3 times: 2:3 is step 3 of the second series" in stream.getvalue()


def test_a_series_is_chosen_by_its_number(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = Recordings().write(tmp_path / "run")
    for option in ("3", "2:3", "3:2-6"):
        assert main(["stacks", str(folder), "-o", str(tmp_path / "o.collapsed"), "--steps", option]) == 0
        assert main(["merge", str(folder), "-o", str(tmp_path / "o.json"), "--steps", option]) == 0
        labels = {
            one["name"]
            for one in msgspec.json.decode((tmp_path / "o.json").read_bytes())["traceEvents"]
            if "name" in one
        }
        shown = {label for label in labels if label.startswith("step ")}
        expected = ["3:2", "3:3", "3:4", "3:5", "3:6"] if "-" in option else [option]
        assert shown == {f"step {one}" for one in expected}
    assert main(["merge", str(folder), "-o", str(tmp_path / "o.json"), "--steps", "5:3"]) != 0
    assert "--steps 5:3: no such step; existing: 2, 3, 4, 5, 6, 2:2" in capfd.readouterr().err


ROOT: Final = Path(__file__).parents[2]
REAL: Final = [
    sorted((ROOT / "traces" / "sample-hdf5").glob("*.json.gz")),
    sorted((ROOT / "tests" / "data" / "traces" / "gpu-dlrm-2of128").glob("*.json.gz")),
    [ROOT / "tests" / "data" / "traces" / "small" / "mi250-three-steps.json.gz"],
]


def recorded(folder: Path, files: Sequence[Path], times: int) -> Path:
    """Return a folder with each trace, and the same again after each hour."""
    folder.mkdir()
    for rank, file in enumerate(files):
        plain = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        for hour in range(times):
            document = msgspec.json.decode(plain)
            document["baseTimeNanoseconds"] = document.get("baseTimeNanoseconds", 0) + hour * 3_600 * 10**9
            (folder / f"rank{rank}.{hour}.json").write_bytes(msgspec.json.encode(document))
    return folder


@pytest.mark.parametrize("files", REAL, ids=["cpu", "cuda", "rocm"])
def test_a_real_trace_recorded_again_says_the_same(tmp_path: Path, files: Sequence[Path]) -> None:
    once, twice = (report_of(recorded(tmp_path / str(times), files, times)) for times in (1, 2))
    walls, both = (list(traced_step_ns(run.ranks).values()) for run in (once, twice))
    assert both == walls * 2
    for before, after in zip(once.ranks, twice.ranks, strict=True):
        assert len(after.steps) == 2 * len(before.steps)
        assert [row.total_ns for row in after.operators] == [2 * row.total_ns for row in before.operators]
    for name, metric in metrics(once).items():
        if name.kind == "category":
            assert metrics(twice)[name].value == pytest.approx(metric.value)


def test_the_bubble_of_a_pipeline_is_of_all_recordings(tmp_path: Path) -> None:
    """Each leaves out its first step."""
    (tmp_path / "of").mkdir()
    times = [lambda _stage, _kind: 100, lambda _stage, _kind: 100, lambda stage, _kind: 100 + 50 * stage]
    builders = traces(one_forward_one_backward(2, 4), times)
    files = [builder.write(tmp_path / "of" / f"rank{rank}.json") for rank, builder in enumerate(builders)]
    once, twice = (report_of(recorded(tmp_path / str(times), files, times)) for times in (1, 2))
    (before,), (after,) = once.pipelines, twice.pipelines
    assert (before.steps, after.steps) == (2, 4)
    assert after.bubble_share == pytest.approx(before.bubble_share)
    assert [rank.wall_ns for rank in after.ranks] == [2 * rank.wall_ns for rank in before.ranks]


def test_a_viewer_opens_at_a_step_of_a_series(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    trace = Recordings(ranks=1).write(tmp_path / "run", one_file=True) / "rank0.json"
    begin_ns, end_ns = step_window(trace, parse_step("2:3", "--step"))
    (rank,) = report_of(trace).ranks
    (step,) = [step for step in rank.steps if step.step == RESTART + 3]
    assert (begin_ns + BASE_NS, end_ns - begin_ns) == (step.start_ns, step.wall_ns)
    assert main(["view", str(trace), "--step", "5:3", "--no-browser"]) == 2
    assert "rank0.json has steps 2-6, 2:2-6, 3:2-6, 4:2-6" in capfd.readouterr().err


@given(series=st.integers(1, 999), number=st.integers(0, RESTART - 1))
def test_a_label_has_both(series: int, number: int) -> None:
    label = numbered(number + (series - 1) * RESTART)
    assert label == (f"{series}:{number}" if series > 1 else str(number))
