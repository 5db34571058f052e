"""DeepSpeed's engine as an optimizer of torch, and the memory that it holds."""

import sys
from collections.abc import Iterable, Iterator
from typing import Any, Final

import deepspeed
import torch
from deepspeed import DeepSpeedEngine
from torch import Tensor, nn
from torch.optim import Optimizer

from perfkit.base.formatting import text_of
from perfkit.errors import LaunchEnvironmentError
from perfkit.records.manifest import RankMemory

_MOST_CHARACTERS: Final = 300


class DeepSpeedOptimizer(Optimizer):
    """An optimizer whose step is that of DeepSpeed's engine."""

    def __init__(self, engine: DeepSpeedEngine) -> None:
        super().__init__([*engine.module.parameters()], {})
        self._engine = engine
        self.memory: RankMemory | None = None
        """What this rank held when it was updated for the first time."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # noqa: ARG002
        if self.memory is not None:
            self._engine.step()
            return
        gradients_bytes = total_bytes(gradients(self._engine))
        self._engine.step()
        copies = [*master_copies(self._engine)]
        parameters = [*held_parameters(self._engine)]
        self.memory = RankMemory(
            parameters_bytes=total_bytes(parameters),
            gradients_bytes=gradients_bytes,
            optimizer_bytes=total_bytes([*parameters, *copies, *optimizer_state(self._engine)])
            - total_bytes(parameters),
        )

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Do nothing: the engine clears gradients in its step."""


def start_engine(model: nn.Module, optimizer: Optimizer | None, config: dict[str, Any]) -> DeepSpeedEngine:
    """Return DeepSpeed's engine of a model.

    Args:
        optimizer: Of the model's parameters; None lets DeepSpeed make the one of `config`.
    """
    for handler in deepspeed.utils.logger.handlers:
        handler.setStream(sys.stderr)  # its log would be mixed into results on stdout
    try:
        engine, *_ = deepspeed.initialize(
            model=model,
            optimizer=optimizer,
            model_parameters=model.parameters(),
            config=config,
            dist_init_required=False,
        )
    except Exception as error:  # foreign code, which raises whatever it likes for what a file contains
        if isinstance(error, RuntimeError) and "extension" not in text_of(error):
            raise  # a rank that has left, for example
        text = " ".join(text_of(error).split())[:_MOST_CHARACTERS]  # of its validation, the first line names nothing
        raise LaunchEnvironmentError(
            f"DeepSpeed {deepspeed.__version__} cannot start: {type(error).__name__}: {text}"
        ) from error
    assert isinstance(engine, DeepSpeedEngine)  # noqa: S101
    return engine


def total_bytes(tensors: Iterable[Tensor]) -> int:
    """Return the bytes of tensors, memory that several of them share counted once."""
    spans = sorted({(tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes) for tensor in tensors if tensor.nbytes})
    total, reached = 0, 0
    for begin, end in spans:
        total += max(0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def held_parameters(engine: DeepSpeedEngine) -> Iterator[Tensor]:
    """Yield what this rank holds of each parameter: with stage 3 its part, and all of one that is never divided."""
    for parameter in engine.module.parameters():
        yield parameter.data
        if (part := getattr(parameter, "ds_tensor", None)) is not None:
            yield part


def gradients(engine: DeepSpeedEngine) -> Iterator[Tensor]:
    """Yield the gradients that this rank holds between the backward pass and the update."""
    for parameter in engine.module.parameters():
        yield from (own for own in (parameter.grad, getattr(parameter, "grad_accum", None)) if own is not None)
    averaged = getattr(engine.optimizer, "averaged_gradients", None) or {}
    for group in averaged.values():
        yield from _tensors(group)
    yield from (copy.grad for copy in master_copies(engine) if copy.grad is not None)


def master_copies(engine: DeepSpeedEngine) -> Iterator[Tensor]:
    """Yield the copies of the parameters that the optimizer updates: with ZeRO, this rank's part in float32."""
    for group in getattr(engine.optimizer, "optimizer", engine.optimizer).param_groups:
        yield from group["params"]


def optimizer_state(engine: DeepSpeedEngine) -> Iterator[Tensor]:
    inner = getattr(engine.optimizer, "optimizer", engine.optimizer)
    for values in inner.state.values():
        yield from _tensors(values.values())


def _tensors(values: Any) -> Iterator[Tensor]:
    if isinstance(values, Tensor):
        yield values
    elif values is not None:
        yield from (value for value in values if isinstance(value, torch.Tensor))
