"""Samples of a real recording: on the clock of its trace, and only if wanted."""

import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.profiler import record_function

import perfkit
from perfkit.engine.trace_context import TraceContext
from perfkit.trace.events import EventKind
from perfkit.trace.reader import read_trace

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs timers of Linux")


def busy() -> None:
    until = time.perf_counter() + 0.1
    while time.perf_counter() < until:
        sum(range(500))


def record(folder: Path, *, sampling: bool = True) -> TraceContext:
    with perfkit.profile(folder / "run", schedule="wait=0,warmup=1,active=3", sampling=sampling) as prof:
        for _ in range(5):
            torch.ones(64).sum()
            with record_function("busy"):
                busy()
            time.sleep(0.05)
            prof.step()
    (path,) = prof.folder.glob("rank0.json.gz")
    return TraceContext(read_trace(path), path.name)


def test_they_are_on_the_trace_s_clock(tmp_path: Path) -> None:
    trace = record(tmp_path)
    events, samples = trace.events, trace.samples
    assert samples is not None
    rows = [row for row in events.rows(EventKind.ANNOTATION) if events.names[events.name[row]] == "busy"]
    start, end = events.start_ns[rows], events.end_ns[rows]
    names = [samples.names[number].rpartition(": ")[2] if number >= 0 else "" for number in samples.own]
    within = [bool(((start <= at) & (at < end)).any()) for at in samples.seen_ns]
    # A sample at the very end of the span may be noted after it.
    assert np.mean([name == "busy" for name, inside in zip(names, within, strict=True) if inside]) > 0.8
    assert np.mean([inside for name, inside in zip(names, within, strict=True) if name == "busy"]) > 0.8
    assert sum(within) >= 10


def test_without_sampling_there_are_none(tmp_path: Path) -> None:
    assert record(tmp_path, sampling=False).samples is None
