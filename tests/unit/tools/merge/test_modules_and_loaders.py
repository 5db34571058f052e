"""Timelines show which module work belongs to, and how each worker of a loader fetched its batches."""

import json
from pathlib import Path
from typing import Any

import pytest

from perfkit.tools.merge.merge import merge
from tests.support.traces.trace_builder import BASE_NS, TraceBuilder
from tests.support.traces.trace_processor import TraceProcessor, needs_trace_processor

MODULES = [["GPT_0", [""]], ["Attention_0", ["layers.0.attn"]], ["Linear_0", ["layers.0.attn.qkv"]]]


def fetch(worker: int, begin: int, get: int, collate: int, *, cpu: int = 0, slowest: int = 0) -> list[int]:
    """Four samples of a batch; times in microseconds."""
    return [worker, BASE_NS + begin * 1000, get * 1000, cpu * 1000, collate * 1000, 4, 17, slowest * 1000]


def traced(folder: Path, *, names: bool = True) -> Path:
    """Two steps of attention and its linear layer on two streams of a device."""
    builder = TraceBuilder()
    for step in range(2):
        at = step * 1000
        builder.step(step, at, 1000).python_function("nn.Module: GPT_0", at + 100, 500)
        builder.python_function("nn.Module: Attention_0", at + 150, 300)
        builder.python_function("nn.Module: Linear_0", at + 160, 100)
        calls = ((170, 400, 50, 7), (180, 460, 40, 7), (300, 520, 30, 7), (310, 530, 60, 8), (700, 900, 20, 7))
        for number, (launched, start, lasts, stream) in enumerate(calls):
            correlation = 100 * step + number + 1
            builder.op("aten::mm", at + launched - 2, 10).launch(correlation, at + launched, 5)
            builder.kernel(f"gemm_{number}", at + start, lasts, correlation, stream)
    fetches = [
        fetch(0, -5000, 100, 10),  # before the steps
        fetch(0, 100, 600, 50),
        fetch(1, 150, 400, 300, cpu=390),
        fetch(0, 1100, 3000, 0, slowest=2900),  # ends after the steps
        fetch(1, 5000, 100, 10),
    ]
    builder.header(perfkit={"rank": 0, "world_size": 1, "fetches": fetches})
    if names:
        builder.header(perfkitModules=MODULES)
    return builder.write(folder / "rank0.json")


def tracks(folder: Path, **options: Any) -> dict[str, list[dict[str, Any]]]:
    """The slices of each thread of a merged timeline, in order of time."""
    merge(folder / "rank0.json", folder / "merged.json", **options)
    events = json.loads((folder / "merged.json").read_text())["traceEvents"]
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    found: dict[str, list[dict[str, Any]]] = {}
    for event in sorted((event for event in events if event["ph"] == "X"), key=lambda one: (one["ts"], -one["dur"])):
        found.setdefault(names[event["tid"]], []).append(event)
    return found


def shown(slices: list[dict[str, Any]]) -> list[tuple[str, int, int]]:
    begin = slices[0]["ts"]
    return [(event["name"], round(event["ts"] - begin), round(event["dur"])) for event in slices]


def test_work_is_drawn_by_module_and_nests(tmp_path: Path) -> None:
    traced(tmp_path)
    found = tracks(tmp_path, steps="0")
    assert shown(found["perfkit: modules"]) == [
        ("GPT", 0, 190),
        ("layers.0.attn (Attention)", 0, 190),
        ("layers.0.attn.qkv (Linear)", 0, 100),
    ]
    kernels = {event["name"]: event for event in found["stream 7 (device 0)"]}
    assert kernels["gemm_1"]["args"] == {"module": "layers.0.attn.qkv (Linear)"}
    assert kernels["gemm_2"]["args"] == {"module": "layers.0.attn (Attention)"}
    assert "args" not in kernels["gemm_4"]
    calls = [event for event in found["thread 1"] if event["name"] == "nn.Module: Linear_0"]
    assert [event["args"] for event in calls] == [{"module": "layers.0.attn.qkv (Linear)"}]


def test_without_qualified_names_modules_are_classes_and_numbers(tmp_path: Path) -> None:
    traced(tmp_path, names=False)
    found = tracks(tmp_path)
    assert [event["name"] for event in found["perfkit: modules"]] == ["GPT_0", "Attention_0", "Linear_0"] * 2
    calls = [event for event in found["thread 1"] if event["name"] == "nn.Module: Linear_0"]
    assert not any("args" in event for event in calls)


def test_without_calls_of_modules_there_is_no_track(tmp_path: Path) -> None:
    TraceBuilder().step(0, 0, 100).op("aten::mm", 10, 50).write(tmp_path / "rank0.json")
    found = tracks(tmp_path)
    assert not [name for name in found if "module" in name or "loader" in name]
    assert not any("args" in event for slices in found.values() for event in slices)


def test_each_worker_has_a_track_of_what_the_steps_overlap(tmp_path: Path) -> None:
    traced(tmp_path)
    found = tracks(tmp_path)
    first, second = found["perfkit: loader worker 0"], found["perfkit: loader worker 1"]
    assert shown(first) == [
        ("batch", 0, 650),
        ("samples: reading", 0, 600),
        ("collating", 600, 50),
        ("batch", 1000, 3000),
        ("samples: one slow sample", 1000, 3000),
        ("collating", 4000, 0),
    ]
    assert shown(second) == [("batch", 0, 700), ("samples: transforming", 0, 400), ("collating", 400, 300)]
    slow = next(event for event in first if "slow sample" in event["name"])
    words = "4 samples, processor 0 % of the time, the slowest (number 17) took 2.90 ms"
    assert slow["args"] == {"samples": words}
    assert [event["name"] for event in tracks(tmp_path, steps="1")["perfkit: loader worker 0"]][:1] == ["batch"]
    assert "perfkit: loader worker 1" not in tracks(tmp_path, steps="1")


def test_steps_are_those_of_the_analysis_where_frames_tell_pauses(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 1000).op("aten::mm", 10, 50)
    builder.python_function("torch/serialization.py(944): save", 200, 600).write(tmp_path / "rank0.json")
    categories = tracks(tmp_path)["perfkit: where the time goes"]
    assert "checkpoint (not in the step)" in [event["name"] for event in categories]


@needs_trace_processor
@pytest.mark.slow
def test_perfetto_has_the_same_arguments(tmp_path: Path) -> None:
    traced(tmp_path)
    merge(tmp_path / "rank0.json", tmp_path / "merged.pftrace")
    timeline = TraceProcessor(tmp_path / "merged.pftrace")
    assert timeline.errors() == {}
    query = "select slice.name as name, key, string_value as text from slice join args using (arg_set_id) order by ts"
    rows = [(row["name"], row["key"], row["text"]) for row in timeline.query(query)]
    assert ("gemm_1", "debug.module", "layers.0.attn.qkv (Linear)") in rows
    assert ("gemm_2", "debug.module", "layers.0.attn (Attention)") in rows
    assert [row[0] for row in rows if row[1] == "debug.samples"] == [
        *("samples: reading", "samples: transforming", "samples: one slow sample")
    ]
    assert not any(row[0] == "gemm_4" for row in rows)
