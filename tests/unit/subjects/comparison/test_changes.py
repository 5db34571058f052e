"""Changes of known size, and the rate of false positives."""

import io
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest

import perfkit
from perfkit.base.formatting import MISSING
from perfkit.errors import TraceError
from perfkit.records.comparison import Change, Comparison, Side
from perfkit.records.manifest import StepKind
from perfkit.records.run import RunReport, StepTimes
from perfkit.report.exporters.ci import write_benchmark
from perfkit.report.exporters.json_export import write
from perfkit.report.views.comparison import document
from perfkit.storage.run_folder import write_manifest
from perfkit.subjects.comparison.changes import disagreement, findings
from perfkit.subjects.comparison.gates import parse_gate
from perfkit.subjects.comparison.metrics import Calls, MetricName, category_share, metrics
from tests.support.manifests import make_manifest
from tests.support.reports.report_builders import (
    MS,
    make_collective,
    make_operator,
    make_rank,
    make_record,
    make_run,
    make_step,
)
from tests.support.reports.worded import changes, check_gates
from tests.support.traces.idle_builders import idle_rank, row


def steady(compute_ms: float = 60, name: str = "run", **changes: object) -> RunReport:
    """A run of two ranks and six equal steps."""
    steps = [make_step(number, compute=round(compute_ms * MS)) for number in range(6)]
    return make_run(name, ranks=[make_rank(0, steps), make_rank(1, steps)], **changes)


def the(name: str, found: list[Change]) -> Change:
    (change,) = [change for change in found if change.name == name]
    return change


def test_a_step_is_as_long_as_its_slowest_rank_and_categories_are_means_over_ranks() -> None:
    run = make_run()  # rank 0: 100 and 130 ms; rank 1: 100 and 160 ms
    found = metrics(run)
    assert found[MetricName("run", "step_time")].samples == [100 * MS, 160 * MS]
    assert found[MetricName("run", "step_time")].value == 130 * MS
    assert found[MetricName("category", "overhead")].samples == [5 * MS, 20 * MS]
    # Two ranks of two steps each, with 120 ms of it on each rank.
    assert found[MetricName("operator", "aten::addmm")].value == 60 * MS
    assert found[MetricName("collective", "all_reduce", Calls(4.19e6, "float32", 2))].value == 18 * MS
    share = category_share(run, "communication")
    assert share == pytest.approx(80 / 490)


def timed(plain_ms: float, profiled_ms: float, name: str = "run") -> RunReport:
    """A run of two ranks whose steps take these times without and with the profiler."""
    times = StepTimes(plain_ns=[round(plain_ms * MS)] * 6, recorded_ns=[round(profiled_ms * MS)] * 6)
    return steady(profiled_ms - 40, name, step_times=times)


def test_step_time_is_without_the_profiler_where_both_sides_have_such_steps() -> None:
    found = changes([timed(90, 100)], [timed(80, 110)], "plain")
    step, profiled = the("step_time", found), the("profiled_step", found)
    assert (step.before, step.after, step.resampled) == (90 * MS, 80 * MS, "steps")
    assert (profiled.before, profiled.after) == (100 * MS, 110 * MS)
    # The rate is that of the same steps: 598.13/s at 107 ms.
    assert the("samples_per_s", found).after == pytest.approx(598.13 * 107 / 80)
    only = changes([steady(60)], [timed(80, 110)])
    assert (the("step_time", only).after, the("step_time", only).before) == (110 * MS, 100 * MS)
    assert not [change for change in only if change.name == "profiled_step"]


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ((18, 18), (16, 20), True),  # faster without, slower with
        ((18, 18), (20, 16), True),
        ((18, 18), (16, 17), False),
        ((18, 18), (18, 20), False),
    ],
)
def test_profiled_steps_that_change_the_other_way_are_a_finding(
    before: tuple[float, float], after: tuple[float, float], *, said: bool
) -> None:
    found = disagreement(changes([timed(before[0], 50 + before[1])], [timed(after[0], 50 + after[1])], "plain"))
    assert bool(found) == said
    assert disagreement(changes([steady(60)], [steady(70)])) == []


def test_slow_steps_count_with_all_that_they_take() -> None:
    """A step has 40 ms besides compute. Of six steps, two take 300 ms instead of 100."""
    steps = [make_step(n, compute=(260 if n % 3 == 0 else 60) * MS) for n in range(6)]
    found = changes([steady(60)], [make_run("after", ranks=[make_rank(0, steps), make_rank(1, steps)])])
    step, compute = the("step_time", found), the("compute", found)
    assert (step.before, compute.before) == (100 * MS, 60 * MS)
    assert [step.after, compute.after] == pytest.approx([500 / 3 * MS, 380 / 3 * MS])
    assert step.interval is not None
    assert step.interval[0] < 5 / 3 < step.interval[1]


