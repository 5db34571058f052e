"""A mixture of experts in place of a decoder block's MLP, with its experts on one rank or divided among several.

Each token goes to the `top_k` experts with the largest scores, and their outputs are added up with the softmax of these
scores as weights (Shazeer et al., "Outrageously Large Neural Networks", 2017). No expert has a capacity, so that no
token is dropped and the result does not depend on where experts are; no auxiliary loss balances them.
"""

from typing import Any, Final, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed._functional_collectives import all_to_all_single, wait_tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.nn import functional
from torch.profiler import record_function

from perfkit_workloads.gpt import GPTConfig

PREFIX: Final = "experts."
"""Begins the names of the annotations of dispatch, computation and combination in a trace."""


class StackedLinear(nn.Module):
    """One linear layer per expert; weights are (experts, outputs, inputs)."""

    def __init__(self, experts: int, inputs: int, outputs: int, *, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(experts, outputs, inputs))
        self.bias = nn.Parameter(torch.empty(experts, outputs)) if bias else None

    def each(self) -> list[tuple[Tensor, Tensor | None]]:
        biases = [None] * len(self.weight) if self.bias is None else [*self.bias]
        return list(zip([*self.weight], biases, strict=True))

    def keep(self, index: int, count: int) -> list[nn.Parameter]:
        """Keep part `index` of `count` of the experts only; return the new parameters."""
        for name, parameter in [*self.named_parameters()]:
            part = parameter.detach().chunk(count)[index].clone()
            self.register_parameter(name, nn.Parameter(part))
        return list(self.parameters())


class Experts(nn.Module):
    """Two linear layers around a GELU per expert, as in the decoder's MLP."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        width = config.width
        self.expand = StackedLinear(config.experts, width, 4 * width, bias=config.bias)
        self.residual = StackedLinear(config.experts, 4 * width, width, bias=config.bias)

    def forward(self, rows: Tensor, counts: list[int]) -> Tensor:
        """Map (rows, width) to the same shape, the first `counts[0]` rows by the first expert, and so on.

        An expert without rows computes too: its gradient is zero, not missing.
        """
        outputs = []
        for part, expand, residual in zip(
            torch.split(rows, counts), self.expand.each(), self.residual.each(), strict=True
        ):
            hidden = functional.gelu(functional.linear(part, *expand), approximate="tanh")
            outputs.append(functional.linear(hidden, *residual))
        return torch.cat(outputs)


class Exchanged(NamedTuple):
    """The rows that this rank sends and receives."""

    rows: list[int]
    """Sent to each rank."""
    received_rows: list[int]
    """Received of each rank."""
    order: Tensor
    """Of the received rows, by expert."""
    counts: Tensor
    """Received rows of each expert of this rank."""


class MixtureOfExperts(nn.Module):
    """A router and its experts: (batch, tokens, width) to the same shape."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.dropout, self.count, self.top_k = config.dropout, config.experts, config.top_k
        self.router = nn.Linear(config.width, config.experts, bias=False)
        self.experts = Experts(config)
        self.routed = torch.zeros(config.experts, dtype=torch.int64)
        """Tokens that each expert of this rank got in the latest forward pass. No buffer: DDP would send these."""
        self._group: dist.ProcessGroup | None = None

    def divide(self, mesh: DeviceMesh) -> list[nn.Parameter]:
        """Keep this rank's experts of those that the ranks of `mesh` share; return their parameters."""
        self._group = mesh.get_group()
        layers = (self.experts.expand, self.experts.residual)
        return [kept for layer in layers for kept in layer.keep(mesh.get_local_rank(), mesh.size())]

    def forward(self, x: Tensor) -> Tensor:
        """Return the weighted sum of what each token's experts return."""
        flat = x.flatten(0, -2)
        scores, chosen = self.router(flat).topk(self.top_k)
        order = chosen.flatten().argsort(stable=True)
        token = order // self.top_k
        counts = self.count_tokens(chosen)
        weights = scores.softmax(-1).flatten()[order].unsqueeze(1)
        weighted = self._compute(flat[token], counts) * weights
        mixed = weighted.new_zeros(flat.shape).index_add(0, token, weighted).view_as(x)
        return functional.dropout(mixed, self.dropout, self.training)

    def count_tokens(self, chosen: Tensor) -> Tensor:
        """Return how many of this rank's tokens go to each of all experts: of the values of `chosen`, not its shape."""
        return chosen.flatten().bincount(minlength=self.count)

    def _compute(self, rows: Tensor, counts: Tensor) -> Tensor:
        """Return the experts' outputs for rows in the order of all experts, of which each has `counts`."""
        if self._group is None:
            return self._compute_own(rows, counts)
        sent = self.arrange(counts, self._group)
        arrived = _exchange(rows, sent.received_rows, sent.rows, self._group, "dispatch")
        computed = self._compute_own(arrived[sent.order], sent.counts)
        returned = torch.empty_like(computed).index_copy(0, sent.order, computed)
        return _exchange(returned, sent.rows, sent.received_rows, self._group, "combine")

    def arrange(self, counts: Tensor, group: dist.ProcessGroup) -> Exchanged:
        """Tell the other ranks how many rows they get, and return what is exchanged: of the values of `counts`."""
        ranks = dist.get_world_size(group)
        received = torch.empty_like(counts)
        dist.all_to_all_single(received, counts, group=group)
        rows, received_rows = (one.view(ranks, -1).sum(1).tolist() for one in (counts, received))
        # They arrive by sender and expert, and are computed by expert.
        expert = torch.arange(self.count, device=counts.device) % (self.count // ranks)
        order = expert.repeat_interleave(received).argsort(stable=True)
        return Exchanged(rows, received_rows, order, received.view(ranks, -1).sum(0))

    def _compute_own(self, rows: Tensor, counts: Tensor) -> Tensor:
        self.routed = counts.detach()
        with record_function(PREFIX + "compute"):
            computed: Tensor = self.experts(rows, counts.tolist())
        return computed


class _Exchange(torch.autograd.Function):
    """Sends rows to other ranks; backward returns their gradients."""

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, received: list[int], sent: list[int], group: dist.ProcessGroup, name: str
    ) -> Tensor:
        ctx.sizes, ctx.group, ctx.name = (received, sent), group, name
        return _all_to_all(rows, received, sent, group, name)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        received, sent = ctx.sizes
        returned = _all_to_all(gradients[0], sent, received, ctx.group, ctx.name + ".backward")
        return returned, None, None, None, None


def _exchange(rows: Tensor, received: list[int], sent: list[int], group: dist.ProcessGroup, name: str) -> Tensor:
    """Return the rows that this rank receives, `received[r]` of rank r, after sending `sent[r]` of `rows` to each."""
    exchanged: Tensor = _Exchange.apply(rows, received, sent, group, PREFIX + name)  # type: ignore[no-untyped-call]
    return exchanged


def _all_to_all(rows: Tensor, received: list[int], sent: list[int], group: dist.ProcessGroup, name: str) -> Tensor:
    # Waits in a separate operator: in `dist.all_to_all_single` traces would show the wait as time of `_Exchange`.
    with record_function(name):
        arrived: Tensor = wait_tensor(  # type: ignore[no-untyped-call]
            all_to_all_single(rows.contiguous(), received, sent, group)
        )
    return arrived
