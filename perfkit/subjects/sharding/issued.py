"""Sum collectives by dimension, operator, phase and layer (metrics.md section 12)."""

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from perfkit.engine.communication.collective_metadata import CollectiveKey, message_sizes
from perfkit.engine.communication.collectives import Collectives
from perfkit.engine.communication.issue_sites import UNKNOWN, Layers
from perfkit.engine.steps.passes import NO_PASS, Passes
from perfkit.records.aggregate import add_issued
from perfkit.records.per_rank.sharding import PASS_PHASES, IssuedCollectives, PassPhase
from perfkit.trace.intervals import Ints


def tabulate_issued(collectives: Collectives, passes: Passes, layers: Layers) -> list[IssuedCollectives]:
    """Return one row per dimension, operator, phase and layer; their sums are those of the collectives exactly."""
    kind, kinds = distinct_kinds(collectives)
    phase = phases_of(collectives, passes)
    columns = (kind, phase, layers.layer)
    key, place = group_rows(columns)
    size = message_sizes(collectives.kinds, len(collectives.kind))[collectives.kind]
    sums = (
        np.ones_like(size),
        np.maximum(size, 0),
        (size < 0).astype(np.int64),
        collectives.end - collectives.start,
        collectives.exposed,
    )
    return add_issued(
        IssuedCollectives(
            dimension=kinds[of][0],
            operator=kinds[of][1],
            phase=phase_name(in_phase),
            layer=layers.names[layer] if layer != UNKNOWN else None,
            count=count,
            bytes=total_bytes,
            unsized=unsized,
            total_ns=total_ns,
            exposed_ns=exposed_ns,
        )
        for (of, in_phase, layer), (count, total_bytes, unsized, total_ns, exposed_ns) in zip(
            key, sum_rows(sums, place, len(key)), strict=True
        )
    )


def distinct_kinds(collectives: Collectives) -> tuple[Ints, list[tuple[str | None, str]]]:
    """Return the index of each collective's dimension and operator, and the distinct ones."""
    pairs = [(kind.dimension, kind.operator) for kind in collectives.kinds]
    known = list(dict.fromkeys(pairs))
    number = {pair: place for place, pair in enumerate(known)}
    return np.array([number[pair] for pair in pairs] or [0], np.int64)[collectives.kind], known


def phases_of(collectives: Collectives, passes: Passes) -> Ints:
    """Return the index in `PASS_PHASES` of the pass that issued each collective, or `NO_PASS`."""
    of_pass = passes.of(collectives.issued)
    known = of_pass >= 0
    phase = np.full(len(of_pass), NO_PASS, np.int64)
    phase[known] = passes.phase[of_pass[known]]
    return phase


def phase_name(phase: int) -> PassPhase | None:
    """Return the name of a phase's index; None for `NO_PASS`."""
    return PASS_PHASES[phase] if phase != NO_PASS else None


def group_rows(columns: Sequence[Ints]) -> tuple[list[tuple[int, ...]], Ints]:
    """Return the distinct combinations of the columns' values (>= -1), and the place of each row's."""
    whole = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        whole = whole * (column.max(initial=0) + 2) + column + 1
    _, first, place = np.unique(whole, return_index=True, return_inverse=True)
    return list(zip(*(column[first].tolist() for column in columns), strict=True)), place


def sum_rows(columns: Iterable[Ints], place: Ints, count: int) -> list[list[int]]:
    """Return the exact sums of each column by `place`, one list per place."""
    sums = []
    for column in columns:
        total = np.zeros(count, np.int64)
        np.add.at(total, place, column)
        sums.append(total.tolist())
    return [list(row) for row in zip(*sums, strict=True)]


_SHARD: Final = "shard"
_DIVIDING: Final = frozenset({"tp", "cp", "ep", "pp"})


def serves_shards(kind: CollectiveKey) -> bool:
    """Return whether a collective's dimension is one that parameters are sharded along."""
    return _SHARD in _dimensions(kind)


def divides_layers(kind: CollectiveKey) -> bool:
    """Return whether a collective's dimension divides the work of layers, and no samples: it carries no parameters."""
    return kind.dimension is not None and _DIVIDING.issuperset(_dimensions(kind))


def _dimensions(kind: CollectiveKey) -> list[str]:
    return (kind.dimension or "").split("+")
