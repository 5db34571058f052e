"""The base class of workloads: configuration, deterministic samples, model, loss and optimizer.

Importing this module does not import torch: options are built and data sets described without it.
"""

from __future__ import annotations

import hashlib
import json
import math
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Generic, Literal, Protocol, TypeVar, get_args

import msgspec
import numpy as np
from numpy.typing import NDArray

from perfkit_workloads.parallel import ContextParallel, ExpertParallel, PipelineParallel, TensorParallel

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

DATA_VERSION: Final = 1
"""Part of every fingerprint: increase it when `generate` of any workload returns different numbers."""

BLOCK_BYTES: Final = 4 << 20
MAX_BLOCK_SAMPLES: Final = 1024

Arrays = dict[str, NDArray[Any]]
"""One array per field, samples along the first axis."""

RateScale = Annotated[
    Literal["linear", "sqrt", "none"],
    msgspec.Meta(description="how the learning rate grows with the number of batches per step (ranks x micro-steps)"),
]

ConfigT = TypeVar("ConfigT", bound=msgspec.Struct)


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """One named tensor of a sample."""

    name: str
    shape: tuple[int, ...]
    """Shape of one sample, without the batch axis."""
    dtype: Literal["float32", "int32"]

    @property
    def sample_bytes(self) -> int:
        """Bytes of this field in one sample (both types take four bytes per entry)."""
        return 4 * math.prod(self.shape)


class DataSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that determines the content of a data set, and nothing else."""

    workload: str
    fields: tuple[Field, ...]
    samples: int
    seed: int
    parameters: dict[str, bool | int | float | str | None] = {}
    """Further values that the samples depend on: a vocabulary size, the fingerprint of a text."""

    @property
    def sample_bytes(self) -> int:
        return sum(field.sample_bytes for field in self.fields)

    @property
    def block_samples(self) -> int:
        """Samples that are generated from one seed; depends only on the size of a sample."""
        return max(1, min(MAX_BLOCK_SAMPLES, BLOCK_BYTES // self.sample_bytes))

    @property
    def fingerprint(self) -> str:
        """SHA-256 (hexadecimal) over the canonical JSON of this spec and `DATA_VERSION`."""
        content = {"version": DATA_VERSION, "spec": msgspec.to_builtins(self)}
        canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()


def generate_blocks(spec: DataSpec, start: int, stop: int, block: Callable[[int], Arrays]) -> Arrays:
    """Assemble samples [start, stop) from blocks of `spec.block_samples`.

    Block `k` is always generated as a whole from `(seed, k)`, so that every split of a data set into ranges gives the
    same samples, and a file larger than memory can be written slab by slab.

    Args:
        block: Returns block number `k`: `spec.block_samples` samples of every field.

    Returns:
        One array per field, `(stop - start, *field.shape)`.
    """
    size = spec.block_samples
    arrays: Arrays = {field.name: np.empty((stop - start, *field.shape), field.dtype) for field in spec.fields}
    for number in range(start // size, -(-stop // size)):
        first, last = max(start, number * size), min(stop, (number + 1) * size)
        for name, values in block(number).items():
            arrays[name][first - start : last - start] = values[first - number * size : last - number * size]
    return arrays


def scale_rate(rate: float, scale: RateScale, batches: int) -> float:
    """Scale a learning rate `rate` for one batch to steps over `batches` batches.

    Linear: Goyal et al., "Accurate, Large Minibatch SGD" (2017). Square root: keeps the noise of Adam's updates
    constant (Malladi et al., "On the SDEs and Scaling Rules for Adaptive Gradient Algorithms", 2022).
    """
    factors = {"linear": float(batches), "sqrt": math.sqrt(batches), "none": 1.0}
    return rate * factors[scale]


@dataclass(frozen=True)
class Optimization:
    """Optimizer, learning-rate schedule and gradient clipping."""

    optimizer: Optimizer
    scheduler: LRScheduler | None = None
    """Stepped once after every optimizer step."""
    clip_norm: float | None = None
    """Gradients are clipped to this total norm before every optimizer step; None disables clipping."""


class SampleGenerator(Protocol):
    """What a source needs of a workload."""

    def generate(self, spec: DataSpec, start: int, stop: int) -> Arrays:
        """Return samples [start, stop) of `spec`, the same for every split into ranges."""


class OptimizerFactory(Protocol):
    """Makes an optimizer; a strategy that partitions its state provides another one."""

    def __call__(self, kind: type[Optimizer], parameters: Any, **options: Any) -> Optimizer:
        """Return an optimizer of a `kind` for `parameters` or groups of them."""


def make_optimizer(kind: type[Optimizer], parameters: Any, **options: Any) -> Optimizer:
    """Return an optimizer that holds all of its state."""
    factory: Any = kind
    made: Optimizer = factory(parameters, **options)
    return made


def split_by_mesh(parameters: Iterable[nn.Parameter]) -> list[list[nn.Parameter]]:
    """Return the parameters in lists whose members an optimizer can update together.

    torch's operators on several tensors take no mixture of tensors that are distributed over different meshes.
    """
    lists: dict[object, list[nn.Parameter]] = defaultdict(list)
    for parameter in parameters:
        lists[getattr(parameter, "device_mesh", None)].append(parameter)
    return list(lists.values())


EvaluationPart = Literal["train", "val"]
EVALUATION_PARTS: Final[tuple[EvaluationPart, ...]] = get_args(EvaluationPart)
"""Samples that are trained on, and others, as nanoGPT calls them."""


class Workload(ABC, Generic[ConfigT]):
    """One model and its data.

    Every field of `Config` has a default and is `Annotated` with a `msgspec.Meta` that describes and bounds it: the
    command-line options, their help and their checks are built from it. The first paragraph of the class's docstring is
    the help of `perfkit run NAME`.

    The command line imports the class for its options, which should not take the time of importing torch: import torch
    inside methods, and define modules (`nn.Module`) in a file that only methods import, as `gpt` does.
    """

    name: ClassVar[str]
    Config: ClassVar[type[msgspec.Struct]]
    PRESETS: ClassVar[dict[str, dict[str, object]]]
    """Option values by preset; they may include general options such as batch_size."""
    DEFAULT_PRESET: ClassVar[str]
    STRATEGIES: ClassVar[frozenset[str]] = frozenset()
    """What it can be trained with besides DDP, as values of `--dp`.

    With `zero1`, its `optimization` takes an `OptimizerFactory` as the keyword argument `make`, and uses it."""
    EVALUATES: ClassVar[bool] = False
    """Whether `evaluation_samples` returns samples."""
    PACKAGES: ClassVar[Mapping[str, str]] = {}
    """Packages besides torch that it imports to train, and the extra of perfkit that installs each."""

    def __init__(self, config: ConfigT) -> None:
        self.config = config

    def dimensions(self) -> set[str]:
        supported = {"tp": TensorParallel, "pp": PipelineParallel, "cp": ContextParallel, "ep": ExpertParallel}
        return {name for name, base in supported.items() if isinstance(self, base)}

    @property
    def tokens_per_sample(self) -> int | None:
        """Tokens per sample that are trained on; None if the workload has no tokens."""
        return None

    def flops_per_token(self, model: nn.Module) -> float | None:  # noqa: ARG002
        """Return the model FLOPs per token of a training step; None without a formula."""
        return None

    def find_mesh_problem(self, sizes: Mapping[str, int], *, sequence: bool, stages: int) -> str | None:  # noqa: ARG002
        """Return why the model cannot be trained on a mesh with the dimensions `sizes`; None if it can be.

        Args:
            sizes: By name.
            sequence: Whether sequence parallelism is used.
            stages: Stages of the pipeline; 1 without.
        """
        return None

    @abstractmethod
    def data_spec(self, seed: int) -> DataSpec:
        """Return the description of the data set that this configuration trains on."""

    @abstractmethod
    def generate(self, spec: DataSpec, start: int, stop: int) -> Arrays:
        """Return samples [start, stop) of `spec`, the same for every split into ranges."""

    def evaluation_samples(self, part: EvaluationPart, seed: int, count: int) -> Arrays | None:  # noqa: ARG002
        """Return `count` samples to evaluate on, of those that are trained on or of others; None if there are none."""
        return None

    @abstractmethod
    def build(self) -> nn.Module:
        """Build the model on torch's current default device, from torch's current random state."""

    @abstractmethod
    def layers(self, model: nn.Module) -> list[nn.Module]:
        """Return the repeated layers of the bare `model`: the units of activation checkpointing."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        """Run `model` (bare or wrapped) forward on a batch and return the scalar loss."""

    @abstractmethod
    def optimization(
        self, model: nn.Module, *, world_size: int, total_steps: int, device_type: str, accumulate: int = 1
    ) -> Optimization:
        """Build the optimizer, schedule and clipping for `model` (bare or wrapped).

        Args:
            model: The model to train.
            world_size: Number of ranks that train on different samples.
            total_steps: Number of training steps.
            device_type: Kind of device that the model is on.
            accumulate: Micro-steps per step.
        """
