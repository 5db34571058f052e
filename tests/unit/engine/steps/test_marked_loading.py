"""What `--data-marker` matches is data loading: annotations, and functions of traces with stacks."""

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import astuple

import perfkit
from perfkit.errors import UsageError
from perfkit.records.rank import StepBreakdown
from perfkit.records.run import RunReport
from perfkit.trace.reader import read_trace
from tests.support.traces.trace_builder import TraceBuilder

OTHER_THREAD = 9
LOADING = "perfkit.data_loading"


def cpu_steps() -> TraceBuilder:
    """Two steps of 10 ms, whose last 4 ms compute."""
    builder = TraceBuilder()
    for number in range(2):
        builder.step(number, 10_000 * number, 10_000).op("aten::mm", 10_000 * number + 6_000, 4_000)
    return builder


def device_steps() -> TraceBuilder:
    """Two steps of 10 ms, whose last 4 ms run a kernel."""
    builder = TraceBuilder(backend="nccl")
    for number in range(2):
        begin = 10_000 * number
        builder.step(number, begin, 10_000).launch(number + 1, begin + 5_990, 10)
        builder.kernel("gemm", begin + 6_000, 4_000, number + 1)
    return builder


def run_of(builder: TraceBuilder, folder: Path, marker: str | None) -> RunReport:
    (run,) = perfkit.analyze(builder.write(folder / "rank0.json"), data_marker=marker).runs
    return run


def steps_of(builder: TraceBuilder, folder: Path, marker: str | None) -> list[StepBreakdown]:
    return run_of(builder, folder, marker).ranks[0].steps


def loading_ms(steps: list[StepBreakdown]) -> list[float]:
    return [step.exposed_ns.data_loading / 1e6 for step in steps]


@pytest.mark.parametrize("make", [cpu_steps, device_steps])
@pytest.mark.parametrize(
    ("marker", "loaded"),
    [(None, [0, 0]), ("data_pre", [3, 0]), ("get_batch", [0, 2]), ("^(data|get)_", [3, 2]), ("nothing|train", [0, 0])],
)
def test_annotations_and_functions(
    make: Callable[[], TraceBuilder], marker: str | None, loaded: list[float], tmp_path: Path
) -> None:
    builder = make().annotation("data_preprocessing", 1_000, 3_000)
    builder.python_function("src/train.py(7): get_batch", 11_000, 2_000)
    builder.python_function("train.py(90): main", -50, 30_000)
    steps = steps_of(builder, tmp_path, marker)
    assert loading_ms(steps) == loaded
    assert [step.loads.count for step in steps] == [int(ms > 0) for ms in loaded]
    assert all(sum(astuple(step.exposed_ns)) == step.wall_ns for step in steps)


def test_a_function_is_matched_by_its_own_name(tmp_path: Path) -> None:
    builder = cpu_steps().python_function("get_batch/train.py(7): forward", 1_000, 2_000)
    builder.python_function("<built-in method get_batch of C object at 0x7f>", 11_000, 2_000)
    assert loading_ms(steps_of(builder, tmp_path, "get_batch")) == [0, 0]


def test_a_load_within_the_loader_of_torch_is_not_counted_twice(tmp_path: Path) -> None:
    builder = cpu_steps().data_loading(1_000, 3_000).annotation("decode", 1_500, 1_000)
    builder.python_function("train.py(7): decode", 1_600, 500)
    assert steps_of(builder, tmp_path, "decode") == steps_of(builder, tmp_path, None)


def test_nested_loads_are_one(tmp_path: Path) -> None:
    builder = cpu_steps().annotation("load", 1_000, 3_000).annotation("load one", 1_500, 1_000)
    builder.python_function("data.py(7): load_all", 900, 3_200)
    (first, _) = steps_of(builder, tmp_path, "load")
    assert (first.loads.count, first.loads.sum_ns) == (1, 3_200_000)


