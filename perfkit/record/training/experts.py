"""The experts of one rank: their gradients, and the tokens that they get."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from perfkit.record.distributed.rank_group import ProcessRankGroup
from perfkit.record.training.gradient_averaging import average_gradients
from perfkit.records.manifest import ExpertLoad
from perfkit_workloads.parallel import ExpertLayer


class Experts:
    """The mixtures of experts of this rank's model.

    Args:
        layers: One per layer.
        parameters: Those of this rank's experts that other ranks of the dimension `ep` do not have.
        mesh: The ranks' mesh; None if every rank has all experts.
    """

    def __init__(
        self, layers: Sequence[ExpertLayer], parameters: Sequence[nn.Parameter], mesh: DeviceMesh | None
    ) -> None:
        self._layers = layers
        self._parameters = parameters
        self._mesh = mesh
        self._tokens: list[Tensor] = []
        self._steps = 0

    def count_tokens(self) -> None:
        routed = [layer.routed for layer in self._layers]
        before = self._tokens or [torch.zeros_like(one) for one in routed]
        self._tokens = [old + new for old, new in zip(before, routed, strict=True)]

    def finish_step(self) -> None:
        """Average the gradients of experts, which DDP leaves alone, and count the step.

        The gradient of an expert is the sum over what all ranks of `ep` sent it. Each of these has its own loss,
        and the loss is their mean.
        """
        self._steps += 1
        if not self._parameters:
            return
        assert self._mesh is not None  # noqa: S101  # they are divided
        gradients = [parameter.grad for parameter in self._parameters if parameter.grad is not None]
        torch._foreach_div_(gradients, self._mesh["ep"].size())
        if self._mesh["dp"].size() > 1:
            average_gradients(self._parameters, None, self._mesh.get_group("dp"))

    def load(self, ranks: ProcessRankGroup) -> list[ExpertLoad]:
        """Return the mean load per step of each layer; called by all ranks."""
        part = 0 if self._mesh is None or not self._parameters else self._mesh.get_local_rank("ep")
        own = [(tokens.double() / max(1, self._steps)).tolist() for tokens in self._tokens]
        by_rank = ranks.all_gather((part, own))
        return [
            expert_load(layer, [(at, tokens[layer]) for at, tokens in by_rank]) for layer in range(len(self._layers))
        ]


def expert_load(layer: int, by_rank: Sequence[tuple[int, Sequence[float]]]) -> ExpertLoad:
    held = len(by_rank[0][1])
    by_expert = [0.0] * held * (1 + max(part for part, _ in by_rank))
    for part, tokens in by_rank:
        for number, count in enumerate(tokens, part * held):
            by_expert[number] += count
    of_ranks = [sum(tokens) for _, tokens in by_rank]
    return ExpertLoad(
        layer=layer,
        expert_tokens=by_expert,
        rank_tokens=of_ranks,
    )
