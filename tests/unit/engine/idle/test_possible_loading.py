"""What may be loading: asked about, not assumed."""

from pathlib import Path

import perfkit
from perfkit.records.report import Insight, Report
from tests.support.traces.trace_builder import TraceBuilder

STEP, STEPS = 10_000, 3


def program(*, forward: str = "perfkit.forward", backward: bool = True) -> TraceBuilder:
    """Three steps of 10 ms: 6 ms of idle time, then forward, and backward of 2 ms each."""
    builder = TraceBuilder(backend="gloo").python_function("train.py(90): main", -50, STEPS * STEP + 1000)
    for number in range(STEPS):
        begin = STEP * number
        builder.step(number, begin, STEP).op("aten::mm", begin + 6_000, 2_000).op("aten::mm", begin + 8_000, 2_000)
        if forward:
            builder.annotation(forward, begin + 6_000, 2_000)
        if backward:
            builder.annotation("perfkit.backward", begin + 8_000, 2_000)
    return builder


def in_each_step(builder: TraceBuilder, name: str, start: int, length: int, steps: int = STEPS) -> TraceBuilder:
    add = builder.python_function if ".py(" in name or "nn.Module" in name else builder.annotation
    for number in range(steps):
        add(name, STEP * number + start, length)
    return builder


def report(builder: TraceBuilder, folder: Path, marker: str | None = None) -> Report:
    return perfkit.analyze(builder.write(folder / "rank0.json"), data_marker=marker)


def found(builder: TraceBuilder, folder: Path) -> tuple[str, float] | None:
    """Return what may be loading, with its idle ms per step."""
    one = report(builder, folder).runs[0].ranks[0].idle.possible_loading
    return None if one is None else (one.name, one.total_ns / STEPS / 1e6)


def host(found: Report) -> Insight:
    (insight,) = [one for one in found.insights if one.rule == "host"]
    return insight


def test_an_annotation_before_forward(tmp_path: Path) -> None:
    builder = in_each_step(program(), "data prep", 500, 5_000)
    assert found(builder, tmp_path) == ("data prep", 5)
    insight = host(report(builder, tmp_path))
    assert insight.sentence.endswith(": data prep: is that loading?")
    assert "data if your loader" not in insight.sentence
    assert insight.recommendation.endswith("; if it loads data, see the answer with --data-marker 'data prep'")


def test_the_answer_to_the_question(tmp_path: Path) -> None:
    builder = in_each_step(program(), "data prep", 500, 5_000)
    answer = report(builder, tmp_path, "data prep")
    assert answer.runs[0].ranks[0].idle.possible_loading is None
    assert "is that loading" not in " ".join(one.sentence for one in answer.insights)
    assert "input" in {one.rule for one in answer.insights}


def test_the_outermost_function_not_what_it_calls(tmp_path: Path) -> None:
    builder = in_each_step(program(), "data.py(7): get_batch", 500, 5_000)
    in_each_step(builder, "data.py(3): one", 600, 2_000)
    in_each_step(builder, "data.py(5): other", 2_700, 2_000)
    in_each_step(builder, "torch/utils/x.py(5): library", 0, 5_900)
    assert found(builder, tmp_path) == ("data.py(7): get_batch", 5)
    insight = host(report(builder, tmp_path))
    assert insight.sentence.endswith(": `get_batch`, data.py:7: is that loading?")
    assert insight.recommendation.endswith("--data-marker get_batch")


def test_between_forward_and_backward_as_nanogpt_prefetches(tmp_path: Path) -> None:
    builder = TraceBuilder(backend="gloo")
    for number in range(STEPS):
        begin = STEP * number
        builder.step(number, begin, STEP).op("aten::mm", begin, 2_000).op("aten::mm", begin + 8_000, 2_000)
        builder.annotation("perfkit.forward", begin, 2_000).annotation("perfkit.backward", begin + 8_000, 2_000)
    assert found(in_each_step(builder, "train.py(9): get_batch", 2_500, 5_000), tmp_path) == (
        "train.py(9): get_batch",
        5,
    )


def test_calls_of_modules_are_forward_passes_too(tmp_path: Path) -> None:
    builder = in_each_step(program(forward="", backward=False), "nn.Module: Net_0", 6_000, 2_000)
    assert found(in_each_step(builder, "train.py(9): get_batch", 500, 5_000), tmp_path) == ("train.py(9): get_batch", 5)


def test_what_is_no_preparation_of_each_step(tmp_path: Path) -> None:
    assert found(program(), tmp_path) is None
    not_always = in_each_step(program(), "train.py(9): log", 500, 5_000, steps=STEPS - 1)
    assert found(not_always, tmp_path) is None
    zeroed = in_each_step(program(), "Optimizer.zero_grad#SGD.zero_grad", 500, 5_000)
    assert found(zeroed, tmp_path) is None
    inside = in_each_step(program(), "train.py(9): forward", 5_000, 2_500)
    assert found(inside, tmp_path) is None
    after = in_each_step(program(), "train.py(9): log", 9_000, 500)
    assert found(after, tmp_path) is None
    without_passes = in_each_step(program(forward="", backward=False), "train.py(9): get_batch", 500, 5_000)
    assert found(without_passes, tmp_path) is None
    loaded = in_each_step(program(), "train.py(9): get_batch", 500, 2_000).data_loading(3_000, 1_000)
    assert found(loaded, tmp_path) is None


def test_a_minor_part_is_not_asked_about(tmp_path: Path) -> None:
    builder = in_each_step(program(), "train.py(9): get_batch", 500, 2_000)
    assert found(builder, tmp_path) == ("train.py(9): get_batch", 2)
    assert "is that loading" not in host(report(builder, tmp_path)).sentence


def test_other_threads_prepare_nothing(tmp_path: Path) -> None:
    builder = program()
    for number in range(STEPS):
        builder.annotation("load ahead", STEP * number + 500, 5_000, tid=7)
    assert found(builder, tmp_path) is None
