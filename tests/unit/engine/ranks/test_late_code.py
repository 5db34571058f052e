"""The line at which a late rank is late."""

from pathlib import Path

import pytest

from perfkit.pipeline import analyze as pipeline
from perfkit.pipeline.losses import find_losses
from perfkit.records.run import RunReport
from tests.support.traces.samples import Stack, header, recorded
from tests.support.traces.trace_builder import TraceBuilder

STEPS = 8
STEP = 20_000
"""Microseconds."""
MAIN = ("train.py(1): <module>", 40)


def analyse(folder: Path, *late: int, by: Stack) -> RunReport:
    """Two ranks; a late one spends 10 ms of each step in a function that the other leaves at once."""
    for rank in range(2):
        builder = TraceBuilder(rank, 2, backend="gloo")
        rows = []
        for step in range(STEPS):
            at, waits = STEP * step, 11_000 if rank in late else 1_000
            builder.step(step, at, STEP).op("aten::mm", at + waits, 2_000)
            builder.gloo("all_reduce", at + waits + 2_000, STEP - waits - 2_000)
            rows += [(at + 1_000 * k, by if k * 1_000 < waits else [MAIN]) for k in range(1, 20)]
        builder.header(perfkit=header(recorded(rows), rank=rank, world_size=2)).write(folder / f"rank{rank}.json")
    (run,) = pipeline.analyze(folder, cache=False).runs
    return run


def code_of_loss(run: RunReport) -> str | None:
    (found,) = [one.loss for one in find_losses([run], None).ranked if one.loss.cause == "straggler"]
    return found.code


def test_the_function_and_line_are_those_of_the_late_rank(tmp_path: Path) -> None:
    run = analyse(tmp_path, 1, by=[("train.py(7): tokenize", 9, "words.get"), MAIN])
    assert run.cross_rank is not None
    (row,) = run.cross_rank.stragglers
    assert row.code is not None
    assert (row.rank, row.code.text, row.code.call) == (1, "tokenize, train.py:9", "words.get")
    assert row.code.ns == pytest.approx(STEPS * 10_000_000, rel=0.1)
    assert code_of_loss(run) == "tokenize, train.py:9"


def test_code_outside_of_functions_has_a_line_alone(tmp_path: Path) -> None:
    run = analyse(tmp_path, 1, by=[("train.py(1): <module>", 12, "time.sleep")])
    assert code_of_loss(run) == "train.py:12"
