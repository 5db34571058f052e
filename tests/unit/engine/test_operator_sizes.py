"""How much kernels and operators work on: blocks of launches, elements of inputs, and nothing that cannot be."""

from pathlib import Path
from typing import Any

import pytest

from perfkit.engine.trace_summary import TraceSummary
from perfkit.pipeline.summarize import summarize_trace
from perfkit.records.aggregate import add_operators
from perfkit.trace.reader import read_trace
from tests.support.reports.report_builders import make_operator
from tests.support.traces.trace_builder import TraceBuilder


def summarized(builder: TraceBuilder, folder: Path) -> TraceSummary:
    path = builder.write(folder / "t.json")
    return summarize_trace(read_trace(path), path.name)


def kernels(folder: Path, *grids: Any) -> int | None:
    builder = TraceBuilder().step(1, 0, 1000)
    for number, grid in enumerate(grids):
        builder.launch(number, 100 * number, 5)
        args = {} if grid is None else {"grid": grid, "block": [128, 1, 1]}
        builder.kernel("gemm", 100 * number + 10, 50, number, args=args)
    (row,) = summarized(builder, folder).operators
    return row.size


@pytest.mark.parametrize(
    ("grids", "size"),
    [
        (([4, 2, 1], [4, 2, 3]), 32),
        (([4, 2, 1], None), None),
        (([4, 2, 1], [4, 2]), None),
        (([4, 2, 1], [2**40, 2**40, 1]), None),
        (([-4, -2, 1],), None),
        (([0, 0, 0],), 0),
    ],
)
def test_the_blocks_of_kernels_are_summed(tmp_path: Path, grids: list[Any], size: int | None) -> None:
    assert kernels(tmp_path, *grids) == size


@pytest.mark.parametrize(
    ("dims", "size"),
    [
        ([[4, 8], [8, 2]], 48),
        ([[4, 8], [], []], 32),
        ([[[2, 3], [4]], []], 10),
        ([[4, "x"]], 0),
        ([[2**62, 2**62]], None),
        ([[-1]], None),
        ("damaged", None),
        (None, None),
    ],
)
def test_the_elements_of_inputs_are_summed(tmp_path: Path, dims: Any, size: int | None) -> None:
    args = {} if dims is None else {"Input Dims": dims, "Input type": ["float"]}
    builder = TraceBuilder().step(1, 0, 1000).op("aten::addmm", 10, 20, args=args)
    (row,) = summarized(builder, tmp_path).operators
    assert row.size == size


def test_deep_lists_are_not_followed(tmp_path: Path) -> None:
    deep: Any = [7]
    for _ in range(200):
        deep = [deep]
    args = {"Input Dims": deep, "Input type": ["float"]}
    (row,) = summarized(TraceBuilder().step(1, 0, 99).op("aten::cat", 10, 20, args=args), tmp_path).operators
    assert row.size in (0, None)


def test_a_sum_over_ranks_is_known_if_each_is() -> None:
    one, other = make_operator("mm", size=3), make_operator("mm", size=4)
    assert add_operators([one, other])[0].size == 7
    assert add_operators([one, other, make_operator("mm")])[0].size is None
