"""Causal attention over a sequence that is divided among ranks; its keys and values go round in a ring.

Liu et al., "Ring Attention with Blockwise Transformers for Near-Infinite Context" (2023). Each rank has two chunks of
the sequence, one from its begin and one from its end, so that all ranks compute as much under the causal mask.
"""

from typing import Any, Final, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from torch.profiler import record_function

EXCHANGE: Final = "ring.exchange"
"""Annotates the wait for the keys and values of another rank."""


class Ring(NamedTuple):
    """The ranks that share a sequence, and this rank's place among them."""

    group: dist.ProcessGroup
    rank: int
    size: int

    def positions(self, length: int) -> Tensor:
        """Return this rank's positions of a sequence of `length`, increasing: chunks `rank` and `2 size - 1 - rank`."""
        chunks = torch.arange(length).chunk(2 * self.size)
        return torch.cat([chunks[self.rank], chunks[2 * self.size - 1 - self.rank]])


def ring_attention(query: Tensor, key: Tensor, value: Tensor, ring: Ring) -> Tensor:
    """Return causal attention of this rank's queries to the keys and values of all ranks.

    Args:
        query: (batch, heads, tokens, head size) of this rank's positions, as `key` and `value`.
    """
    attended: Tensor = _RingAttention.apply(query, key, value, ring)  # type: ignore[no-untyped-call]
    return attended


class _RingAttention(torch.autograd.Function):
    """One turn of keys and values through the ring forward, and one with their gradients backward.

    Products are in float32, whatever the precision of the inputs.
    """

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, ring: Ring) -> Tensor:
        with torch.autocast(query.device.type, enabled=False):
            output, log_sum = _forward(query, torch.stack([key, value]), ring)
        ctx.save_for_backward(query, key, value, output, log_sum)
        ctx.ring = ring
        return output.to(query.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, output, log_sum = ctx.saved_tensors
        given = gradients[0].float()
        # The gradient of the softmax's normalisation, the same for all blocks (Dao et al., "FlashAttention", 2022).
        shift = (given * output).sum(-1, keepdim=True)
        of_query, of_pair = _backward(query, torch.stack([key, value]), given, log_sum, shift, ctx.ring)
        return of_query.to(query.dtype), of_pair[0].to(key.dtype), of_pair[1].to(value.dtype), None


def _forward(query: Tensor, pair: Tensor, ring: Ring) -> tuple[Tensor, Tensor]:
    """Return the attention, and the logarithm of the softmax's denominator, both in float32."""
    output = torch.zeros_like(query, dtype=torch.float32)
    log_sum = output.new_full((*query.shape[:-1], 1), -torch.inf)
    for turn in range(ring.size):
        coming = _send_on(pair, ring) if turn + 1 < ring.size else None
        block = _block((ring.rank - turn) % ring.size, ring.rank, query.shape[2])
        scores = _scores(query, pair[0], block)
        own = scores.logsumexp(-1, keepdim=True)
        attended = (scores - own).exp() @ pair[1][:, :, block.keys].float()
        old, seen = log_sum[:, :, block.queries], output[:, :, block.queries]
        new = torch.logaddexp(old, own)
        output[:, :, block.queries] = seen * (old - new).exp() + attended * (own - new).exp()
        log_sum[:, :, block.queries] = new
        pair = pair if coming is None else coming.wait()
    return output, log_sum


def _backward(
    query: Tensor, pair: Tensor, given: Tensor, log_sum: Tensor, shift: Tensor, ring: Ring
) -> tuple[Tensor, Tensor]:
    """Return the gradients of the queries, and of this rank's keys and values, which come home with the last turn."""
    scale = query.shape[-1] ** -0.5
    of_query = torch.zeros_like(query, dtype=torch.float32)
    of_pair = torch.zeros_like(pair, dtype=torch.float32)
    for turn in range(ring.size):
        coming = _send_on(pair, ring) if turn + 1 < ring.size else None
        block = _block((ring.rank - turn) % ring.size, ring.rank, query.shape[2])
        keys, values = pair[:, :, :, block.keys].float()
        queries, of_output = query[:, :, block.queries].float(), given[:, :, block.queries]
        weights = (_scores(query, pair[0], block) - log_sum[:, :, block.queries]).exp()
        of_scores = weights * (of_output @ values.mT - shift[:, :, block.queries]) * scale
        of_query[:, :, block.queries] += of_scores @ keys
        of_pair[0, :, :, block.keys] += of_scores.mT @ queries
        of_pair[1, :, :, block.keys] += weights.mT @ of_output
        pair = pair if coming is None else coming.wait()
        of_pair = of_pair if ring.size == 1 else _send_on(of_pair, ring).wait()
    return of_query, of_pair


class _Block(NamedTuple):
    """Which of this rank's queries see which of the keys of another rank."""

    queries: slice
    keys: slice
    is_causal: bool
    """Whether they see only keys up to their own position: those of the rank itself. Else they see all."""


def _block(other: int, rank: int, tokens: int) -> _Block:
    """Return what the queries of `rank` see of the keys of rank `other`, both with `tokens` in two chunks.

    The first chunks are in the order of the ranks, the second ones behind them in reverse order.
    """
    half, whole = tokens // 2, slice(0, tokens)
    if other == rank:
        return _Block(whole, whole, is_causal=True)
    if other < rank:
        return _Block(whole, slice(0, half), is_causal=False)
    return _Block(slice(half, tokens), whole, is_causal=False)


def _scores(query: Tensor, key: Tensor, block: _Block) -> Tensor:
    """Return the scaled products of queries and keys, minus infinity where the mask hides the key."""
    queries, keys = query[:, :, block.queries].float(), key[:, :, block.keys].float()
    scores: Tensor = queries @ keys.mT * query.shape[-1] ** -0.5
    if block.is_causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(hidden, -torch.inf)
    return scores


class _Coming(NamedTuple):
    """A tensor on its way from the previous rank of the ring, while `sent` is on its way to the next."""

    received: Tensor
    sent: Tensor
    works: list[dist.Work]

    def wait(self) -> Tensor:
        """Return it once it is here, and `sent` may be changed."""
        with record_function(EXCHANGE):
            # NCCL has one work for both.
            for work, tensor in zip(reversed(self.works), (self.received, self.sent), strict=False):
                # In `work.wait` traces would show the wait as computation of `_RingAttention`.
                torch._C._distributed_c10d._register_work(tensor, work)
                torch.ops._c10d_functional.wait_tensor(tensor)
        return self.received


def _send_on(tensor: Tensor, ring: Ring) -> _Coming:
    """Begin to send `tensor` to the next rank, and to receive that of the previous one."""
    sent, received = tensor.contiguous(), torch.empty_like(tensor)
    following, previous = (dist.get_global_rank(ring.group, (ring.rank + by) % ring.size) for by in (1, -1))
    operations = [
        dist.P2POp(dist.isend, sent, following, ring.group),
        dist.P2POp(dist.irecv, received, previous, ring.group),
    ]
    return _Coming(received, sent, dist.batch_isend_irecv(operations))
