"""A package with a workload and a source for perfkit, installed as pip would leave it."""

from pathlib import Path

SOURCE = '''
from typing import Annotated

import numpy as np
from msgspec import Meta, Struct

from perfkit_workloads.base import DataSpec, Field, Optimization, Workload, generate_blocks
from perfkit_workloads.data.memory import Memory


class MLPConfig(Struct, frozen=True, kw_only=True):
    samples: Annotated[int, Meta(ge=1, description="samples in the data set")] = 64
    width: Annotated[int, Meta(ge=1, description="features of the hidden layer")] = 8


class MLP(Workload[MLPConfig]):
    """Regression with one hidden layer."""

    name = "mlp"
    Config = MLPConfig
    PRESETS = {"default": {"batch_size": 4}, "wide": {"width": 64}}
    DEFAULT_PRESET = "default"

    def data_spec(self, seed):
        field = Field(name="x", shape=(3,), dtype="float32")
        return DataSpec(workload=self.name, fields=(field,), samples=self.config.samples, seed=seed)

    def generate(self, spec, start, stop):
        def block(number):
            return {"x": np.random.default_rng((spec.seed, number)).random((spec.block_samples, 3), dtype="float32")}

        return generate_blocks(spec, start, stop, block)

    def build(self):
        from torch import nn

        return nn.Sequential(nn.Linear(3, self.config.width), nn.ReLU(), nn.Linear(self.config.width, 1))

    def layers(self, model):
        return list(model)

    def loss(self, model, batch):
        return (model(batch["x"]) - batch["x"].sum(1, keepdim=True)).square().mean()

    def optimization(self, model, *, world_size, total_steps, device_type, accumulate=1):
        from torch.optim import SGD

        return Optimization(SGD(model.parameters(), lr=0.01))


class RamConfig(Struct, frozen=True, kw_only=True):
    ram_banks: Annotated[int, Meta(ge=1, description="banks of memory")] = 1


class Ram(Memory):
    Config = RamConfig
    package = "pk_plugins"


class Incomplete(Workload):
    name = "incomplete"
    Config = MLPConfig

    def build(self):
        raise NotImplementedError


class Greedy(MLP):
    name = "greedy"

    class Config(MLPConfig):
        seed: Annotated[int, Meta(description="an option that perfkit run has already")] = 0
'''
WORKLOADS = {
    "mlp": "pk_plugins:MLP",
    "misnamed": "pk_plugins:MLP",
    "greedy": "pk_plugins:Greedy",
    "incomplete": "pk_plugins:Incomplete",
    "source": "pk_plugins:Ram",
    "broken": "pk_broken:MLP",
}
SOURCES = {"ram": "pk_plugins:Ram", "broken": "pk_broken:Ram"}


def install(folder: Path) -> None:
    """Install `pk_plugins` 1.2 into a folder, with a second module that cannot be imported."""
    (folder / "pk_plugins.py").write_text(SOURCE)
    (folder / "pk_broken.py").write_text("1 / 0")
    metadata = folder / "pk_plugins-1.2.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: pk_plugins\nVersion: 1.2\n")
    groups = {"perfkit.workloads": WORKLOADS, "perfkit.sources": SOURCES}
    lines = [
        line
        for group, entries in groups.items()
        for line in (f"[{group}]", *(f"{name} = {target}" for name, target in entries.items()))
    ]
    (metadata / "entry_points.txt").write_text("\n".join(lines))
