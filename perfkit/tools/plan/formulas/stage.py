"""One stage of a pipeline on one rank: its tensors, and the bytes of its training state (metrics.md section 11)."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
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


@dataclass(frozen=True)
class Stage:
    """A stage of a pipeline on the rank that has most of it; sizes that are not known of a model are 0."""

    shape: Shape
    layout: Layout
    precision: Precision
    index: int = 0
    samples: int = 0
    """Of one micro-batch."""
    fused: bool = True
    """Whether attention's scores are never written to memory."""

    @cached_property
    def tensors(self) -> list[Tensor]:
        """Its parameters as tensor and expert parallelism leave them."""
        ep = self.layout.ep
        own = [tensor.divided(self.layout.tp) for tensor in self.shape.stage(self.index, self.layout.pp)]
        return [replace(one, rows=one.rows // ep) if one.is_expert and ep > 1 else one for one in own]

    @cached_property
    def entries(self) -> int:
        """Number of parameters that it computes with: Psi in formulas."""
        return count(self.tensors)

    @property
    def is_last(self) -> bool:
        return self.index == self.layout.pp - 1

    @property
    def layers(self) -> int:
        """Number of its layers."""
        layers, stages = self.shape.layers or 0, self.layout.pp
        return (self.index + 1) * layers // stages - self.index * layers // stages

    @property
    def width(self) -> int:
        return self.shape.width or 0

    @property
    def hidden(self) -> int:
        """Width inside of an MLP."""
        return self.shape.hidden or 4 * self.width

    @property
    def tokens(self) -> int:
        """Tokens of a micro-batch."""
        return self.samples * (self.shape.sequence or 0)

    @property
    def own_tokens(self) -> int:
        """Those that the rank has of them, with context parallelism."""
        return self.tokens // self.layout.cp

    @property
    def gathers(self) -> bool:
        """Whether parameters are gathered from parts."""
        return self.layout.dp in SHARDED and self.layout.shard > 1

    @property
    def stream_bytes(self) -> int:
        """Bytes of a number between the blocks: an embedding gathered in 16 bits leaves nothing in 32 there."""
        return self.precision.activation if self.gathers else self.precision.residual

    @property
    def in_buckets(self) -> list[Tensor]:
        """Tensors whose gradients data-parallel ranks average together: not experts that ranks divide."""
        return [tensor for tensor in self.tensors if not (tensor.is_expert and self.layout.ep > 1)]


def count(tensors: Iterable[Tensor]) -> int:
    """Return the number of entries."""
    return sum(tensor.count for tensor in tensors)


class State(Struct, frozen=True, kw_only=True):
    """Bytes of one rank."""

    parameters_bytes: int
    gradients_bytes: int
    optimizer_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.parameters_bytes + self.gradients_bytes + self.optimizer_bytes


def state_of(stage: Stage) -> State:
    """Return what the data-parallel rank with the most holds."""
    precision, whole = stage.precision, stage.shape.are_whole
    parameters, gradients, optimizer, tensors = _parts(stage, exact=whole and precision.parameter == 4)
    return State(
        parameters_bytes=precision.parameter * parameters,
        gradients_bytes=precision.gradient * gradients,
        # Adam's step count is a number per tensor.
        optimizer_bytes=precision.optimizer * optimizer + (FLOAT32_BYTES * tensors if whole else 0),
    )


def _parts(stage: Stage, *, exact: bool) -> tuple[int, int, int, int]:
    """Return the entries of parameters, gradients and optimizer state that a rank holds, and of how many tensors.

    Args:
        stage: Its tensors are those that the ranks of `dp` share.
        exact: Whether to count as torch divides: rows of each tensor, and whole tensors in ZeRO-1. Otherwise
            everything divides evenly, as in the ZeRO paper, where ZeRO-2 divides gradients and not parameters.
    """
    tensors, entries, ranks, dp = stage.tensors, stage.entries, stage.layout.sharing, stage.layout.dp
    if dp == "ddp" or ranks == 1:
        return entries, entries, entries, len(tensors)
    if not exact:
        even = -(-entries // ranks)
        divided = {"zero1": (entries, entries), "zero2": (entries, even)}.get(dp, (even, even))
        return *divided, even, len(tensors)
    if dp == "zero1":
        share = _largest_share(tensors, ranks)
        return entries, entries, count(share), len(share)
    part = sum(-(-tensor.rows // ranks) * tensor.columns for tensor in tensors)
    return part, part, part, len(tensors)


def _largest_share(tensors: Iterable[Tensor], ranks: int) -> list[Tensor]:
    """Return the tensors of the rank with most optimizer state in ZeRO-1.

    torch's ZeroRedundancyOptimizer gives each tensor of a group of parameters, the largest first, to the rank that has
    least so far; those that the optimizer decays are the first group.
    """
    shares: list[list[Tensor]] = [[] for _ in range(ranks)]
    least = [(0, rank) for rank in range(ranks)]
    for tensor in sorted(tensors, key=lambda tensor: (not tensor.decayed, -tensor.count)):
        size, rank = least[0]
        shares[rank].append(tensor)
        heapreplace(least, (size + tensor.count, rank))
    return shares[max(least, key=lambda pair: (pair[0], len(shares[pair[1]])))[1]]
