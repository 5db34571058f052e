"""DDP: every rank has the whole model, and gradients are averaged. Importing this does not import torch."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, cast

from perfkit.record.training.strategies.base import Strategy

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from torch import nn
    from torch.distributed import ProcessGroup
    from torch.nn.parallel import DistributedDataParallel


class DDP(Strategy):
    """torch's DistributedDataParallel, or gradients averaged after backward with `--no-overlap`."""

    name = "ddp"
    USES_DDP = True

    @property
    def group(self) -> ProcessGroup | None:
        """The ranks that average gradients; None is all ranks.

        Ranks that divide experts have different samples, and those that divide sequences different tokens, so that they
        average the gradients of what they share.
        """
        if self.mesh is None or not {*(self.mesh.mesh_dim_names or ())} - {"dp", "ep", "cp"}:
            return None
        return self.mesh.get_group("dp")

    def wrap(self, model: nn.Module, layers: Sequence[nn.Module]) -> DistributedDataParallel:  # noqa: ARG002
        """Return `model` in DDP, compiled if the run's options ask for it.

        DDP wraps the compiled module, not the other way round: torch compiles what the user's own frames call, and in
        `compile(DDP(nn.Transformer))` there is no such frame, so that it silently runs eager. In this order both
        compile, and torch still splits the graph at DDP's buckets, so that averaging overlaps with backward.
        """
        import torch
        from torch.nn.parallel import DistributedDataParallel

        module = cast("nn.Module", torch.compile(model)) if self.run.compile else model
        return DistributedDataParallel(
            module,
            process_group=self.group,
            bucket_cap_mb=self.run.bucket_cap_mb,  # None is torch's own default
            static_graph=self.run.static_graph,
            find_unused_parameters=self.run.find_unused,
        )

    def averaging(self, model: nn.Module, *, last: bool, first_step: bool) -> AbstractContextManager[Any]:
        """Let DDP average the gradients in the last micro-step only, or not at all with `--no-overlap`.

        DDP learns a static graph in the first backward, which must average for that: with a static graph, all
        micro-steps of the first step average. Averaging averaged gradients again does not change them.
        """
        learns_graph = self.run.static_graph and first_step
        if self.run.overlap and (last or learns_graph):
            return nullcontext()
        return cast("DistributedDataParallel", model).no_sync()

    def finish_backward(self, model: nn.Module) -> None:
        from perfkit.record.training.gradient_averaging import average_gradients

        if not self.run.overlap:
            average_gradients(model.parameters(), self.run.bucket_cap_mb, self.group)
