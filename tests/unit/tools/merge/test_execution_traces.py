"""Chakra execution traces: read back by the rules of protocol buffers, they are the graph, without cycles."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from perfkit.errors import UsageError
from perfkit.tools.merge.merge import merge
from tests.support.traces.nsys_training import BYTES, training

RANKS, STEPS = 3, 4
COMPUTE, COLLECTIVE, ALL_REDUCE = 4, 7, 0


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            return value, at


def messages(data: bytes) -> Iterator[bytes]:
    """Yield messages, each after its length."""
    at = 0
    while at < len(data):
        size, at = varint(data, at)
        yield data[at : at + size]
        at += size


def fields(message: bytes) -> dict[int, list[Any]]:
    """Return numbers and bytes by field."""
    found: dict[int, list[Any]] = defaultdict(list)
    at = 0
    while at < len(message):
        tag, at = varint(message, at)
        value, at = varint(message, at)
        if tag & 7 == 2:
            value, at = message[at : at + value], at + value  # type: ignore[assignment]
        found[tag >> 3].append(value)
    return found


def numbers(packed: bytes) -> list[int]:
    found, at = [], 0
    while at < len(packed):
        value, at = varint(packed, at)
        found.append(value)
    return found


def attributes(node: dict[int, list[Any]]) -> dict[bytes, int]:
    return {one[1][0]: (one[9] + one[27])[0] for one in map(fields, node[10])}


def test_nodes_come_after_what_they_depend_on(tmp_path: Path) -> None:
    source = training(tmp_path / "run.sqlite", "2025", ranks=RANKS, steps=STEPS)

    merged = merge(source, tmp_path / "run.et")

    files = [tmp_path / f"run.{rank}.et" for rank in range(RANKS)]
    assert sorted(tmp_path.glob("*.et")) == files
    read = 0
    for file in files:
        version, *nodes = map(fields, messages(file.read_bytes()))
        read += len(nodes)
        assert version[1] == [b"0.0.4"]
        assert [node[1] for node in nodes] == [[place] for place in range(len(nodes))]
        needed = [numbers(packed) for node in nodes for packed in node[5]]
        assert sum(map(len, needed)) >= len(nodes) - RANKS
        assert all(one < node[1][0] for node in nodes for packed in node[5] for one in numbers(packed))
        collectives = [node for node in nodes if node[3] == [COLLECTIVE]]
        assert [(node[2], attributes(node)) for node in collectives] == [
            ([b"all_reduce"], {b"is_cpu_op": 0, b"comm_type": ALL_REDUCE, b"comm_size": BYTES})
        ] * STEPS
        # Each waits for the host to issue it, and the kernel before it is not lost.
        assert all(node[5] for node in collectives)
        work = [node for node in nodes if node[2] == [b"aten::addmm"] and not attributes(node)[b"is_cpu_op"]]
        assert [node[7] for node in work][:2] == [[1970], [4000]]  # copy and kernel
    assert merged.slices == read


def test_steps_are_chosen_and_ranks_are_not(tmp_path: Path) -> None:
    source = training(tmp_path / "run.sqlite", "2025", ranks=2)

    merge(source, tmp_path / "run.et", steps="2-3")

    nodes = map(fields, messages((tmp_path / "run.0.et").read_bytes()))
    assert sum(node[3] == [COLLECTIVE] for node in nodes) == 2
    with pytest.raises(UsageError, match="have all ranks"):
        merge(source, tmp_path / "run.et", ranks="0")
