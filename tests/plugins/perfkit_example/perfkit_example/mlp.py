"""A workload: a multi-layer perceptron on random numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar

from msgspec import Meta, Struct
from numpy.random import default_rng

from perfkit_workloads.base import Arrays, DataSpec, Field, Optimization, Workload, generate_blocks

if TYPE_CHECKING:  # torch is imported in methods only, so that `perfkit run mlp --help` is fast
    from torch import Tensor, nn


class MLPConfig(Struct, frozen=True, kw_only=True):
    """Options of the perceptron."""

    samples: Annotated[int, Meta(ge=1, description="samples in the data set")] = 512
    width: Annotated[int, Meta(ge=1, description="features of every layer")] = 64
    depth: Annotated[int, Meta(ge=1, description="hidden layers")] = 2


class MLP(Workload[MLPConfig]):
    """A multi-layer perceptron that learns to reproduce its input."""

    name = "mlp"
    Config = MLPConfig
    PRESETS: ClassVar[dict[str, dict[str, object]]] = {"default": {}, "wide": {"width": 1024}}
    DEFAULT_PRESET = "default"

    def data_spec(self, seed: int) -> DataSpec:
        """Describe the samples: `width` float32 numbers each."""
        fields = (Field(name="x", shape=(self.config.width,), dtype="float32"),)
        return DataSpec(workload=self.name, fields=fields, samples=self.config.samples, seed=seed)

    def generate(self, spec: DataSpec, start: int, stop: int) -> Arrays:
        """Return uniform random numbers, seeded by (seed, block)."""

        def block(number: int) -> Arrays:
            return {"x": default_rng((spec.seed, number)).random((spec.block_samples, self.config.width), "float32")}

        return generate_blocks(spec, start, stop, block)

    def build(self) -> nn.Module:
        """Build the layers."""
        from torch import nn

        width = self.config.width
        hidden = [layer for _ in range(self.config.depth) for layer in (nn.Linear(width, width), nn.ReLU())]
        return nn.Sequential(*hidden, nn.Linear(width, width))

    def layers(self, model: nn.Module) -> list[nn.Module]:
        """Return the layers of the bare model."""
        return list(model.children())

    def loss(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        """Return the mean squared error of the reproduction."""
        from torch.nn import functional

        return functional.mse_loss(model(batch["x"]), batch["x"])

    def optimization(
        self, model: nn.Module, *, world_size: int, total_steps: int, device_type: str, accumulate: int = 1
    ) -> Optimization:
        """Use plain SGD."""
        from torch.optim import SGD

        return Optimization(optimizer=SGD(model.parameters(), lr=0.01))