def test_loading_beside_a_kernel_is_hidden(tmp_path: Path) -> None:
    first, _ = steps_of(device_steps().annotation("load", 5_000, 3_000), tmp_path, "load")
    assert first.exposed_ns.data_loading == 1_000_000
    assert first.total_ns.data_loading == 3_000_000
    assert first.exposed_ns.compute == 4_000_000


def test_operators_of_a_function_that_loads_are_loading(tmp_path: Path) -> None:
    builder = cpu_steps().annotation(LOADING.replace("data_loading", "forward"), 500, 5_000)
    builder.python_function("train.py(7): tokenize", 1_000, 2_000).op("aten::stack", 1_500, 1_000)
    first, _ = steps_of(builder, tmp_path, "tokenize")
    assert (first.exposed_ns.data_loading, first.exposed_ns.compute) == (2_000_000, 4_000_000)


def test_what_another_thread_loads_ahead_costs_the_step_nothing(tmp_path: Path) -> None:
    builder = cpu_steps().annotation("load", 0, 5_000, tid=OTHER_THREAD).annotation("load", 11_000, 1_000)
    builder.python_function("data.py(7): load", 0, 5_000, tid=OTHER_THREAD)
    assert loading_ms(steps_of(builder, tmp_path, "load")) == [0, 1]


@pytest.mark.parametrize("marker", ["ProfilerStep", "gloo", "."])
def test_steps_collectives_and_what_contains_a_step_are_no_loading(marker: str, tmp_path: Path) -> None:
    builder = cpu_steps().gloo("all_reduce", 1_000, 500, tid=1).annotation("epoch", -100, 30_000)
    builder.python_function("train.py(90): train", -50, 29_000)
    assert loading_ms(steps_of(builder, tmp_path, marker)) == [0, 0]


def test_a_marker_without_any_match_is_a_finding(tmp_path: Path) -> None:
    plain, stacks = tmp_path / "plain", tmp_path / "stacks"
    plain.mkdir()
    stacks.mkdir()
    (finding,) = (one for one in run_of(cpu_steps(), plain, "get_batch").findings if one.code == "no_marked_loading")
    assert "'get_batch'" in finding.message
    assert "--with-stack" in finding.message
    run = run_of(cpu_steps().python_function("train.py(90): main", -50, 30_000), stacks, "get_batch")
    (finding,) = (one for one in run.findings if one.code == "no_marked_loading")
    assert "--with-stack" not in finding.message
    marked = run_of(cpu_steps().annotation(LOADING, 1_000, 3_000), stacks, "get_batch")  # by perfkit run --data-marker
    assert "no_marked_loading" not in {one.code for one in marked.findings}


def test_the_report_has_the_marker_and_the_phase(tmp_path: Path) -> None:
    run = run_of(cpu_steps().annotation("load", 1_000, 3_000), tmp_path, "load")
    assert run.data_marker == "load"
    assert {phase.name for phase in run.ranks[0].phases} == {"load", LOADING}
    assert run.data_loading
    assert run.data_loading.count == 1


def test_the_marker_is_checked(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--data-marker '\\(' is not a regular expression"):
        run_of(cpu_steps(), tmp_path, "(")


def test_the_other_views_have_the_same_loading(tmp_path: Path) -> None:
    path = cpu_steps().annotation("load", 1_000, 3_000).annotation("load", 11_000, 3_000).write(tmp_path / "rank0.json")
    prediction = perfkit.predict(path, ["input=0"], data_marker="load").prediction
    assert prediction
    assert prediction.saving_ns == pytest.approx(3_000_000, rel=0.01)
    with pytest.raises(UsageError, match="data"):
        perfkit.predict(path, ["input=0"])
    merged = tmp_path / "merged.json"
    perfkit.merge(path, merged, data_marker="load")
    assert '"data_loading"' in merged.read_text()
    compared = perfkit.compare(path, path, data_marker="load")
    assert any(change.name.startswith("load.") for change in compared.changes)
    assert read_trace(path).events.names.count(LOADING) == 0
