"""What a traced step trains: the GPT workload, or a module of the user's own."""

import inspect
import runpy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer
from torch.utils.flop_counter import FlopCounterMode

from perfkit.errors import UsageError
from perfkit.tools.plan.shape import Tensor as Shaped
from perfkit.tools.plan.traced.launch import OwnModule, TracedModel
from perfkit_workloads.base import Workload
from perfkit_workloads.gpt import GPT, GPTConfig


class GptSubject:
    """The GPT workload."""

    described: TracedModel | None = None
    """Its parameters and FLOP: formulas know them."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options
        self._gpt = GPT(GPTConfig(**options))
        self._stages = 1

    @property
    def workload(self) -> Workload[Any]:
        return self._gpt

    def build(self, stage: int, stages: int) -> nn.Module:
        # A new one: the workload remembers how its sequences are divided.
        self._gpt = GPT(GPTConfig(**self._options))
        self._stages = stages
        whole = self._gpt.build()
        return whole if stages == 1 else self._gpt.make_stage(whole, stage, stages)

    def layers(self, module: nn.Module) -> list[nn.Module]:
        return self._gpt.layers(module)

    def optimizer(self, module: nn.Module) -> Optimizer:
        return self._gpt.optimization(module, world_size=1, total_steps=10, device_type="cpu").optimizer

    def batch(self, samples: int, stage: int) -> Any:
        """Return windows of tokens, and for later stages also what the stage before passes on."""
        config = self._gpt.config
        batch = {"tokens": torch.zeros((samples, config.block + 1), dtype=torch.int32)}
        if stage:
            batch["hidden"] = torch.zeros((samples, config.block, config.width), requires_grad=True)
        return batch

    def forward(self, module: nn.Module, batch: Any, stage: int) -> tuple[Tensor, Tensor]:
        """Return the loss, or of all stages but the last what the next one takes."""
        if self._stages == 1:
            loss = self._gpt.loss(module, batch)
            return loss, loss
        inputs, targets = self._gpt.split_batch(batch)
        output: Tensor = module(batch["hidden"].detach().requires_grad_() if stage else inputs)
        return (self._gpt.output_loss(output, targets) if stage == self._stages - 1 else output), output


class OwnSubject:
    """A module of the user's own: AdamW, and the mean of its output, or its own loss, is minimised."""

    workload: Workload[Any] | None = None

    def __init__(self, own: OwnModule | None) -> None:
        assert own is not None  # noqa: S101  # a request has one of both
        self._own = own
        self._build = load_function(own.path, own.function)
        self._batch = load_function(own.batch_path or own.path, own.batch_function) if own.batch_function else None
        self.described: TracedModel | None = None
        """Its parameters by layer, and the FLOP of a step, once it is built."""

    def build(self, stage: int, stages: int) -> nn.Module:  # noqa: ARG002
        """Return the module.

        Raises:
            UsageError: The function returns something else.
        """
        module = self._build()
        if not isinstance(module, nn.Module):
            raise UsageError(
                f"{self._own.path}:{self._own.function} returned {type(module).__name__}, not a torch module"
            )
        if self.described is None:
            self.described = self._describe(module)
        return module

    def layers(self, module: nn.Module) -> list[nn.Module]:
        """Return the members of the module list with most parameters."""
        lists = [found for found in module.modules() if isinstance(found, nn.ModuleList)]
        return list(max(lists, key=lambda found: sum(p.numel() for p in found.parameters()), default=[]))

    def optimizer(self, module: nn.Module) -> Optimizer:
        return AdamW(module.parameters(), lr=1e-4, foreach=True)

    def batch(self, samples: int, stage: int) -> Any:  # noqa: ARG002
        """Return what the user's function returns, or tensors as `--input` describes them."""
        if self._batch is not None:
            made = self._batch()
            return made if isinstance(made, dict | tuple | list) else (made,)
        return tuple(torch.zeros(spec.shape, dtype=getattr(torch, spec.dtype)) for spec in self._own.inputs)

    def forward(self, module: nn.Module, batch: Any, stage: int) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        """Return the loss.

        Raises:
            UsageError: The module returns no tensor.
        """
        output = module(**batch) if isinstance(batch, dict) else module(*batch)
        loss = getattr(output, "loss", None)
        found = loss if loss is not None else output[0] if isinstance(output, tuple | list) else output
        if not isinstance(found, Tensor):
            raise UsageError(
                f"the module returned {type(output).__name__}: a tensor, a tuple or something with a loss is needed"
            )
        return (found.float().mean() if found.dim() else found), found

    def _describe(self, module: nn.Module) -> TracedModel:
        layers = self.layers(module)
        numbers = {id(p): number for number, layer in enumerate(layers) for p in layer.parameters()}
        tensors = [
            Shaped(
                p.shape[0] if p.dim() else 1,
                max(1, p.numel() // max(1, p.shape[0])) if p.dim() else 1,
                numbers.get(id(p)),
            )
            for p in module.parameters()
        ]
        batch = self.batch(1, 0)
        first = next(iter(batch.values() if isinstance(batch, dict) else batch))
        with FlopCounterMode(display=False) as counter:
            self.forward(module, batch, 0)[0].backward()  # type: ignore[no-untyped-call]
        module.zero_grad(set_to_none=True)
        return TracedModel(
            tensors=tensors,
            layers=len(layers),
            samples=first.shape[0] if isinstance(first, Tensor) and first.dim() else 1,
            flops=counter.get_total_flops(),
        )


def load_function(path: str, name: str | None) -> Any:
    """Return a function of a Python file.

    Raises:
        UsageError: The file cannot be run, or has no such function.
    """
    if not Path(path).is_file():
        raise UsageError(f"{path}: no such file")
    found = runpy.run_path(path).get(name or "")
    if not (inspect.isfunction(found) or inspect.isclass(found)):
        raise UsageError(f"{path} has no function {name}")
    return found


Subject = GptSubject | OwnSubject
