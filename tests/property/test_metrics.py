"""The analysis against an independent implementation of metrics.md sections 1 to 4, on generated and on real traces."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given

from perfkit.errors import TraceError
from perfkit.pipeline.summarize import summarize_trace
from perfkit.records.common import CATEGORIES
from perfkit.trace.reader import read_trace
from tests.support.traces import generated_traces as traces
from tests.support.traces import reference, trace_builder
from tests.support.traces.every_trace import every_real_trace


def figures_of_reference(trace: Path | dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "step": step.step,
            "start_ns": step.start_ns,
            "wall_ns": step.wall_ns,
            "exposed_ns": dict(step.exposed_ns),
            "total_ns": dict(step.total_ns),
            "loads": sorted(step.loads),
        }
        for step in reference.reference(trace)
    ]


def figures_of_product(path: Path) -> list[dict[str, Any]]:
    try:
        summary = summarize_trace(read_trace(path), path.name)
    except TraceError:  # no step and no work: the reference returns an empty list
        return []
    return [
        {
            "step": step.step,
            "start_ns": step.start_ns,
            "wall_ns": step.wall_ns,
            "exposed_ns": msgspec.structs.asdict(step.exposed_ns),
            "total_ns": msgspec.structs.asdict(step.total_ns),
            "loads": sorted(step.loads.spans_ns),
        }
        for step in summary.steps
    ]


@traces.slow_to_generate
@given(document=traces.traces())
def test_generated_traces(document: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = trace_builder.write(document, tmp_path_factory.getbasetemp() / "generated.json")
    assert figures_of_product(path) == figures_of_reference(path)


@every_real_trace
def test_real_traces(path: Path) -> None:
    product = figures_of_product(path)
    assert product == figures_of_reference(path)
    for step in product:
        assert sum(step["exposed_ns"][category] for category in CATEGORIES) == step["wall_ns"]
