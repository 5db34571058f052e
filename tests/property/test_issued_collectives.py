"""Sums over phases and layers are those of the dimensions, to the nanosecond, on generated and on real traces."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfkit.engine.trace_summary import TraceSummary
from perfkit.records.per_rank.sharding import IssuedCollectives
from perfkit.records.rank import CollectiveStat
from tests.support.traces import generated_traces as traces
from tests.support.traces.every_trace import REAL, summary_of, summary_of_generated

RENAMED = {
    "DistributedDataParallel.forward": (
        "FSDP::pre_forward (layers.0)",
        "FSDP::all_gather (layers.1)",
        "perfkit.backward",
    ),
    "Optimizer.step#Adam.step": (
        "FSDP::all_gather",
        "FSDP::post_backward_reduce (layers.0)",
        "Optimizer.step#Adam.step",
    ),
    "gloo:all_reduce": ("gloo:all_reduce", "gloo:all_gather"),
    "c10d::allreduce_": ("c10d::allreduce_", "c10d::_allgather_base_", "c10d::_reduce_scatter_base_"),
    traces.KERNELS[3]: ("ncclDevKernel_AllGather_RING_LL(x)", "ncclDevKernel_ReduceScatter_Sum_f32(x)"),
}


@st.composite
def sharded(draw: st.DrawFn) -> dict[str, Any]:
    """Return a generated trace in which some events bear names of FSDP's."""
    document = draw(traces.traces(max_groups=12))
    for event in document["traceEvents"]:
        if event.get("name") in RENAMED:
            event["name"] = draw(st.sampled_from(RENAMED[event["name"]]))
    return document


def sums(rows: Iterable[CollectiveStat | IssuedCollectives]) -> dict[Any, Counter[str]]:
    """Return count, bytes, total and exposed time by dimension and operator."""
    found: dict[Any, Counter[str]] = {}
    for row in rows:
        times = row.count if isinstance(row, CollectiveStat) else 1
        known = found.setdefault((row.dimension, row.operator), Counter())
        known.update(count=row.count, bytes=times * (row.bytes or 0), total=row.total_ns, exposed=row.exposed_ns)
    return found


def check(summary: TraceSummary) -> None:
    assert sums(summary.issued_collectives) == sums(summary.collectives)
    sharded = summary.sharded_parameters
    for row in sharded.gathers if sharded else ():
        parts = (row.late_ns, row.queued_ns, row.held_ns, row.first_ns, row.short_ns, row.synchronous_ns)
        assert min(parts) >= 0
        assert sum(parts) == row.exposed_ns <= row.total_ns
    if sharded:
        assert 0 <= sharded.tail_ns <= sharded.reductions_exposed_ns <= sharded.reductions_ns


@settings(
    max_examples=20,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(document=sharded())
def test_generated_traces(document: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    summary = summary_of_generated(document, tmp_path_factory)
    if summary is not None:
        check(summary)


@pytest.mark.parametrize(
    "path",
    [*sorted(REAL.glob("small/*.json.gz")), *REAL.glob("nccl-*/*.json.gz")],
    ids=lambda path: f"{path.parent.name}-{path.stem}",
)
def test_real_traces(path: Path) -> None:
    check(summary_of(path))