def test_rates_of_runs_without_plain_steps_are_of_profiled_steps_on_both_sides() -> None:
    # 598.13/s at 107 ms without the profiler are 512/s at the 125 ms with it.
    slow = timed(107, 125)
    assert metrics(slow, "recorded")[MetricName("run", "samples_per_s")].value == pytest.approx(598.13 * 107 / 125)


def test_doubled_times_have_a_ratio_of_two() -> None:
    found = changes([steady(60)], [steady(160)])
    step = the("step_time", found)
    assert (step.before, step.after, step.ratio) == (100 * MS, 200 * MS, 2.0)
    assert the("compute", found).ratio == pytest.approx(160 / 60)
    assert the("communication", found).ratio == 1
    assert the("samples_per_s", found).unit == "1/s"


def test_one_run_per_side_is_never_significant() -> None:
    step = the("step_time", changes([steady(60)], [steady(160)]))
    assert (step.interval, step.resampled, step.significant) == ((2.0, 2.0), "steps", None)
    assert [f.code for f in findings([steady()], [steady()])] == ["too_few_repeats"]
    # Two steps are too few even to say how steps differ.
    assert the("step_time", changes([make_run()], [make_run()])).interval is None


def test_repeats_that_differ_less_than_the_sides_are_significant() -> None:
    before = [steady(60 + noise) for noise in (0, 1, 2)]
    faster = the("step_time", changes(before, [steady(40 + noise) for noise in (0, 1, 2)]))
    assert (faster.resampled, faster.significant) == ("runs", True)
    assert faster.ratio == pytest.approx(81 / 101)
    assert faster.interval is not None
    low, high = faster.interval
    assert low <= 81 / 101 <= high < 1
    same = the("step_time", changes(before, [steady(60.5 + noise) for noise in (0, 1, 2)]))
    assert same.significant is False
    assert findings(before, before) == []


def test_false_positive_rate_is_as_documented() -> None:
    draw = np.random.default_rng(7)
    runs = {
        count: [[steady(60 * np.exp(draw.normal(0, 0.05))) for _ in range(count)] for _ in range(80)]
        for count in (3, 5)
    }
    claimed = {
        count: sum(
            bool(the("step_time", changes(*pair)).significant) for pair in zip(sides[::2], sides[1::2], strict=True)
        )
        for count, sides in runs.items()
    }
    # Of 40 draws; the documented rates are one in ten and one in twenty.
    assert claimed[3] <= 9
    assert claimed[5] <= 6


def test_metrics_of_one_side_only_are_listed() -> None:
    old = make_rank(0, operators=[make_operator("aten::mm"), make_operator("aten::add")])
    new = make_rank(
        0, operators=[make_operator("aten::mm"), make_operator("triton_fused")], collectives=[make_collective()]
    )
    found = changes([make_run(ranks=[old])], [make_run(ranks=[new])])
    assert (the("triton_fused", found).before, the("triton_fused", found).ratio) == (None, None)
    assert the("aten::add", found).after is None
    assert the("aten::mm", found).ratio == 1
    # What moved most comes first.
    kinds = [change.name for change in found if change.kind == "operator"]
    assert set(kinds[:2]) == {"aten::add", "triton_fused"}


def test_runs_that_are_not_repeats_are_named() -> None:
    plain = make_run(config={"batch_size": 32, "trace_dir": "a"})
    other = make_run(config={"batch_size": 64, "trace_dir": "b"})
    found = {fact.code: fact.values.get("options") for fact in findings([plain, other], [other])}
    assert found["mixed_configurations"] == found["configurations_differ"] == {"batch_size": ["32", "64"]}
    late = make_run(config={"batch_size": 32, "inject": ["rank=1,phase=backward,delay=60ms"]})
    (one,) = [
        one
        for one in findings([make_run(config={"batch_size": 32, "inject": []})], [late])
        if one.code == "configurations_differ"
    ]
    assert one.values == {"options": {"inject": ["none", "rank=1,phase=backward,delay=60ms"]}}


def test_different_devices_and_versions_are_one_finding_each() -> None:
    old = {"perfkit": "0.1", "torch": "2.7", "h5py": "3.16"}
    before = [make_run(device_names=["H100"], versions=old)] * 3
    after = [make_run(device_names=["H200"], versions={"perfkit": "0.2", "torch": torch}) for torch in ("2.7", "2.8")]
    after.append(after[1])
    assert {fact.code: fact.values for fact in findings(before, after)} == {
        "devices_differ": {"devices": [["H100"], ["H200"]]},
        "versions_differ": {"versions": {"perfkit": [["0.1"], ["0.2"]], "torch": [["2.7"], ["2.7", "2.8"]]}},
    }
    assert findings(before, before) == []
    # Nor are repeats on two devices repeats, though both sides have the same two.
    mixed = [make_run(device_names=[name]) for name in ("H100", "H200", "H200")]
    assert [fact.values for fact in findings(mixed, mixed)] == [{"devices": [["H100", "H200"]] * 2}]
    # A foreign trace says neither.
    assert findings(before, [make_run()] * 3) == []


