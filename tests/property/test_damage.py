"""Damage of known size in real and generated traces: no figure changes by more than that, or a finding says so."""

import copy
import json
import random
from functools import cache
from pathlib import Path

import pytest

from tests.support.traces.every_trace import REAL
from tests.support.traces.mutations import MUTATIONS, Document, figures, largest_change_ns, read_document, work_of
from tests.support.traces.trace_builder import TraceBuilder, encode

pytestmark = pytest.mark.slow

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
