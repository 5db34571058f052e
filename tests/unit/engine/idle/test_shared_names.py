"""Idle time in annotations that differ only in their micro-batch or layer is one row, and one name of the graph."""

from pathlib import Path

import numpy as np
import pytest

from perfkit.engine.idle.pieces import FIXED, Texts
from perfkit.pipeline.summarize import summarize_trace
from perfkit.trace.events import RankTrace
from perfkit.trace.reader import read_trace
from tests.support.traces.trace_builder import TraceBuilder

NAMES = {
    "perfkit.pipeline.{}F0": ["perfkit.pipeline.0F", "perfkit.pipeline.1F"],
    "perfkit.pipeline.0F{}": ["perfkit.pipeline.0F"],
    "PP:2W{}": ["PP:2W"],
    "PP:3SEND_F{}": ["PP:SEND_F"],
    "FSDP::all_gather (layers.{})": ["FSDP::all_gather"],
    "batch {}": ["batch 0", "batch 1"],
}


def traced(tmp_path: Path, name: str) -> RankTrace:
    """A step with an annotation of 30 us and one of 40 us, and nothing in them."""
    builder = TraceBuilder().step(0, 0, 1_000).op("aten::mm", 0, 10)
    for number in range(2):
        builder.annotation(name.format(number), 100 * (number + 1), 30 + 10 * number)
    return read_trace(builder.op("aten::mm", 990, 10).write(tmp_path / "rank0.json"))


@pytest.mark.parametrize("name", NAMES)
def test_rows_of_one_kind_are_added_up(tmp_path: Path, name: str) -> None:
    found = summarize_trace(traced(tmp_path, name), "rank0.json").idle.causes
    rows = {row.detail: (row.count, row.total_ns) for row in found if row.detail[:3] == name[:3]}
    each = [(1, 30_000), (1, 40_000)]
    assert rows == (
        dict(zip(NAMES[name], each, strict=True)) if len(NAMES[name]) == 2 else {NAMES[name][0]: (2, 70_000)}
    )


@pytest.mark.parametrize("name", NAMES)
def test_all_texts_are_those_of_each(tmp_path: Path, name: str) -> None:
    trace = traced(tmp_path, name)
    texts = Texts(trace.events, trace.frames)
    numbers = np.arange(len(texts))
    assert texts.all_of(numbers) == [texts.text(number) for number in numbers.tolist()]
    assert texts.of_event_name(np.array([-1])).tolist() == [-1]
    shared = texts.of_event_name(np.arange(len(trace.events.names)))
    shown = {texts.text(number) for number in shared.tolist()}
    assert {text for text in shown if text and text[:3] == name[:3]} == set(NAMES[name])
    assert shared.min() >= len(FIXED)
