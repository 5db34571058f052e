"""Kernels of batched sends and receives: what they are is told by the messages issued before their launch."""

from pathlib import Path
from typing import Any

import pytest

import perfkit
from perfkit.records.rank import CollectiveStat
from tests.support.traces.device_pipeline import KERNEL
from tests.support.traces.trace_builder import TraceBuilder, collective_args

RANKS = (0, 1, 2, 3)


def message(operator: str, peer: int, elements: int = 8) -> dict[str, Any]:
    side = "Dst Rank" if operator == "send" else "Src Rank"
    args = collective_args(operator, elements, elements, "Float", "3", "mesh_cp", RANKS, 7)
    return args | {side: peer}


def rows(folder: Path, builder: TraceBuilder) -> list[tuple[str, int | None, str | None, int]]:
    """Return operator, bytes, dimension and number of the collectives of a trace, in the order of the report."""
    builder.step(0, 0, 1000).launch(90, 900, 1).kernel("gemm", 910, 5, 90).write(folder / "trace0.json")
    (run,) = perfkit.analyze(folder, cache=False).runs
    (rank,) = run.ranks

    def row(one: CollectiveStat) -> tuple[str, int | None, str | None, int]:
        return one.operator, one.bytes, one.dimension, one.count

    return sorted(map(row, rank.collectives), key=str)


def batch(builder: TraceBuilder, at: int, *messages: dict[str, Any], tid: int = 1) -> TraceBuilder:
    """Add messages and, after them, the launch of their kernel."""
    for place, args in enumerate(messages):
        builder.op("record_param_comms", at + 5 * place, 4, tid, args=args)
    builder.launch(at, at + 50, 2, tid)
    return builder.kernel(KERNEL, at + 60, 20, at, 20)


@pytest.mark.parametrize(
    ("messages", "row"),
    [
        ([message("send", 1)], ("send", 32, "cp", 1)),
        ([message("recv", 1)], ("recv", 32, "cp", 1)),
        ([message("send", 1), message("send", 2, 16)], ("send", None, "cp", 1)),
        ([message("send", 1), message("recv", 1)], ("send_recv", None, "cp", 1)),
        ([message("send", 1), message("recv", 3)], ("send_recv", None, "cp", 1)),
        ([], ("send_recv", None, None, 1)),
    ],
)
def test_what_a_batch_is(tmp_path: Path, messages: list[dict[str, Any]], row: tuple[Any, ...]) -> None:
    assert rows(tmp_path, batch(TraceBuilder(0, 4), 100, *messages)) == [row]


def test_a_message_belongs_to_the_next_launch_of_its_thread(tmp_path: Path) -> None:
    builder = batch(batch(TraceBuilder(0, 4), 100, message("send", 1)), 200, message("recv", 1), tid=2)
    batch(batch(builder, 300), 400, message("recv", 3, 16))
    expected = [("recv", 32, "cp", 1), ("recv", 64, "cp", 1), ("send", 32, "cp", 1), ("send_recv", None, None, 1)]
    assert rows(tmp_path, builder) == expected


def test_messages_with_kernels_of_their_own_are_in_no_batch(tmp_path: Path) -> None:
    args = message("send", 1)
    builder = TraceBuilder(0, 4).op("record_param_comms", 10, 20, args=args).launch(5, 12, 2)
    builder.kernel(KERNEL, 40, 10, 5, 20)  # described by what encloses its launch
    builder.op("record_param_comms", 60, 20, args=args).launch(6, 62, 2).kernel(KERNEL, 80, 10, 6, 20, args=args)
    assert rows(tmp_path, batch(builder, 100)) == [("send", 32, "cp", 2), ("send_recv", None, None, 1)]
