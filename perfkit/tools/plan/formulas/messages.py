"""Messages of one rank in one step, of one operator along one dimension of the mesh."""

from math import ceil, log2
from typing import Final

from msgspec import Struct

BUCKET_BYTES: Final = 25 * 2**20
"""DDP's buckets; the first is smaller, so that averaging begins early."""
FIRST_BUCKET_BYTES: Final = 2**20


class Message(Struct, frozen=True, kw_only=True):
    """Messages of one operator along one dimension, in one step of a rank."""

    dimension: str
    operator: str
    ranks: int
    count: int
    bytes: int
    forward_share: float = 0.0
    backward_share: float = 0.0
    """Of their time, what compute of these passes can hide, which does not need them."""
    formula: str

    @property
    def sent_bytes(self) -> int:
        """Bytes that a rank sends with the ring algorithm: the busbw factor of metrics.md section 5 times the size."""
        factor = {"all_reduce": 2 * (self.ranks - 1) / self.ranks, "broadcast": 1.0, "send_recv": 0.5}
        return round(self.bytes * factor.get(self.operator, (self.ranks - 1) / self.ranks))


def message(
    dimension: str,
    operator: str,
    ranks: int,
    count: int,
    size: int,
    formula: str,
    *,
    hidden: tuple[float, float] = (0.0, 0.0),
) -> Message:
    """Return `count` messages of `size` bytes together, `hidden` of their time beside forward and backward."""
    return Message(
        dimension=dimension,
        operator=operator,
        ranks=ranks,
        count=count,
        bytes=size,
        forward_share=hidden[0],
        backward_share=hidden[1],
        formula=formula,
    )


def hops(ranks: int) -> int:
    """Return how many messages one after another a collective takes at least: a tree's depth."""
    return max(1, ceil(log2(ranks)))
