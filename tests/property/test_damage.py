"""Damage of known size in real and generated traces: no figure changes by more than that, or a finding says so."""

import copy
import json
import random
from functools import cache
from itertools import product
from pathlib import Path

import pytest

from perfkit.subjects.critical_path.summarize import summarize_path
from tests.support.traces.every_trace import REAL
from tests.support.traces.mutations import (
    MUTATIONS,
    Document,
    duplicate_host,
    figures,
    host_of,
    jitter,
    largest_change_ns,
    overrun_host,
    read_document,
    work_of,
)
from tests.support.traces.step_graphs import graph_of
from tests.support.traces.trace_builder import TraceBuilder, encode, write

GENERATED = ("one stream", "two streams")
LARGE_BYTES = 500_000
"""Compressed: a trace that takes a second to write and read is damaged once in each way."""
TIMES = 3
UNSEEN_NS = 1_000_000
"""By less the device's clock may be ahead without contradicting a launch."""


def generated(name: str) -> Document:
    """Return three steps of 24 kernels on one stream, or with as many collectives on a second one."""
    rng = random.Random(name)  # noqa: S311
    builder, free = TraceBuilder(), [0, 0]
    for step in range(3):
        begin = 30_000 * step
        builder.step(step, begin, 30_000).op("aten::mm", begin + 10, 20_000)
        for place in range(24):
            for stream in range(1 + (name == GENERATED[1])):
                number = 1 + 2 * (24 * step + place) + stream
                launched = begin + 20 + 50 * place + 10 * stream
                start = max(launched + rng.randint(5, 20), free[stream] + rng.randint(0, 300))
                length = rng.randint(50, 900)
                kernel = ("gemm", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)")[stream]
                builder.launch(number, launched, 4).kernel(kernel, start, length, number, stream=7 + stream)
                free[stream] = start + length
    document: Document = json.loads(encode(builder.to_dict()))
    return document


@cache
def document_of(name: str) -> Document:
    return generated(name) if name in GENERATED else read_document(REAL / name)


def cases() -> list[tuple[str, str, int]]:
    paths = [path for path in sorted(REAL.rglob("*.json.gz")) if len(work_of(read_document(path)["traceEvents"])) > 3]
    sizes = {path.relative_to(REAL).as_posix(): path.stat().st_size for path in paths} | dict.fromkeys(GENERATED, 0)
    return [
        (name, mutation, seed)
        for name, size in sizes.items()
        for mutation in MUTATIONS
        for seed in range(1 if size > LARGE_BYTES else TIMES)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS)
def test_damage_changes_no_figure_by_more_than_itself_or_is_said(tmp_path: Path, mutation: str) -> None:
    silent = []
    own = [(name, seed) for name, of, seed in cases() if of == mutation]
    for name, seed in own:
        document = document_of(name)
        before = figures(document, tmp_path / "before.json")
        damaged = {**document, "traceEvents": copy.deepcopy(document["traceEvents"])}
        rng = random.Random(f"{name} {seed}")  # noqa: S311
        allowed_ns = 1_000 * MUTATIONS[mutation](rng, damaged["traceEvents"])
        after = figures(damaged, tmp_path / "after.json")
        said = [code for code in after.findings if after.findings.count(code) > before.findings.count(code)]
        rounded_ns = UNSEEN_NS if mutation == "clock" else 2_000
        if largest_change_ns(before, after) > allowed_ns + rounded_ns and not said:
            silent.append((name, seed, largest_change_ns(before, after), allowed_ns))
    assert len(own) > 20
    assert not silent


every_small_trace = pytest.mark.parametrize(
    "name", [*(path.relative_to(REAL).as_posix() for path in sorted(REAL.glob("small/*.json.gz"))), *GENERATED]
)


def damaged(name: str) -> Document:
    return {**document_of(name), "traceEvents": copy.deepcopy(document_of(name)["traceEvents"])}


@every_small_trace
def test_host_events_that_are_there_twice_change_nothing_and_are_said(tmp_path: Path, name: str) -> None:
    before = figures(document_of(name), tmp_path / "before.json")
    for seed in range(TIMES):
        document = damaged(name)
        duplicate_host(random.Random(seed), document["traceEvents"])  # noqa: S311
        after = figures(document, tmp_path / "after.json")
        assert (after.steps, after.counts) == (before.steps, before.counts)
        assert len(after.findings) > len(before.findings)


@every_small_trace
def test_a_host_event_that_overruns_the_next_is_said(tmp_path: Path, name: str) -> None:
    before = figures(document_of(name), tmp_path / "before.json")
    for seed in range(TIMES):
        document = damaged(name)
        overrun_host(random.Random(seed), document["traceEvents"])  # noqa: S311
        after = figures(document, tmp_path / "after.json")
        assert after.steps == before.steps or len(after.findings) > len(before.findings)


@every_small_trace
def test_a_microsecond_more_or_less_changes_the_critical_path_by_no_more(tmp_path: Path, name: str) -> None:
    before = path_ns(document_of(name), tmp_path)
    for seed, chosen in product(range(TIMES), (work_of, host_of)):
        document = damaged(name)
        moved_us = jitter(random.Random(seed), chosen(document["traceEvents"]))  # noqa: S311
        after = path_ns(document, tmp_path)
        changed_ns = [abs(after.get(kind, 0) - before.get(kind, 0)) for kind in before.keys() | after.keys()]
        assert max(changed_ns) <= 1_000 * moved_us + 4_000


def path_ns(document: Document, tmp_path: Path) -> dict[str, int]:
    graph = graph_of(write(document, tmp_path / "rank0.json"))
    return {row.kind: row.total_ns for row in summarize_path(graph, len(graph.steps), 0, []).kinds}
