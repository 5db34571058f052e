"""ZeRO stages 0 to 3 by DeepSpeed. Importing this imports neither torch nor deepspeed."""

from __future__ import annotations

import os
import shutil
import warnings
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, ClassVar

from perfkit.errors import LaunchEnvironmentError
from perfkit.record.training.strategies import deepspeed_config
from perfkit.record.training.strategies.base import Strategy

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    import torch
    from torch import Tensor, nn
    from torch.optim import Optimizer

    from perfkit.options.run import RunConfig
    from perfkit.record.training.strategies.deepspeed_engine import DeepSpeedOptimizer
    from perfkit.records.manifest import RankMemory
    from perfkit_workloads.base import Optimization, OptimizerFactory


class DeepSpeed(Strategy):
    """DeepSpeed's engine: it averages gradients, clips them, scales losses and updates the parameters."""

    name = "deepspeed"
    PACKAGES: ClassVar[Mapping[str, str]] = {"deepspeed": "deepspeed"}
    OWN_PRECISION = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._optimizer: DeepSpeedOptimizer | None = None

    @classmethod
    def find_problems(cls, run: RunConfig) -> Iterator[str]:
        yield from deepspeed_config.find_problems(run)

    @classmethod
    def find_start_problems(cls, run: RunConfig, replicas: int, device_type: str) -> Iterator[str]:
        yield from deepspeed_config.find_start_problems(run, replicas, device_type)

    def wrap(self, model: nn.Module, layers: Sequence[nn.Module]) -> nn.Module:  # noqa: ARG002
        """Return `model`: DeepSpeed wraps it together with its optimizer, in `start`."""
        _prepare_environment(next(model.parameters()).device)
        return model

    def optimizer_factory(self) -> OptimizerFactory:
        """Return a factory of optimizers that can update parameters in the host's memory if the file offloads them."""
        return self._make

    def _make(self, kind: type[Optimizer], parameters: Any, **options: Any) -> Optimizer:
        made: Optimizer
        config = deepspeed_config.make_config(self.run, None)
        if deepspeed_config.offload_device(config, "offload_optimizer") is None:
            factory: Any = kind
            made = factory(parameters, **options)
            return made
        from torch.optim import AdamW

        _require_compiler(config)
        from deepspeed.ops.adam import DeepSpeedCPUAdam

        made = DeepSpeedCPUAdam(parameters, adamw_mode=kind is AdamW, **options)
        return made

    def start(self, model: nn.Module, optimization: Optimization) -> tuple[nn.Module, Optimization]:
        """Return DeepSpeed's engine, and an optimization whose step is the engine's."""
        from perfkit.record.training.strategies.deepspeed_engine import DeepSpeedOptimizer, start_engine
        from perfkit_workloads.base import Optimization

        config = deepspeed_config.make_config(self.run, optimization.clip_norm)
        _require_compiler(config)
        engine = start_engine(model, None if "optimizer" in config else optimization.optimizer, config)
        self._optimizer = DeepSpeedOptimizer(engine)
        replaced = any(name in config for name in deepspeed_config.REPLACED)
        return engine, Optimization(self._optimizer, None if replaced else optimization.scheduler)

    def averaging(self, model: nn.Module, *, last: bool, first_step: bool) -> AbstractContextManager[Any]:  # noqa: ARG002
        """Leave to DeepSpeed in which micro-step gradients are averaged: with stages 2 and 3, in each."""
        return nullcontext()

    def backward(self, model: nn.Module, loss: Tensor, *, last: bool) -> None:
        """Let the engine compute the gradients, which counts micro-steps by calls of its `step`."""
        engine: Any = model
        engine.backward(loss, scale_wrt_gas=False)  # the loss is already divided by the micro-steps
        if not last:
            engine.step()

    def memory(self) -> RankMemory | None:
        return None if self._optimizer is None else self._optimizer.memory

    def gathered(self, model: nn.Module) -> AbstractContextManager[Any]:
        from deepspeed import zero

        context: AbstractContextManager[Any] = zero.GatheredParameters([*model.parameters()])
        return context


def _prepare_environment(device: torch.device) -> None:
    """Set the variables that DeepSpeed reads, and turn off what it would compile without a use.

    DeepSpeed takes the kind of device from the packages that are installed, and its number from LOCAL_RANK.
    """
    if device.type == "cpu":
        os.environ["DS_ACCELERATOR"] = "cpu"
    os.environ["LOCAL_RANK"] = str(device.index or 0)
    os.environ.setdefault("LOCAL_SIZE", "1")  # else it counts the CPU's memory nodes
    from deepspeed import ops

    # An all-reduce through shared memory, for inference only: DeepSpeed would compile it, for minutes.
    ops.__compatible_ops__["deepspeed_shm_comm"] = False
    warnings.filterwarnings("ignore", r"`torch\.distributed\..*` is deprecated", FutureWarning)


def _require_compiler(config: dict[str, Any]) -> None:
    """Refuse a configuration that needs a C++ compiler where there is none."""
    part = deepspeed_config.compiled_part(config)
    if part is not None and shutil.which(os.environ.get("CXX", "c++")) is None:
        raise LaunchEnvironmentError(
            f"DeepSpeed has to compile {part} of --ds-config: install a C++ compiler (CXX selects it), or remove that"
        )
