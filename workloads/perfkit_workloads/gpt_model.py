"""The modules of the GPT workload (`perfkit_workloads.gpt`): a decoder of the GPT-2 family.

The architecture follows Radford et al., "Language Models are Unsupervised Multitask Learners" (2019): learned
positions, pre-norm blocks, causal attention, a GELU MLP of four times the width, and an output head that shares its
weights with the token embedding.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from perfkit_workloads.gpt import GPTConfig

if TYPE_CHECKING:
    from perfkit_workloads.ring_attention import Ring

INIT_STD: Final = 0.02


class Attention(nn.Module):
    """Causal self-attention; queries, keys and values come from one projection."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.heads, self.head_size = config.heads, config.width // config.heads
        self.dropout = config.dropout
        self.attend_in_ring: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None
        """Causal attention over all ranks that share a sequence; None if this rank has all of it."""
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=config.bias)
        self.residual = nn.Linear(config.width, config.width, bias=config.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, tokens, width) to the same shape."""
        batch, tokens, _ = x.shape
        split = self.qkv(x).view(batch, tokens, 3, self.heads, self.head_size)
        query, key, value = split.permute(2, 0, 3, 1, 4)  # each (batch, heads, tokens, head size)
        mixed = (
            self._attend(query, key, value) if self.attend_in_ring is None else self.attend_in_ring(query, key, value)
        )
        merged = mixed.transpose(1, 2).reshape(batch, tokens, self.heads * self.head_size)
        return functional.dropout(self.residual(merged), self.dropout, self.training)

    def _attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, dropout_p=self.dropout if self.training else 0.0
        )


class MLP(nn.Module):
    """Two linear layers around a GELU (the tanh approximation, as in GPT-2)."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.dropout = config.dropout
        self.expand = nn.Linear(config.width, 4 * config.width, bias=config.bias)
        self.residual = nn.Linear(4 * config.width, config.width, bias=config.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, tokens, width) to the same shape."""
        hidden = functional.gelu(self.expand(x), approximate="tanh")
        return functional.dropout(self.residual(hidden), self.dropout, self.training)


def _make_mlp(config: GPTConfig) -> nn.Module:
    if not config.experts:
        return MLP(config)
    from perfkit_workloads.gpt_experts import MixtureOfExperts  # torch.distributed: most runs need none of it here

    return MixtureOfExperts(config)


class Block(nn.Module):
    """Attention and MLP, each on the normalised residual stream."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.norm_1 = nn.LayerNorm(config.width, bias=config.bias)
        self.attention = Attention(config)
        self.norm_2 = nn.LayerNorm(config.width, bias=config.bias)
        self.mlp = _make_mlp(config)

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, tokens, width) to the same shape."""
        x = x + self.attention(self.norm_1(x))
        out: Tensor = x + self.mlp(self.norm_2(x))
        return out


class Decoder(nn.Module):
    """Token ids (batch, tokens) to logits (batch, tokens, vocabulary)."""

    def __init__(self, config: GPTConfig, vocab_size: int) -> None:
        super().__init__()
        self.dropout = config.dropout
        self.own_positions: Tensor | None = None
        """Of each sequence, the positions of this rank; None if it has all."""
        self.tokens = nn.Embedding(vocab_size, config.width)
        self.positions = nn.Embedding(config.block, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width, bias=config.bias)
        self.head = nn.Linear(config.width, vocab_size, bias=False)
        self.head.weight = self.tokens.weight
        # Weights from N(0, 0.02); residual projections from N(0, 0.02 / sqrt(2 x layers)): each of the 2 x layers
        # projections adds to the residual stream, whose variance would grow with depth otherwise.
        layers = config.layers
        for name, parameter in self.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif name.endswith("residual.weight"):
                nn.init.normal_(parameter, std=INIT_STD / math.sqrt(2 * layers))
            elif parameter.dim() >= 2:
                nn.init.normal_(parameter, std=INIT_STD)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.to_logits(x)

    def embed(self, ids: Tensor) -> Tensor:
        """Return what the first block takes, (batch, tokens, width)."""
        positions = torch.arange(ids.shape[1], device=ids.device) if self.own_positions is None else self.own_positions
        x = self.tokens(ids) + self.positions(positions)
        return functional.dropout(x, self.dropout, self.training)

    def divide_sequence(self, ring: "Ring", positions: Tensor) -> None:
        """Take `positions` only of each sequence, and attend to those of the other ranks of `ring`."""
        from perfkit_workloads.ring_attention import ring_attention

        self.own_positions = positions
        for module in self.modules():
            if isinstance(module, Attention):
                module.attend_in_ring = partial(ring_attention, ring=ring)

    def to_logits(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.norm(x))
        return logits


def fused_adamw_works(device_type: str) -> bool:
    """Return whether AdamW has a fused kernel on this device, by running one step.

    The supported devices differ between versions of torch, and no public function lists them.
    """
    probe = nn.Parameter(torch.zeros(1, device=device_type))
    probe.grad = torch.zeros_like(probe)
    try:
        torch.optim.AdamW([probe], fused=True).step()
    except RuntimeError:
        return False
    return True
