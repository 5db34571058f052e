"""Causes of idle time add up to it, to the nanosecond, on generated and on real traces."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.engine.trace_summary import TraceSummary
from perfkit.records.per_rank.idle import CAUSES
from tests.support.traces import generated_traces as traces
from tests.support.traces.every_trace import every_real_trace, summary_of, summary_of_generated


def check(summary: TraceSummary) -> None:
    by_cause = dict.fromkeys(CAUSES, 0)
    for step in summary.steps:
        parts = msgspec.structs.asdict(step.idle_ns)
        assert sum(parts.values()) == step.exposed_ns.overhead
        assert all(part >= 0 for part in parts.values())
        by_cause = {cause: by_cause[cause] + parts[cause] for cause in CAUSES}
    for cause, total_ns in by_cause.items():
        rows = [row for row in summary.idle.causes if row.cause == cause]
        assert sum(row.total_ns for row in rows) == total_ns
        assert all(0 < row.max_ns <= row.total_ns <= row.count * row.max_ns for row in rows)


@st.composite
def stretched(draw: st.DrawFn) -> dict[str, Any]:
    """Return a generated trace with Python frames and tools' work, its times stretched to where limits apply."""
    document = draw(traces.traces())
    factor = draw(st.sampled_from((1, 100, 3000)))
    for event in document["traceEvents"]:
        if event.get("cat") in ("python_function", "cpu_op", "cuda_runtime", "kernel") and "dur" in event:
            event["dur"] = event["dur"] * factor
        if event.get("cat") == "overhead":
            event["name"] = draw(st.sampled_from(("Activity Buffer Request", "Lazy Function Loading")))
        if event.get("cat") == "cuda_runtime":
            event["name"] = draw(
                st.sampled_from(("cudaLaunchKernel", "cudaStreamSynchronize", "cudaMalloc", "cudaGraphLaunch"))
            )
    return document


@traces.slow_to_generate
@given(document=stretched())
def test_generated_traces(document: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    summary = summary_of_generated(document, tmp_path_factory)
    if summary is not None:
        check(summary)


@every_real_trace
def test_real_traces(path: Path) -> None:
    check(summary_of(path))
