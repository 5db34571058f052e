"""The training loop of one rank: micro-steps, precision, the strategy that shares the model, compilation."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from msgspec import Struct
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.checkpoint import checkpoint

from perfkit.options.mesh import MeshLayout
from perfkit.options.run import RunConfig
from perfkit.record.distributed.rank_group import ProcessRankGroup
from perfkit.record.recording.manifest_writer import checksum_on_all_ranks
from perfkit.record.recording.recording import Recording
from perfkit.record.training.compile_monitor import CompileMonitor
from perfkit.record.training.experts import Experts
from perfkit.record.training.model_division import divide_model, make_device_mesh
from perfkit.record.training.parameters import TrainedParameters
from perfkit.record.training.progress import Show
from perfkit.record.training.strategies import STRATEGIES
from perfkit.records.manifest import RankMemory
from perfkit_workloads.base import Optimization, Workload
from perfkit_workloads.data.opening import Loader
from perfkit_workloads.data.sampling import EpochSampler
from perfkit_workloads.parallel import ExpertParallel, PipelineParallel

if TYPE_CHECKING:
    from perfkit.record.training.pipeline import Pipeline

Batch = Mapping[str, Tensor]


class Input(Struct, frozen=True, kw_only=True):
    """What one rank trains on."""

    loader: Loader
    sampler: EpochSampler
    """Samples single samples; the loader may wrap it in a batch sampler."""
    steps: int


class Trainer:
    """Trains a model on one rank."""

    def __init__(
        self, workload: Workload[Any], run: RunConfig, ranks: ProcessRankGroup, model: nn.Module, steps: int
    ) -> None:
        self._workload = workload
        self._run = run
        self._steps = steps
        self._device = next(model.parameters()).device
        layout = run.layout(ranks.world_size)
        if run.checkpoint_activations:
            checkpoint_activations(workload.layers(model))
        self.compiled = CompileMonitor() if run.compile else None
        """What was compiled; None unless the model is to be compiled."""
        self.memory: RankMemory | None = None
        """What this rank holds; None before the first step has ended."""
        plain = run.dp == "ddp" and list(layout.sizes) == ["dp"]  # DDP over all ranks needs no mesh
        self._mesh = None if plain else make_device_mesh(layout, self._device.type, run.timeout_delta)
        self._strategy = STRATEGIES.load(run.dp)(run, self._mesh)
        self._pipeline = self._make_pipeline(layout, model)
        bare = [model] if self._pipeline is None else self._pipeline.modules
        parts = {
            own: part
            for module in bare
            for own, part in divide_model(workload, run, self._strategy, self._mesh, module).items()
        }
        mixtures = workload.expert_layers(model) if isinstance(workload, ExpertParallel) else []
        self.experts = Experts(mixtures, [*parts], self._mesh) if mixtures and self._pipeline is None else None
        """The mixtures of experts; None if the model has none."""
        wrapped = self._wrap(bare, layout)
        copies = [] if self._pipeline is None else self._pipeline.tied_copies()
        self._model = wrapped[0] if self._pipeline is None else nn.ModuleList(wrapped)
        self._parameters = TrainedParameters(self._model, self._mesh, parts, copies)
        own = self._make_optimization(bare[0] if self._pipeline is None else self._model, layout.replicas)
        self._model, self._optimization = self._strategy.start(self._model, own)
        # A disabled scaler passes everything through.
        scaled = run.precision == "float16" and not self._strategy.OWN_PRECISION
        self._scaler = torch.amp.GradScaler(self._device.type, enabled=scaled)

    def _make_pipeline(self, layout: MeshLayout, model: nn.Module) -> "Pipeline | None":
        if self._mesh is None or "pp" not in layout.sizes:
            return None
        from perfkit.record.training import pipeline  # takes time to import

        assert isinstance(self._workload, PipelineParallel)  # noqa: S101  # the options were checked
        return pipeline.Pipeline(self._workload, self._run, layout, self._mesh, model, self._workload.layers)

    def _wrap(self, bare: list[nn.Module], layout: MeshLayout) -> list[nn.Module]:
        # A single rank's pipeline stages need no averaging; otherwise DDP wraps even one rank (see `worker`).
        averaged = self._pipeline is None or layout.replicas > 1 or not self._strategy.USES_DDP
        layers = self._workload.layers
        wrapped = [self._strategy.wrap(module, layers(module)) if averaged else module for module in bare]
        if self._pipeline is not None:
            self._pipeline.connect(wrapped)
        return wrapped

    def _make_optimization(self, model: nn.Module, replicas: int) -> Optimization:
        factory = self._strategy.optimizer_factory()
        made: Optimization = self._workload.optimization(
            model,
            world_size=replicas,
            accumulate=self._run.accumulate,
            total_steps=self._steps,
            device_type=self._device.type,
            **({} if factory is None else {"make": factory}),
        )
        return made

    def train(
        self,
        data: Input,
        recording: Recording,
        show: Show,
        between: Sequence["Callable[[Trainer, Recording], None]"] = (),
    ) -> None:
        """Train all steps, over as many epochs as needed, and call `between` after each."""
        recording.begin()
        split: AbstractContextManager[None] = nullcontext()
        if self._run.loss_parallel:
            from torch.distributed.tensor.parallel import loss_parallel  # takes time to import

            split = loss_parallel()  # of outputs that are split along their classes, for forward and backward
        batches = _batches(data, recording)
        with split:
            while recording.steps < self._steps:
                with nullcontext() if self.compiled is None else self.compiled.watching(recording.steps):
                    loss = self._step(batches, recording)
                recording.step(loss)
                for action in between:
                    action(self, recording)
                if not recording.recording or recording.steps == self._steps:
                    show(recording.steps)

    @property
    def device(self) -> torch.device:
        return self._device

    @contextmanager
    def evaluating(self) -> Iterator[nn.Module]:
        """Switch the model to evaluation, without gradients, in the precision of training."""
        self._model.eval()
        try:
            with torch.no_grad(), self._autocast():
                yield self._model
        finally:
            self._model.train()

    def state(self) -> dict[str, Any]:
        """Return the whole model's and optimizer's state, of which every rank has a copy."""
        bare = getattr(self._model, "module", self._model)
        return {"model": bare.state_dict(), "optimizer": self.optimizer.state_dict()}

    def sharded_state(self) -> dict[str, Any]:
        """Return this rank's part of the state, by the names that the whole model has."""
        from torch.distributed.checkpoint.state_dict import get_state_dict  # takes time to import

        model, optimizer = get_state_dict(self._model, self.optimizer)
        return {"model": model, "optimizer": optimizer}

    @property
    def optimizer(self) -> Optimizer:
        return self._optimization.optimizer

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        return self._model.named_parameters()

    def checksum(self, ranks: ProcessRankGroup) -> str:
        """Return the SHA-256 of the trained parameters; called by all ranks."""
        if self._pipeline is not None:
            return self._pipeline.checksum(ranks, self._parameters.whole())
        with self._strategy.gathered(self._model):
            return checksum_on_all_ranks(ranks, self._parameters.whole(), "after the last step")

    def _step(self, batches: Iterator[Batch], recording: Recording) -> Tensor | None:
        if self._pipeline is None:
            loss: Tensor | None = self._micro_steps(batches, recording)
        else:
            loss = self._pipeline.compute(self._to_device(next(batches), recording), recording)
        with recording.phase("optimizer"):
            self._update()
        return loss

    def _micro_steps(self, batches: Iterator[Batch], recording: Recording) -> Tensor:
        last = self._run.accumulate - 1
        losses = [
            self._micro_step(next(batches), recording, last=number == last) for number in range(self._run.accumulate)
        ]
        return losses[0] if last == 0 else torch.stack(losses).mean()

    def _micro_step(self, batch: Batch, recording: Recording, last: bool) -> Tensor:
        moved = self._to_device(batch, recording)
        with self._strategy.averaging(self._model, last=last, first_step=recording.steps == 0):
            with recording.phase("forward"), self._autocast():
                loss = self._workload.loss(self._model, moved)
            if self.experts is not None:
                self.experts.count_tokens()
            with recording.phase("backward"):
                part = loss if self._run.accumulate == 1 else loss / self._run.accumulate
                self._strategy.backward(self._model, self._scaler.scale(part), last=last)
                if last:
                    self._strategy.finish_backward(self._model)
                    if self.experts is not None:
                        self.experts.finish_step()
        return loss.detach()

    def _to_device(self, batch: Batch, recording: Recording) -> Batch:
        with recording.phase("to_device"):
            return {name: tensor.to(self._device, non_blocking=True) for name, tensor in batch.items()}

    def _autocast(self) -> torch.autocast:
        precision = "float32" if self._strategy.OWN_PRECISION else self._run.precision
        dtype = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}[precision]
        return torch.autocast(self._device.type, dtype=dtype, enabled=dtype is not None)

    def _update(self) -> None:
        optimizer = self._optimization.optimizer
        if self._optimization.clip_norm is not None:
            self._scaler.unscale_(optimizer)
            self._parameters.clip_gradients(self._optimization.clip_norm)
        self._scaler.step(optimizer)
        self._scaler.update()
        if self._optimization.scheduler is not None:
            self._optimization.scheduler.step()
        if self.memory is None:
            held = self._strategy.memory()
            self.memory = held or self._parameters.measure_memory(self._strategy.local_optimizer(optimizer))
        optimizer.zero_grad(set_to_none=True)


def checkpoint_activations(layers: list[nn.Module]) -> None:
    """Let each layer keep only its input for backward, and recompute the rest there (with the same dropout)."""
    for layer in layers:
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)


def _batches(data: Input, recording: Recording) -> Iterator[Batch]:
    for epoch in itertools.count():
        data.sampler.set_epoch(epoch)
        yield from recording.batches(data.loader)
