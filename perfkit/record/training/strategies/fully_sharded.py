"""ZeRO stages 2 and 3, and hybrid sharding, by torch's `fully_shard`. Importing this does not import torch."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, ClassVar, cast

from perfkit.errors import LaunchEnvironmentError
from perfkit.record.training.strategies.base import Strategy

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from torch import nn
    from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy


class Zero3(Strategy):
    """Parameters, gradients and optimizer state are sharded; each layer is gathered in forward and in backward."""

    name = "zero3"
    GATHERS_LAYERS = True
    RESHARD_AFTER_FORWARD: ClassVar[bool] = True

    def wrap(self, model: nn.Module, layers: Sequence[nn.Module]) -> nn.Module:
        """Shard each layer, then what remains of the model."""
        import torch

        try:
            from torch.distributed.fsdp import fully_shard
        except ImportError as error:
            raise LaunchEnvironmentError(
                f"--dp {self.name} needs torch 2.6 or newer; this is torch {torch.__version__}"
            ) from error
        # torch warns of views, on which in-place operators would be wrong: losses do not use any on the model's output.
        warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view", UserWarning)
        assert self.mesh is not None  # noqa: S101  # the trainer makes one
        data = self.mesh[self.DIMENSIONS if len(self.DIMENSIONS) > 1 else self.DIMENSIONS[0]]
        for module in (*layers, model):
            fully_shard(
                module, mesh=data, reshard_after_forward=self.RESHARD_AFTER_FORWARD, mp_policy=self._precision()
            )
        if self.run.prefetch_layers is not None:
            self._prefetch(cast("FSDPModule", model), cast("Sequence[FSDPModule]", layers), self.run.prefetch_layers)
        return model

    def _precision(self) -> MixedPrecisionPolicy:
        """Return the policy: parameters are gathered as the forward pass uses them, gradients reduced in float32.

        Without it they would be gathered in float32, in twice the bytes, and each rank would convert them.
        """
        import torch
        from torch.distributed.fsdp import MixedPrecisionPolicy

        if self.run.precision == "float32":
            return MixedPrecisionPolicy()
        return MixedPrecisionPolicy(param_dtype=getattr(torch, self.run.precision), reduce_dtype=torch.float32)

    def _prefetch(self, model: FSDPModule, layers: Sequence[FSDPModule], depth: int) -> None:
        ahead = [model, *layers]
        for number, module in enumerate(ahead):
            module.set_modules_to_forward_prefetch(ahead[number + 1 : number + 1 + depth])
            # The root's own backward comes first, then the last layer's.
            before = list(reversed(layers)) if number == 0 else list(reversed(layers[: number - 1]))
            module.set_modules_to_backward_prefetch(before[:depth])

    def averaging(self, model: nn.Module, *, last: bool, first_step: bool) -> AbstractContextManager[Any]:  # noqa: ARG002
        """Reduce gradients in the last micro-step only; until then each rank keeps its own, unsharded."""
        cast("FSDPModule", model).set_requires_gradient_sync(last)
        return nullcontext()


class Zero2(Zero3):
    """As stage 3, but parameters stay gathered from forward to backward."""

    name = "zero2"
    RESHARD_AFTER_FORWARD = False


class HybridSharded(Zero3):
    """Stage 3 within the dimension `shard`; gradients are also averaged over `replicate`."""

    name = "hsdp"
    DIMENSIONS = ("replicate", "shard")
