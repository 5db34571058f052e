"""The training loop of one rank: micro-steps, precision, gradient averaging with or without overlap, compilation."""

import itertools
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, cast

import torch
from msgspec import Struct
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, DistributedSampler

from perfkit.capture.config import RunConfig
from perfkit.capture.distributed.rank_group import ProcessRankGroup
from perfkit.capture.recording.session import Session
from perfkit.capture.training.compile_monitor import CompileMonitor
from perfkit.capture.training.gradient_averaging import average_gradients
from perfkit.capture.training.progress import Show
from workloads.base import Optimization, Workload

Batch = Mapping[str, Tensor]


class Input(Struct, frozen=True, kw_only=True):
    """What one rank trains on."""

    loader: DataLoader[Any]
    sampler: DistributedSampler[Any]
    """Samples single samples; the loader may wrap it in a batch sampler."""
    steps: int
    """Number of steps to train."""


class Trainer:
    """Trains a model on one rank.

    Args:
        workload: What is trained.
        run: Options of the run.
        ranks: The ranks.
        model: Not wrapped, on its device, the same on every rank.
        steps: Number of steps to train.
    """

    def __init__(
        self, workload: Workload[Any], run: RunConfig, ranks: ProcessRankGroup, model: nn.Module, steps: int
    ) -> None:
        self._workload = workload
        self._run = run
        self._steps = steps
        self._device = next(model.parameters()).device
        if run.checkpoint_activations:
            checkpoint_activations(workload.layers(model))
        self.compiled = CompileMonitor() if run.compile else None
        """What was compiled; None unless the model is to be compiled."""
        self._model = wrap(model, run)
        self._optimization: Optimization = workload.optimization(
            model,
            world_size=ranks.world_size,
            accumulate=run.accumulate,
            total_steps=steps,
            device_type=self._device.type,
        )
        # A disabled scaler passes everything through.
        self._scaler = torch.amp.GradScaler(self._device.type, enabled=run.precision == "float16")

    def train(self, data: Input, session: Session, show: Show) -> None:
        """Train all steps, over as many epochs as needed."""
        session.start()
        batches = _batches(data, session)
        while session.steps < self._steps:
            step = session.steps
            if self.compiled is None:
                loss = self._step(batches, session)
            else:
                with self.compiled.watching(step):
                    loss = self._step(batches, session)
            session.step(loss)
            if not session.recording or session.steps == self._steps:
                show(session.steps)

    def _step(self, batches: Iterator[Batch], session: Session) -> Tensor:
        last = self._run.accumulate - 1
        losses = [
            self._micro_step(next(batches), session, last=number == last) for number in range(self._run.accumulate)
        ]
        with session.phase("optimizer"):
            self._update()
        return losses[0] if last == 0 else torch.stack(losses).mean()

    def _micro_step(self, batch: Batch, session: Session, last: bool) -> Tensor:
        with session.phase("to_device"):
            moved = {name: tensor.to(self._device, non_blocking=True) for name, tensor in batch.items()}
        with self._averaging(last, session.steps == 0):
            with session.phase("forward"), self._autocast():
                loss = self._workload.loss(self._model, moved)
            with session.phase("backward"):
                part = loss if self._run.accumulate == 1 else loss / self._run.accumulate
                self._scaler.scale(part).backward()  # type: ignore[no-untyped-call]
                if last and not self._run.overlap:
                    average_gradients(self._model.parameters(), self._run.bucket_cap_mb)
        return loss.detach()

    def _averaging(self, last: bool, first_step: bool) -> AbstractContextManager[None]:
        """Let DDP average the gradients in the last micro-step only, or not at all with `--no-overlap`.

        DDP learns a static graph in the first backward, which must average for that: with a static graph, all
        micro-steps of the first step average. Averaging averaged gradients again does not change them.
        """
        learns_graph = self._run.static_graph and first_step
        return nullcontext() if self._run.overlap and (last or learns_graph) else self._model.no_sync()

    def _autocast(self) -> torch.autocast:
        dtype = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}[self._run.precision]
        return torch.autocast(self._device.type, dtype=dtype, enabled=dtype is not None)

    def _update(self) -> None:
        optimizer = self._optimization.optimizer
        if self._optimization.clip_norm is not None:
            self._scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(self._model.parameters(), self._optimization.clip_norm)
        self._scaler.step(optimizer)
        self._scaler.update()
        if self._optimization.scheduler is not None:
            self._optimization.scheduler.step()
        optimizer.zero_grad(set_to_none=True)


def wrap(model: nn.Module, run: RunConfig) -> DistributedDataParallel:
    """Return `model` in DDP, compiled if the run's options ask for it.

    DDP wraps the compiled module, not the other way round: torch compiles what the user's own frames call, and in
    `compile(DDP(nn.Transformer))` there is no such frame, so that it silently runs eager. In this order both compile,
    and torch still splits the graph at DDP's buckets, so that averaging overlaps with backward.
    """
    module = cast("nn.Module", torch.compile(model)) if run.compile else model
    return DistributedDataParallel(
        module,
        bucket_cap_mb=run.bucket_cap_mb,  # None is torch's own default
        static_graph=run.static_graph,
        find_unused_parameters=run.find_unused,
    )


def checkpoint_activations(layers: list[nn.Module]) -> None:
    """Let each layer keep only its input for backward, and recompute the rest there (with the same dropout)."""
    for layer in layers:
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)


def _batches(data: Input, session: Session) -> Iterator[Batch]:
    for epoch in itertools.count():
        data.sampler.set_epoch(epoch)
        yield from session.batches(data.loader)
