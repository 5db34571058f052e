"""Whether the ranks of a script are replicas of one model, trained on different data (metrics.md section 9)."""

from collections.abc import Iterator, Sequence
from typing import Final

from perfkit.records.common import Observation
from perfkit.records.manifest import RankRecord, ReplicaCheck
from perfkit.records.rank import CollectiveStat, RankReport

_DATA_PARALLEL: Final = frozenset({"dp", "replicate", "shard"})
_WRAPPERS: Final = ("DistributedDataParallel.", "FullyShardedDataParallel.", "FSDP::")
"""What annotations of those that broadcast the parameters themselves begin with."""
_SMALLEST_BYTES: Final = 64
"""Smaller all-reduces may be of a loss or a count."""
_DIFFERENT: Final = 0.01
"""Relative difference of two elements from which they are not one: replicas differ by rounding, if at all."""


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
    first = known[0].batches
    if len(set(first)) > 1 and all(check.batches == first for check in known):
        yield Observation("same_batches", {"ranks": world_size, "batches": len(first)})
    differing = [number for number, check in enumerate(known) if _differ(check, known[0])]
    if by_hand and differing:
        values = {"ranks": differing, "bytes": known[0].parameters_bytes}
        yield Observation("replicas_differ", values, rank=differing[0])


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
    """Return whether a rank all-reduces as many bytes per step as the parameters have, and nothing but a loss."""
    rows, steps = [row for row in rank.collectives if row.operator != "barrier"], len(rank.steps)
    wrapped = any(phase.name.startswith(_WRAPPERS) for phase in rank.phases)
    if wrapped or not steps or check.parameters_bytes is None:
        return False
    if any(row.operator != "all_reduce" or row.dimension or row.bytes is None for row in rows):
        return False
    sizes = [(row.bytes or 0, (row.bytes or 0) * row.count / steps) for row in rows]
    every, large = (sum(each for size, each in sizes if size > least) for least in (0, _SMALLEST_BYTES))
    return large <= check.parameters_bytes <= every


def _differ(one: ReplicaCheck, other: ReplicaCheck) -> bool:
    """Return whether half of the elements differ by more than rounding: some parameters begin with zeros."""
    pairs = list(zip(one.parameters, other.parameters, strict=False))
    apart = sum(abs(own - its) > _DIFFERENT * max(abs(own), abs(its)) for own, its in pairs)
    return 2 * apart >= len(pairs) > 0
