from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from perfkit_workloads.ring_attention import Ring, _block, ring_attention

NO_GROUP: Any = None  # a ring of one rank exchanges nothing


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_blocks_are_the_causal_mask_and_equal_in_size(size: int) -> None:
    length = 4 * size
    positions = [Ring(NO_GROUP, rank, size).positions(length) for rank in range(size)]
    assert sorted(torch.cat(positions).tolist()) == list(range(length))
    computed = set()
    for rank, own in enumerate(positions):
        entries = 0
        for other, theirs in enumerate(positions):
            block = _block(other, rank, len(own))
            seen = torch.zeros(len(own), len(theirs), dtype=torch.bool)
            seen[block.queries, block.keys] = True
            seen = seen.tril() if block.is_causal else seen
            assert torch.equal(seen, own[:, None] >= theirs[None, :]), (rank, other)
            entries += int(seen.sum())
        computed.add(entries)
    assert len(computed) == 1


def attend(kind: str, dtype: torch.dtype) -> list[Tensor]:
    """Return attention and the gradients of its inputs."""
    torch.manual_seed(0)
    query, key, value = (torch.randn(2, 3, 8, 4, dtype=dtype).requires_grad_() for _ in range(3))
    weights = torch.randn(2, 3, 8, 4)
    if kind == "ring":
        output = ring_attention(query, key, value, Ring(NO_GROUP, 0, 1))
    else:
        output = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    torch.autograd.backward((output.float() * weights).sum())
    return [output.detach(), *(one.grad for one in (query, key, value) if one.grad is not None)]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
def test_one_rank_alone_attends_as_torch_does(dtype: torch.dtype, tolerance: float) -> None:
    ring, plain = attend("ring", dtype), attend("torch", dtype)
    assert len(ring) == len(plain) == 4
    for one, other in zip(ring, plain, strict=True):
        assert one.dtype == dtype
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)