def test_nothing_before_gives_no_ratio() -> None:
    quiet = [make_step(number, communication=0, hidden=0) for number in range(6)]
    found = changes([make_run(ranks=[make_rank(0, quiet)])], [steady()])
    assert (the("communication", found).before, the("communication", found).ratio) == (0, None)


def written(write: Callable[..., None], report: Comparison) -> str:
    stream = io.StringIO()
    write(report, stream, top=10)
    return stream.getvalue()


def loading(*times_ms: int) -> list[RunReport]:
    """Repeats with these load times per step."""
    return [
        make_run(ranks=[make_rank(0, [make_step(number, data_loading=ms * MS) for number in range(6)])])
        for ms in times_ms
    ]


def test_a_metric_that_may_be_zero_before_has_no_interval_in_any_format() -> None:
    before, after = loading(0, 0, 3, 4, 5), loading(1, 2, 3, 4, 5)
    found = changes(before, after)
    change = the("data_loading", found)
    assert change.ratio == 1
    assert (change.interval, change.resampled, change.significant) == (None, None, None)
    gates = check_gates([parse_gate("data_loading > +5%")], found, before, after)
    assert [gate.state for gate in gates] == ["not_evaluated"]
    report = Comparison(
        perfkit_version="0.0.0",
        before=Side(path="a", runs=["run"] * 5),
        after=Side(path="b", runs=["run"] * 5),
        changes=found,
        gates=gates,
        findings=[],
    )
    text = written(write, report)
    assert msgspec.json.decode(text, type=Comparison) == report
    assert "inf" not in written(write_benchmark, report)
    (row,) = [
        row for table in document(report, 10).sections[0].tables for row in table.rows if row[0].text == "data_loading"
    ]
    assert [cell.text for cell in row[3:]] == ["1.000", MISSING, ""]


def test_idle_time_is_compared_by_cause() -> None:
    def run(waits_ms: int) -> RunReport:
        rows = [row("synchronisation", "aten::item", waits_ms), row("host_work", "f", 5)]
        return make_run(ranks=[idle_rank(*rows), idle_rank(row("host_work", "f", 15), rank=1)])

    found = {change.name: change for change in changes([run(20)], [run(10)]) if change.kind == "idle"}
    assert {name: (change.before, change.after) for name, change in found.items()} == {
        "idle.synchronisation": (10 * MS, 5 * MS),
        "idle.host_work": (10 * MS, 10 * MS),
    }
    assert not [change for change in changes([make_run()], [run(10)]) if change.kind == "idle" and change.before]


def save_timed(folder: Path, plain_ms: float) -> Path:
    """Write a run that was timed without the profiler, and has no trace."""
    folder.mkdir()
    made = make_manifest("completed")
    kinds: list[StepKind] = ["cold", "plain", "plain", "plain", "plain", "plain"]
    records = [make_record([round(plain_ms * MS)] * 6)]
    world = msgspec.structs.replace(made.world, world_size=1)
    write_manifest(
        folder,
        msgspec.structs.replace(made, config={"profile": False}, step_kinds=kinds, ranks=records, world=world),
    )
    return folder


def test_runs_without_traces_are_compared_by_their_own_clock(tmp_path: Path) -> None:
    report = perfkit.compare(save_timed(tmp_path / "before", 40), save_timed(tmp_path / "after", 30))
    assert the("step_time", report.changes).before == 40 * MS
    assert the("step_time", report.changes).after == 30 * MS
    assert {change.kind for change in report.changes} == {"run"}
    tables = [table for section in document(report, 10).sections for table in section.tables]
    assert [table.remark for table in tables] == ["step_time and rates: steps without the profiler"]


@pytest.mark.parametrize("reverse", [False, True])
def test_what_only_one_side_has_is_not_compared(reverse: bool, tmp_path: Path, real_traces: Path) -> None:
    sides = [save_timed(tmp_path / "timed", 40), real_traces / "small" / "triton.json.gz"]
    with pytest.raises(TraceError, match=r"triton\.json\.gz: none of its runs has steps timed without the profiler"):
        perfkit.compare(*sides[:: -1 if reverse else 1])
    with pytest.raises(TraceError, match=r"timed: none of its runs has a trace, in which --step-marker"):
        perfkit.compare(*sides[:: -1 if reverse else 1], step_marker="train_step")
    (tmp_path / "none").mkdir()
    with pytest.raises(TraceError, match=r"none: "):
        perfkit.compare(tmp_path / "none", sides[0])
