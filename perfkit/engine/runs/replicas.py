"""Whether the ranks of a script are replicas of one model, trained on different data (metrics.md section 9)."""

from collections.abc import Iterator, Sequence
from typing import Final

from perfkit.base.dtypes import DTYPES
from perfkit.records.common import Observation
from perfkit.records.manifest import RankRecord, ReplicaCheck
from perfkit.records.rank import CollectiveStat, RankReport

_DATA_PARALLEL: Final = frozenset({"dp", "replicate", "shard"})
_WRAPPERS: Final = ("DistributedDataParallel.", "FullyShardedDataParallel.", "FSDP::")
"""What annotations of those that broadcast the parameters themselves begin with."""
_SMALLEST_BYTES: Final = 64
"""Smaller all-reduces may be of a loss or a count."""


def replica_findings(
    ranks: Sequence[RankReport], records: Sequence[RankRecord], world_size: int
) -> Iterator[Observation]:
    """Yield what is wrong with replicas; nothing where ranks may have parts of a model, or of a sample.

    Args:
        ranks: of the traces.
        records: of the manifest.
    """
    checks = [record.check for record in sorted(records, key=lambda record: record.rank)]
    known = [check for check in checks if check is not None]
    if not len(known) == len(ranks) == world_size > 1 or not all(_is_replica(rank, world_size) for rank in ranks):
        return
    by_hand = all(_reduces_by_hand(rank, check) for rank, check in zip(ranks, known, strict=True))
    if not by_hand and not all(_is_wrapped(rank) for rank in ranks):
        return
    first = known[0]
    if len(set(first.batches)) > 1 and all(_sees_the_same(check, first) for check in known):
        yield Observation("same_batches", {"ranks": world_size, "steps": len(first.batches)})
    differing = [number for number, check in enumerate(known) if _differs(check, first)]
    if by_hand and differing:
        yield Observation("replicas_differ", {"ranks": differing, "count": first.parameters}, rank=differing[0])


def _is_replica(rank: RankReport, world_size: int) -> bool:
    """Return whether nothing that a rank exchanges shows that it has a part of a model or of its samples."""
    return all(
        row.group_size in {None, world_size}
        and (_of_replicas(row) if row.dimension else row.operator in {"all_reduce", "broadcast", "barrier"})
        for row in rank.collectives
    )


def _of_replicas(row: CollectiveStat) -> bool:
    return set((row.dimension or "").split("+")) <= _DATA_PARALLEL


def _is_wrapped(rank: RankReport) -> bool:
    """Return whether DDP or FSDP reduces its gradients."""
    return any(row.ddp_bucket or (row.dimension and row.operator == "reduce_scatter") for row in rank.collectives)


def _reduces_by_hand(rank: RankReport, check: ReplicaCheck) -> bool:
    """Return whether a rank all-reduces each parameter once per step or micro-step, and nothing else but a loss."""
    rows, steps = [row for row in rank.collectives if row.operator != "barrier"], len(rank.steps)
    wrapped = any(phase.name.startswith(_WRAPPERS) for phase in rank.phases)
    if wrapped or not steps or not check.parameters:
        return False
    if any(row.operator != "all_reduce" or row.dimension or not _elements(row) for row in rows):
        return False
    every, large = (
        sum(_elements(row) * row.count / steps for row in rows if (row.bytes or 0) > least)
        for least in (0, _SMALLEST_BYTES)
    )
    times = max(1, round(large / check.parameters))
    return large <= times * check.parameters <= every


def _elements(row: CollectiveStat) -> int:
    """Return the numbers in a message: gradients may be reduced in fewer bits than parameters have; 0 if unknown."""
    _, size = DTYPES.get(row.dtype or "", (None, 0))
    return (row.bytes or 0) // size if size else 0


def _sees_the_same(one: ReplicaCheck, other: ReplicaCheck) -> bool:
    return one.batches == other.batches and one.loaded == other.loaded


def _differs(one: ReplicaCheck, other: ReplicaCheck) -> bool:
    """Return whether an optimizer's parameters differ in any bit, both before its first update and after two."""
    first, later = zip(one.initial, other.initial, strict=False), zip(one.updated, other.updated, strict=False)
    return any(a != b and c != d for (a, b), (c, d) in zip(first, later, strict=False))
