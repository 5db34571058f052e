"""A package with a workload whose layers sleep for known times, so that the bubble of its pipeline is known.

Sleeping takes no core: more ranks than cores do not disturb each other.
"""

from pathlib import Path

from tests.support.processes.launching import in_real_time, record_forked

SOURCE = '''
import time
from typing import Annotated

import numpy as np
import torch
from msgspec import Meta, Struct
from torch import nn

from perfkit_workloads.base import DataSpec, Field, Optimization, Workload, generate_blocks
from perfkit_workloads.parallel import PipelineParallel


class Input(torch.autograd.Function):
    """Sleeps in forward, and for the gradient of the input."""

    @staticmethod
    def forward(ctx, x, forward_s, backward_s):
        ctx.backward_s = backward_s
        time.sleep(forward_s)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(ctx.backward_s)
        return gradient, None, None


class Weight(torch.autograd.Function):
    """Sleeps for the gradient of the weight."""

    @staticmethod
    def forward(ctx, weight, backward_s):
        ctx.backward_s = backward_s
        return weight.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(ctx.backward_s)
        return gradient, None


class Layer(nn.Module):
    def __init__(self, seconds):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))
        self.seconds = seconds

    def forward(self, x):
        forward_s, input_s, weight_s = self.seconds
        return Input.apply(x, forward_s, input_s) * Weight.apply(self.weight, weight_s)


class Stage(nn.Sequential):
    def forward(self, x):
        return super().forward(x if x.requires_grad else x.detach().requires_grad_())


class SleepyConfig(Struct, frozen=True, kw_only=True):
    samples: Annotated[int, Meta(ge=1, description="samples in the data set")] = 256
    layers: Annotated[int, Meta(ge=1, description="layers that sleep")] = 4
    forward_ms: Annotated[float, Meta(ge=0, description="forward of a layer")] = 10.0
    input_ms: Annotated[float, Meta(ge=0, description="gradient of a layer's input")] = 10.0
    weight_ms: Annotated[float, Meta(ge=0, description="gradient of a layer's weight")] = 10.0
    heavy_stage: Annotated[int, Meta(description="stage whose layers sleep longer")] = -1
    heavy_factor: Annotated[float, Meta(ge=0, description="how much longer")] = 1.0


class Sleepy(Workload[SleepyConfig], PipelineParallel):
    """Layers that sleep."""

    name = "sleepy"
    Config = SleepyConfig
    PRESETS = {"default": {"batch_size": 8}}
    DEFAULT_PRESET = "default"

    def data_spec(self, seed):
        field = Field(name="x", shape=(4,), dtype="float32")
        return DataSpec(workload=self.name, fields=(field,), samples=self.config.samples, seed=seed)

    def generate(self, spec, start, stop):
        def block(number):
            return {"x": np.random.default_rng((spec.seed, number)).random((spec.block_samples, 4), dtype="float32")}

        return generate_blocks(spec, start, stop, block)

    def build(self):
        config = self.config
        seconds = tuple(ms / 1e3 for ms in (config.forward_ms, config.input_ms, config.weight_ms))
        return Stage(*(Layer(seconds) for _ in range(config.layers)))

    def layers(self, model):
        return list(model)

    def loss(self, model, batch):
        return self.output_loss(model(batch["x"]), batch["x"])

    def split_batch(self, batch):
        return batch["x"], batch["x"]

    def output_loss(self, output, target):
        return (output - target).square().mean()

    def make_stage(self, model, index, count):
        size = len(model)
        stage = Stage(*list(model)[index * size // count : (index + 1) * size // count])
        if index == self.config.heavy_stage:
            for layer in stage:
                layer.seconds = tuple(self.config.heavy_factor * part for part in layer.seconds)
        return stage

    def tied_parameters(self, stage):
        return []

    def optimization(self, model, *, world_size, total_steps, device_type, accumulate=1):
        from torch.optim import SGD

        return Optimization(SGD(model.parameters(), lr=0.0))
'''


def install(folder: Path) -> None:
    """Install the package into a folder."""
    (folder / "pk_sleepy.py").write_text(SOURCE)
    metadata = folder / "pk_sleepy-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: pk_sleepy\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[perfkit.workloads]\nsleepy = pk_sleepy:Sleepy\n")


def record(folder: Path, cases: dict[str, str], *, ranks: int) -> dict[str, Path]:
    """Run the workload in pipelines of `ranks`, under `folder` where it is installed; return the folders of the runs.

    As root the ranks have real-time priority: they sleep nearly all the time, and what else the machine does would
    delay them when they wake up.

    Args:
        folder: Where the package is installed.
        cases: Options of each run, by its name.
        ranks: Ranks of each run.
    """
    common = f"sleepy --schedule wait=0,warmup=2,active=4 --steps 6 --threads 1 --mesh pp={ranks}"
    texts = {name: f"{common} {options}" for name, options in cases.items()}
    record_forked(folder / "traces", ranks, texts, before=in_real_time(), packages=folder)
    return {name: folder / "traces" / name for name in cases}
