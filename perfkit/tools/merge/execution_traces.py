"""Write the graph of a run's steps as execution traces for simulators, one file per rank.

The format is MLCommons Chakra's (schema/protobuf/et_def.proto): a message with the version, then a message per node,
each after its length. Nodes come after what they depend on, so there is no cycle.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.base.protobuf_columns import message, number, text, varint
from perfkit.engine.step_graph import graph as kinds
from perfkit.engine.step_graph.graph import StepGraph
from perfkit.errors import UsageError
from perfkit.report.output_files import writing_bytes
from perfkit.trace.intervals import Ints, distinct

SUFFIX: Final = ".et"
_VERSION: Final = "0.0.4"
_COMPUTE, _COLLECTIVE = 4, 7
"""`NodeType`: COMP_NODE and COMM_COLL_NODE."""
_COLLECTIVES: Final = {
    "all_reduce": 0,
    "reduce": 1,
    "all_gather": 2,
    "gather": 3,
    "scatter": 4,
    "broadcast": 5,
    "all_to_all": 6,
    "reduce_scatter": 7,
    "barrier": 9,
}
"""`CollectiveCommType`. A graph has no peers of messages: these, and unknown operators, are nodes that last as long as
measured."""
_ID, _NAME, _TYPE, _DATA_DEPENDENCIES, _START, _DURATION, _ATTRIBUTE = 1, 2, 3, 5, 6, 7, 10
_ATTRIBUTE_NAME, _INT64, _BOOL = 1, 9, 27
_US: Final = 1000


class Written(NamedTuple):
    """What was written."""

    nodes: int
    bytes: int


def paths(output: Path, ranks: int) -> list[Path]:
    """Return the file of each rank, as ASTRA-sim looks for them: `run.et` is `run.0.et`, `run.1.et` and so on."""
    return [output.with_name(f"{output.stem}.{place}{SUFFIX}") for place in range(ranks)]


def write_execution_traces(graph: StepGraph, output: Path, steps: NDArray[np.bool_]) -> Written:
    """Write a file per rank, numbered in order of the ranks.

    Args:
        steps: which of the graph's steps to write.

    Raises:
        UsageError: it has none of them.
        StoreError: a file cannot be written.
    """
    if not steps.any():
        raise UsageError(f"-o {output}: the run's graph has none of these steps")
    source, target = _dependencies(graph)
    nodes = size = 0
    for rank, path in zip(graph.ranks, paths(output, len(graph.ranks)), strict=True):
        row = np.flatnonzero((graph.nodes.rank == rank) & steps[graph.nodes.step])
        place = np.full(len(graph.nodes.rank), -1, np.int64)
        place[row] = np.arange(len(row))
        own = (place[source] >= 0) & (place[target] >= 0)
        with writing_bytes(path) as stream:
            for encoded in _messages(graph, row, place[source[own]], place[target[own]]):
                stream.write(varint(len(encoded)) + encoded)
        nodes, size = nodes + len(row), size + path.stat().st_size
    return Written(nodes, size)


def _dependencies(graph: StepGraph) -> tuple[Ints, Ints]:
    """Return the dependencies between nodes of one rank, each once, by target.

    Those through a node of no rank, at which all ranks have joined a collective, are among them: it is the simulator
    that lets ranks wait for each other.
    """
    source, target = graph.edges.source.astype(np.int64), graph.edges.target.astype(np.int64)
    rank = graph.nodes.rank
    into, out = np.flatnonzero(rank[target] < 0), np.flatnonzero(rank[source] < 0)
    ranks = int(rank.max(initial=0)) + 1
    # A rank has at most one node that joins a collective, and one that transfers.
    key_in, key_out = target[into] * ranks + rank[source[into]], source[out] * ranks + rank[target[out]]
    _, at_in, at_out = np.intersect1d(key_in, key_out, return_indices=True)
    source = np.concatenate((source, source[into[at_in]]))
    target = np.concatenate((target, target[out[at_out]]))
    kept = (rank[source] == rank[target]) & (rank[source] >= 0)
    pairs = distinct(target[kept] * len(rank) + source[kept])
    return pairs % len(rank), pairs // len(rank)


def _messages(graph: StepGraph, row: Ints, source: Ints, target: Ints) -> Iterator[bytes]:
    """Yield the encoded messages of a rank; `source` and `target` count the rank's nodes."""
    yield text(1, _VERSION)
    nodes = graph.nodes.where(row)
    # Times are whole microseconds, of starts and ends: durations of a lane add up to its time.
    begin = nodes.start.min(initial=np.iinfo(np.int64).max) if len(row) else 0
    start, end = (nodes.start - begin) // _US, (nodes.end - begin) // _US
    first = np.searchsorted(target, np.arange(len(row) + 1)).tolist()
    columns = (start.tolist(), (end - start).tolist(), nodes.kind.tolist(), nodes.name.tolist(), nodes.bytes.tolist())
    for place, (at, duration, kind, name, size) in enumerate(zip(*columns, strict=True)):
        called = graph.names[name] if name >= 0 else kinds.KINDS[kind]
        collective = _COLLECTIVES.get(called) if kind == kinds.COMMUNICATION else None
        is_host = kind in (kinds.POINT, kinds.HOST)
        needed = source[first[place] : first[place + 1]].tolist()
        yield b"".join(
            (
                number(_ID, place),
                text(_NAME, called),
                number(_TYPE, _COMPUTE if collective is None else _COLLECTIVE),
                message(_DATA_DEPENDENCIES, *map(varint, needed)) if needed else b"",
                number(_START, at),
                number(_DURATION, duration),
                message(_ATTRIBUTE, text(_ATTRIBUTE_NAME, "is_cpu_op"), number(_BOOL, is_host)),
                *(_of_collective(collective, size) if collective is not None else ()),
            )
        )


def _of_collective(kind: int, size: int) -> Iterator[bytes]:
    yield message(_ATTRIBUTE, text(_ATTRIBUTE_NAME, "comm_type"), number(_INT64, kind))
    if size >= 0:
        yield message(_ATTRIBUTE, text(_ATTRIBUTE_NAME, "comm_size"), number(_INT64, size))
