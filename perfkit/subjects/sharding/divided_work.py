"""Communication of tensor, context and expert parallelism against compute (metrics.md section 12)."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal

from perfkit.records.cross_rank import CrossRankSummary
from perfkit.records.manifest import ExpertLoad, RunManifest
from perfkit.records.per_rank.sharding import DividedWork, IssuedCollectives
from perfkit.records.rank import RankReport

_DIMENSIONS: Final[tuple[Literal["tp", "cp", "ep"], ...]] = ("tp", "cp", "ep")
_MOST_LAYERS: Final = 1 << 20
_ATTENTION: Final = re.compile(r"scaled_dot_product|flash|fmha|attention", re.IGNORECASE)
"""Names of operators and kernels that compute attention."""


def divided_work(
    ranks: Sequence[RankReport], across: CrossRankSummary | None, manifest: RunManifest | None
) -> list[DividedWork]:
    """Return what each dimension that divides layers costs, next to the compute of the same steps."""
    steps = sum(len(rank.steps) for rank in ranks)
    return [one for name in _DIMENSIONS if steps and (one := _of(name, ranks, steps, across, manifest))]


def _of(
    name: Literal["tp", "cp", "ep"],
    ranks: Sequence[RankReport],
    steps: int,
    across: CrossRankSummary | None,
    manifest: RunManifest | None,
) -> DividedWork | None:
    rows = [row for rank in ranks for row in rank.issued_collectives if row.dimension == name and _is_of_layers(row)]
    if not rows:
        return None
    return DividedWork(
        dimension=name,
        collectives=sum(row.count for row in rows) / steps,
        bytes=None if any(row.unsized for row in rows) else sum(row.bytes for row in rows) / steps,
        total_ns=sum(row.total_ns for row in rows) / steps,
        exposed_ns=sum(row.exposed_ns for row in rows) / steps,
        compute_ns=sum(step.exposed_ns.compute for rank in ranks for step in rank.steps) / steps,
        attention_ns=_attention_ns(ranks, steps) if name == "cp" else None,
        wait_ns=_wait_ns(name, across, steps),
        tokens=_tokens(manifest),
        layers=_layers(manifest),
        sequence_parallel=_is_sequence_parallel(rows) if name == "tp" else None,
        imbalance=imbalance(manifest.experts) if manifest and name == "ep" else None,
    )


def _is_of_layers(row: IssuedCollectives) -> bool:
    """Return whether layers issue them, not the optimizer for the norm of gradients, nor DDP for their mean."""
    return row.phase != "optimizer" and not _reduces_gradients(row.dimension, row.operator)


def _reduces_gradients(dimension: str | None, operator: str) -> bool:
    """Return whether they average gradients: of the three dimensions only layers of `tp` are divided by all_reduces."""
    return dimension != "tp" and operator == "all_reduce"


def _attention_ns(ranks: Sequence[RankReport], steps: int) -> float | None:
    named = [
        row.total_ns
        for rank in ranks
        for row in rank.operators
        if row.category == "compute" and _ATTENTION.search(row.name)
    ]
    return sum(named) / steps if named else None


def _wait_ns(name: str, across: CrossRankSummary | None, steps: int) -> float | None:
    """Return the waiting per step and rank; of a receive, the receiver's."""
    waits = list(_waits(name, across))
    return None if not waits or None in waits else sum(wait or 0.0 for wait in waits) / steps


def _waits(name: str, across: CrossRankSummary | None) -> Iterator[float | None]:
    for row in across.collectives if across else ():
        if row.dimension == name and not _reduces_gradients(name, row.operator):
            members = 1 if row.operator == "send_recv" else row.group_size
            yield None if row.wait_ns is None or members is None else row.count * row.wait_ns * members


def _tokens(manifest: RunManifest | None) -> int | None:
    if manifest is None or manifest.batch_size is None or manifest.tokens_per_sample is None:
        return None
    return manifest.batch_size * manifest.tokens_per_sample


def _layers(manifest: RunManifest | None) -> int | None:
    """Return the layers that each rank computes once per step; None if unknown, or parted between pipeline stages."""
    if manifest is None or any(dimension.name == "pp" for dimension in manifest.mesh):
        return None
    given: Any = manifest.config.get("layers")
    return given if type(given) is int and 0 < given <= _MOST_LAYERS else None


def _is_sequence_parallel(rows: Sequence[IssuedCollectives]) -> bool | None:
    """Return whether forward reduces more bytes by reduce_scatter than by all_reduce; None if it does neither."""
    reduced = {
        operator: sum(row.bytes for row in rows if (row.operator, row.phase) == (operator, "forward"))
        for operator in ("all_reduce", "reduce_scatter")
    }
    return reduced["reduce_scatter"] > reduced["all_reduce"] if any(reduced.values()) else None


def imbalance(experts: Sequence[ExpertLoad]) -> float | None:
    """Return how many more tokens the rank with the most has in each layer than the mean, over all layers."""
    most = sum(max(layer.rank_tokens, default=0.0) for layer in experts)
    mean = sum(sum(layer.rank_tokens) / len(layer.rank_tokens) for layer in experts if layer.rank_tokens)
    return most / mean if mean else None
