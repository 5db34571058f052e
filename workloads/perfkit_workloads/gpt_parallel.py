"""How the GPT workload's modules are split between ranks: stages of a pipeline, tensor and sequence parallelism."""

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Placement, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from perfkit_workloads.gpt_model import Attention, Decoder


class Stage(Decoder):
    """Consecutive blocks of a decoder: token ids or activations to activations or logits."""

    def __init__(self, model: Decoder, index: int, count: int) -> None:
        nn.Module.__init__(self)
        layers = len(model.blocks)
        self.is_first, self.is_last = index == 0, index == count - 1
        self.dropout, self.own_positions = model.dropout, None
        self.blocks = model.blocks[index * layers // count : (index + 1) * layers // count]
        if self.is_first:
            self.tokens, self.positions = model.tokens, model.positions
        if self.is_last:
            self.norm, self.head = model.norm, model.head
            # A copy even if this rank has the first stage too: each stage is wrapped for itself.
            self.head.weight = nn.Parameter(model.tokens.weight.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits in the last stage, else what the next stage takes."""
        if self.is_first:
            x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.to_logits(x) if self.is_last else x

    def tied_parameters(self) -> list[nn.Parameter]:
        """Return the parameters that the first and the last stage each have a copy of."""
        # By name: the weight of a split module may be computed from a parameter of another name.
        return [parameter for name, parameter in self.named_parameters() if name.startswith(("tokens.", "head."))]


def shard_tensors(model: Decoder, mesh: DeviceMesh, *, sequence: bool, loss: bool) -> None:
    """Split the model's matrices over the ranks of `mesh`, in place.

    Each rank computes some heads of each attention, some hidden units of each MLP, and part of the vocabulary
    (Shoeybi et al., "Megatron-LM", 2019).

    Args:
        sequence: Whether norms, and what is between the blocks, are split along the sequence (Korthikanti et al.,
            "Reducing Activation Recomputation in Large Transformer Models", 2022).
        loss: Whether the logits stay split along the vocabulary.
    """
    between = Shard(1) if sequence else Replicate()
    for number, block in enumerate(model.blocks):
        attention = block.attention
        assert isinstance(attention, Attention)  # noqa: S101
        _group_by_rank(attention, mesh.size())
        plan = _block_plan(sequence=sequence)
        if number == 0 and sequence and _has(model, "tokens"):
            # Each rank takes its part of what the embeddings return on all of them.
            plan[""] = PrepareModuleInput(
                input_layouts=(Replicate(),), desired_input_layouts=(Shard(1),), use_local_output=True
            )
        parallelize_module(block, mesh, plan)
    outer: dict[str, ParallelStyle] = {
        "tokens": RowwiseParallel(input_layouts=Replicate()),
        "head": ColwiseParallel(
            input_layouts=between, output_layouts=Shard(-1) if loss else Replicate(), use_local_output=not loss
        ),
    }
    if sequence:
        outer["norm"] = SequenceParallel()
    parallelize_module(model, mesh, {name: style for name, style in outer.items() if _has(model, name)})
    if not isinstance(model, Stage):
        model.head.weight = model.tokens.weight  # each was split for itself


def _has(model: Decoder, name: str) -> bool:
    return name in dict(model.named_children())


def _block_plan(*, sequence: bool) -> dict[str, ParallelStyle]:
    between: Placement = Shard(1) if sequence else Replicate()
    # The matrix itself gathers what the norm returns: its gradient, partial sums, is then reduced and split at once.
    # Gathered before, and given as a plain tensor, it would be reduced on all ranks.
    plan: dict[str, ParallelStyle] = {
        "attention.qkv": ColwiseParallel(input_layouts=between),
        "attention.residual": RowwiseParallel(output_layouts=between),
        "mlp.expand": ColwiseParallel(input_layouts=between),
        "mlp.residual": RowwiseParallel(output_layouts=between),
    }
    return plan | ({"norm_1": SequenceParallel(), "norm_2": SequenceParallel()} if sequence else {})


def _group_by_rank(attention: Attention, ranks: int) -> None:
    """Order the rows of the projection so that each rank's part has the queries, keys and values of its heads."""
    attention.heads //= ranks
    with torch.no_grad():
        for parameter in attention.qkv.parameters():
            # From (query, key or value; rank; its heads) to (rank; query, key or value; heads).
            by_rank = parameter.view(3, ranks, -1, *parameter.shape[1:]).transpose(0, 1)
            parameter.copy_(by_rank.reshape(parameter.shape))
