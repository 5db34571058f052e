"""ZeRO stage 1: DDP, with the optimizer's state partitioned. Importing this does not import torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perfkit.record.training.strategies.ddp import DDP

if TYPE_CHECKING:
    from torch.optim import Optimizer

    from perfkit_workloads.base import OptimizerFactory


class Zero1(DDP):
    """torch's ZeroRedundancyOptimizer: each rank updates its part of the parameters, and broadcasts it."""

    name = "zero1"

    def optimizer_factory(self) -> OptimizerFactory:
        return self._make

    def _make(self, kind: type[Optimizer], parameters: Any, **options: Any) -> Optimizer:
        from torch.distributed.optim import ZeroRedundancyOptimizer

        made: Optimizer = ZeroRedundancyOptimizer(parameters, optimizer_class=kind, process_group=self.group, **options)
        return made

    def local_optimizer(self, optimizer: Optimizer) -> Optimizer:
        from torch.distributed.optim import ZeroRedundancyOptimizer

        assert isinstance(optimizer, ZeroRedundancyOptimizer)  # noqa: S101  # this class made it
        inner: Optimizer = optimizer.optim
        return inner
