"""Bytes of parameters, gradients and optimizer state of a rank (metrics.md section 11)."""

from collections.abc import Iterable, Sequence
from heapq import heapreplace
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from perfkit.tools.plan.layout import SHARDED, Layout
from perfkit.tools.plan.precision import FLOAT32_BYTES, Precision
from perfkit.tools.plan.shape import Shape, Tensor

FORMULAS: Final = {
    "ddp": ("p Psi", "g Psi", "k Psi"),
    "zero1": ("p Psi", "g Psi", "k Psi / N"),
    "zero2": ("p Psi", "g Psi / N", "k Psi / N"),
    "zero3": ("p Psi / N", "g Psi / N", "k Psi / N"),
}
"""By ZeRO stage, as the paper has them."""


class State(Struct, frozen=True, kw_only=True):
    """Bytes of one rank."""

    parameters_bytes: int
    gradients_bytes: int
    optimizer_bytes: int
    entries: int
    """Number of parameters that the rank computes with: Psi in formulas."""

    @property
    def total_bytes(self) -> int:
        return self.parameters_bytes + self.gradients_bytes + self.optimizer_bytes


def local_tensors(shape: Shape, layout: Layout, stage: int) -> list[Tensor]:
    """Return the parameters of a stage as tensor and expert parallelism leave them to the rank that has most."""
    own = [tensor.divided(layout.tp) for tensor in shape.stage(stage, layout.pp)]
    if layout.ep == 1:
        return own
    return [replace(one, rows=one.rows // layout.ep) if one.is_expert else one for one in own]


def state_of(shape: Shape, layout: Layout, precision: Precision, stage: int) -> State:
    """Return what the data-parallel rank with the most holds, of one stage of the pipeline."""
    tensors = local_tensors(shape, layout, stage)
    entries = sum(tensor.count for tensor in tensors)
    parts = _parts(tensors, layout, exact=shape.are_whole and precision.parameter == 4)
    # Adam's step count, a number per tensor.
    steps = FLOAT32_BYTES if shape.are_whole else 0
    return State(
        parameters_bytes=precision.parameter * parts[0],
        gradients_bytes=precision.gradient * parts[1],
        optimizer_bytes=precision.optimizer * parts[2] + steps * parts[3],
        entries=entries,
    )


def _parts(tensors: Sequence[Tensor], layout: Layout, *, exact: bool) -> tuple[int, int, int, int]:
    """Return the entries of parameters, gradients and optimizer state that a rank holds, and of how many tensors.

    Args:
        tensors: Those that the ranks of `dp` share.
        exact: Whether to count as torch divides: rows of each tensor, and whole tensors in ZeRO-1. Otherwise
            everything divides evenly, as in the ZeRO paper, where ZeRO-2 divides gradients and not parameters.
    """
    entries, ranks = sum(tensor.count for tensor in tensors), layout.sharing
    if layout.dp == "ddp" or ranks == 1:
        return entries, entries, entries, len(tensors)
    if not exact:
        even = -(-entries // ranks)
        divided = {"zero1": (entries, entries), "zero2": (entries, even)}.get(layout.dp, (even, even))
        return *divided, even, len(tensors)
    if layout.dp == "zero1":
        share = largest_share(tensors, ranks)
        return entries, entries, sum(tensor.count for tensor in share), len(share)
    part = sum(-(-tensor.rows // ranks) * tensor.columns for tensor in tensors)
    return part, part, part, len(tensors)


def largest_share(tensors: Iterable[Tensor], ranks: int) -> list[Tensor]:
    """Return the tensors of the rank with most optimizer state in ZeRO-1.

    torch's ZeroRedundancyOptimizer gives each tensor of a group of parameters, the largest first, to the rank that has
    least so far.
    """
    shares: list[list[Tensor]] = [[] for _ in range(ranks)]
    least = [(0, rank) for rank in range(ranks)]
    groups: dict[bool, list[Tensor]] = {True: [], False: []}
    for tensor in tensors:
        groups[tensor.decayed].append(tensor)
    for group in groups.values():
        for tensor in sorted(group, key=lambda tensor: -tensor.count):
            size, rank = least[0]
            shares[rank].append(tensor)
            heapreplace(least, (size + tensor.count, rank))
    return shares[max(least, key=lambda pair: (pair[0], len(shares[pair[1]])))[1]]


def gathers(layout: Layout) -> bool:
    """Return whether parameters are gathered from parts."""
    return layout.dp in SHARDED and layout.shard > 1


def stream_bytes(layout: Layout, precision: Precision) -> int:
    """Return the bytes of a number between the blocks: an embedding gathered in 16 bits leaves nothing in 32 there."""
    return precision.activation if gathers(layout) else precision.residual
