"""The GPT workload: next-token prediction. Its modules are in `perfkit_workloads.gpt_model`.

Importing this file does not import torch: the command line builds its options from `GPTConfig` and the presets.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

import msgspec
import numpy as np
from msgspec import Meta, Struct

from perfkit.errors import UsageError
from perfkit_workloads.base import (
    Arrays,
    DataSpec,
    EvaluationPart,
    Field,
    Optimization,
    OptimizerFactory,
    RateScale,
    Workload,
    generate_blocks,
    make_optimizer,
    scale_rate,
    split_by_mesh,
)
from perfkit_workloads.data.text import Text, load_text
from perfkit_workloads.parallel import ContextParallel, ExpertParallel, PipelineParallel, TensorParallel

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.distributed.device_mesh import DeviceMesh

    from perfkit_workloads.gpt_experts import MixtureOfExperts

BETAS: Final = (0.9, 0.95)
DEFAULT_TOP_K: Final = 2
NOISE: Final = 1 / 8
"""Share of synthetic tokens that are random: no context predicts them."""


class GPTConfig(Struct, frozen=True, kw_only=True):
    """Options of the decoder; the defaults are the preset `tiny`."""

    samples: Annotated[int, Meta(ge=1, description="samples (windows of tokens) in the data set")] = 4096
    text: Annotated[
        str | None,
        Meta(description="folder written by `perfkit data prepare` [default: synthetic tokens]"),
    ] = None
    vocab_size: Annotated[int, Meta(ge=2, description="vocabulary size; with --text, that of the text is used")] = 256
    block: Annotated[int, Meta(ge=1, description="context length in tokens")] = 64
    layers: Annotated[int, Meta(ge=1, description="transformer blocks")] = 2
    heads: Annotated[int, Meta(ge=1, description="attention heads; must divide width")] = 4
    width: Annotated[int, Meta(ge=1, description="embedding size")] = 64
    experts: Annotated[
        int, Meta(ge=0, description="experts of each block's mixture of experts; 0: one MLP for all tokens")
    ] = 0
    top_k: Annotated[int, Meta(ge=1, description="experts that each token goes to; with --experts")] = DEFAULT_TOP_K
    bias: Annotated[bool, Meta(description="biases in linear layers and norms")] = True
    dropout: Annotated[float, Meta(ge=0, lt=1, description="dropout probability")] = 0.0
    learning_rate: Annotated[float, Meta(gt=0, description="peak learning rate")] = 6e-4
    lr_scale: RateScale = "none"  # the peak rate of a recipe is for its global batch size
    final_rate: Annotated[float, Meta(ge=0, le=1, description="final learning rate as a fraction of the peak")] = 0.1
    warmup_steps: Annotated[int, Meta(ge=0, description="warm-up steps of the learning rate")] = 10
    weight_decay: Annotated[float, Meta(ge=0, description="weight decay of matrices and embeddings")] = 0.1
    clip_norm: Annotated[float, Meta(ge=0, description="maximum gradient norm; 0 disables clipping")] = 1.0

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not divisible by heads {self.heads}")
        if 0 < self.experts < self.top_k:
            raise ValueError(f"top_k {self.top_k} is more than the {self.experts} experts")
        if not self.experts and self.top_k != DEFAULT_TOP_K:
            raise ValueError("top_k has no effect without experts: set experts too")


def _gpt2(layers: int, heads: int, width: int) -> dict[str, object]:
    return {
        "layers": layers,
        "heads": heads,
        "width": width,
        "block": 1024,
        "vocab_size": 50257,
        "bias": True,
        "samples": 1024,
        "warmup_steps": 100,
        "batch_size": 4,
    }


class GPT(Workload[GPTConfig], TensorParallel, PipelineParallel, ContextParallel, ExpertParallel):
    """Next-token prediction over windows of `block + 1` tokens.

    Raises:
        UsageError: The text is shorter than one window.
        StoreError: `text` is not a folder written by `perfkit data prepare`.
    """

    name = "gpt"
    Config = GPTConfig
    PRESETS: ClassVar[dict[str, dict[str, object]]] = {
        "tiny": {"batch_size": 16},
        "shakespeare-char": {
            "layers": 4,
            "heads": 4,
            "width": 128,
            "block": 64,
            "vocab_size": 65,
            "bias": False,
            "learning_rate": 1e-3,
            "warmup_steps": 100,
            "batch_size": 16,
        },
        "gpt2": _gpt2(12, 12, 768),
        "gpt2-medium": _gpt2(24, 16, 1024),
        "gpt2-large": _gpt2(36, 20, 1280),
        "gpt2-xl": _gpt2(48, 25, 1600),
    }
    DEFAULT_PRESET = "tiny"
    EVALUATES = True
    STRATEGIES = frozenset({"zero1", "zero2", "zero3", "hsdp", "deepspeed"})

    def __init__(self, config: GPTConfig) -> None:
        super().__init__(config)
        self.text: Text | None = None
        self._positions: Tensor | None = None
        self.vocab_size = config.vocab_size
        if config.text is not None:
            self.text = text = load_text(Path(config.text))
            if text.train_tokens <= config.block:
                raise UsageError(
                    f"{text.folder}: its {text.train_tokens} training characters are fewer than a window "
                    f"of block + 1 = {config.block + 1}; choose a smaller block or a longer text"
                )
            self.vocab_size = text.vocab_size

    @property
    def tokens_per_sample(self) -> int:
        return self.config.block

    def flops_per_token(self, model: nn.Module) -> float:
        """Return 6 N + 12 L H Q T, forward and backward (metrics.md section 8; PaLM, appendix B).

        N counts parameters (the tied head once) without position embeddings, and of the experts those that a token goes
        to; H x Q is the width.
        """
        config = self.config
        parameters = sum(p.numel() for p in model.parameters()) - config.block * config.width
        if config.experts:
            stacked = sum(p.numel() for name, p in model.named_parameters() if ".experts." in name)
            parameters -= stacked * (config.experts - config.top_k) // config.experts
        return float(6 * parameters + 12 * config.layers * config.width * config.block)

    def find_mesh_problem(self, sizes: Mapping[str, int], *, sequence: bool, stages: int) -> str | None:
        """Return which size of the model does not divide by the tensor-parallel ranks, or is less than the stages."""
        ranks, config = sizes.get("tp", 1), self.config
        if "cp" in sizes and config.block % (2 * sizes["cp"]):
            return f"--block {config.block} is not divisible by {2 * sizes['cp']}: each rank of cp has two parts"
        if "cp" in sizes and config.dropout:
            return "ring attention, which cp uses, has no dropout: remove --dropout"
        if "ep" in sizes and config.experts % sizes["ep"]:
            return f"--experts {config.experts} is not divisible by ep={sizes['ep']}"
        if "ep" in sizes and not config.experts:
            return "ep divides the experts of a mixture of experts: add --experts, for example --experts 8"
        for name in ("pp", "tp"):
            if config.experts and name in sizes:
                return f"--experts {config.experts} does not work with the dimension {name}"
        if config.heads % ranks:
            return f"--heads {config.heads} is not divisible by tp={ranks}"
        if sequence and config.block % ranks:
            return f"--block {config.block} is not divisible by tp={ranks}, as --sequence-parallel needs"
        if config.layers < stages:
            return f"--layers {config.layers} are fewer than the {stages} stages of the pipeline"
        return None

    def shard_tensors(self, model: nn.Module, mesh: DeviceMesh, *, sequence: bool, loss: bool) -> None:
        from perfkit_workloads.gpt_model import Decoder
        from perfkit_workloads.gpt_parallel import shard_tensors

        assert isinstance(model, Decoder)  # noqa: S101
        shard_tensors(model, mesh, sequence=sequence, loss=loss)

    def divide_sequence(self, model: nn.Module, mesh: DeviceMesh) -> None:
        from perfkit_workloads.gpt_model import Decoder
        from perfkit_workloads.ring_attention import Ring

        assert isinstance(model, Decoder)  # noqa: S101
        ring = Ring(mesh.get_group(), mesh.get_local_rank(), mesh.size())
        self._positions = ring.positions(self.config.block).to(model.tokens.weight.device)
        model.divide_sequence(ring, self._positions)

    def divide_experts(self, model: nn.Module, mesh: DeviceMesh) -> list[nn.Parameter]:
        return [parameter for mixture in self.expert_layers(model) for parameter in mixture.divide(mesh)]

    def expert_layers(self, model: nn.Module) -> list[MixtureOfExperts]:
        if not self.config.experts:
            return []
        from perfkit_workloads.gpt_experts import MixtureOfExperts

        return [module for module in model.modules() if isinstance(module, MixtureOfExperts)]

    def data_spec(self, seed: int) -> DataSpec:
        return DataSpec(
            workload=self.name,
            fields=(Field(name="tokens", shape=(self.config.block + 1,), dtype="int32"),),
            samples=self.config.samples,
            seed=seed,
            parameters={
                "vocab_size": self.vocab_size,
                "text": None if self.text is None else self.text.fingerprint,
            },
        )

    def generate(self, spec: DataSpec, start: int, stop: int) -> Arrays:
        """Return windows at random positions of the text, or synthetic tokens without a text."""
        return self._windows(spec, start, stop, None if self.text is None else self.text.train())

    def evaluation_samples(self, part: EvaluationPart, seed: int, count: int) -> Arrays:
        """Return windows of the training or validation part of the text, or synthetic tokens of another seed.

        Raises:
            UsageError: The validation part is shorter than one window.
        """
        # Far from any seed that is chosen, so that these windows are others.
        spec = msgspec.structs.replace(self.data_spec(seed), seed=seed if part == "train" else 2**63 + seed)
        if self.text is None:
            return self._windows(spec, 0, count, None)
        tokens = self.text.train() if part == "train" else self.text.validation()
        if len(tokens) <= self.config.block:
            raise UsageError(
                f"{self.text.folder}: its {len(tokens)} validation characters are fewer than a window of block + 1 = "
                f"{self.config.block + 1}; choose a smaller block, or prepare it with a larger validation part"
            )
        return self._windows(spec, 0, count, tokens)

    def _windows(self, spec: DataSpec, start: int, stop: int, train: np.ndarray[Any, Any] | None) -> Arrays:
        window = self.config.block + 1

        def block(number: int) -> Arrays:
            random = np.random.default_rng((spec.seed, number))
            if train is None:
                tokens = _synthetic(random, (spec.block_samples, window), self.vocab_size)
            else:
                starts = random.integers(0, len(train) - window + 1, (spec.block_samples, 1))
                tokens = train[starts + np.arange(window)]
            return {"tokens": tokens}

        return generate_blocks(spec, start, stop, block)

    def build(self) -> nn.Module:
        """Build the model; the preset gpt2 has 124,439,808 parameters."""
        from perfkit_workloads.gpt_model import Decoder

        return Decoder(self.config, self.vocab_size)

    def layers(self, model: nn.Module) -> list[nn.Module]:
        from perfkit_workloads.gpt_model import Decoder

        assert isinstance(model, Decoder)  # noqa: S101
        return list(model.blocks)

    def loss(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        """Return the mean cross entropy of each token given those before it in its window.

        Args:
            model: The decoder, bare or wrapped.
            batch: `tokens`, int32 (batch, block + 1).
        """
        inputs, targets = self.split_batch(batch)
        return self.output_loss(model(inputs), targets)

    def split_batch(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return all tokens of each window but the last, and all but the first; of these, those of this rank."""
        tokens = batch["tokens"].long()
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        if self._positions is None:
            return inputs, targets
        return inputs[:, self._positions], targets[:, self._positions]

    def output_loss(self, output: Tensor, target: Tensor) -> Tensor:
        from torch.nn import functional

        loss = functional.cross_entropy(output.flatten(0, 1), target.flatten())
        # Of logits that are split along the vocabulary it is distributed too: the same on all ranks.
        return loss.to_local() if hasattr(loss, "to_local") else loss

    def make_stage(self, model: nn.Module, index: int, count: int) -> nn.Module:
        """Return a stage with its share of the blocks; the first also embeds tokens, the last predicts them."""
        from perfkit_workloads.gpt_model import Decoder
        from perfkit_workloads.gpt_parallel import Stage

        assert isinstance(model, Decoder)  # noqa: S101
        return Stage(model, index, count)

    def tied_parameters(self, stage: nn.Module) -> list[nn.Parameter]:
        from perfkit_workloads.gpt_parallel import Stage

        assert isinstance(stage, Stage)  # noqa: S101
        return stage.tied_parameters()

    def optimization(
        self,
        model: nn.Module,
        *,
        world_size: int,
        total_steps: int,
        device_type: str,
        accumulate: int = 1,
        make: OptimizerFactory = make_optimizer,
    ) -> Optimization:
        """Build AdamW with weight decay on matrices and embeddings only, and a warm-up and cosine schedule."""
        from torch.optim import AdamW
        from torch.optim.lr_scheduler import LambdaLR

        from perfkit_workloads.gpt_model import fused_adamw_works

        config = self.config
        parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        # The biases of all experts are one matrix.
        vectors = [p for name, p in parameters.items() if p.dim() < 2 or name.endswith("bias")]
        matrices = [p for name, p in parameters.items() if p.dim() >= 2 and not name.endswith("bias")]
        groups = [
            {"params": together, "weight_decay": decay}
            for decay, chosen in ((config.weight_decay, matrices), (0.0, vectors))
            for together in split_by_mesh(chosen)
        ]
        peak = scale_rate(config.learning_rate, config.lr_scale, world_size * accumulate)
        optimizer = make(AdamW, groups, lr=peak, betas=BETAS, fused=fused_adamw_works(device_type))
        schedule = partial(
            rate_factor,
            warmup_steps=config.warmup_steps,
            total_steps=total_steps,
            final=config.final_rate,
        )
        return Optimization(optimizer, LambdaLR(optimizer, schedule), config.clip_norm or None)


def rate_factor(step: int, *, warmup_steps: int, total_steps: int, final: float) -> float:
    """Return the learning rate of `step` (from 0) as a fraction of its peak.

    It rises linearly over `warmup_steps`, then decays along half a cosine to `final` at the last step.
    """
    if step < warmup_steps:
        return (step + 1) / (warmup_steps + 1)
    progress = min(1.0, (step - warmup_steps) / max(1, total_steps - 1 - warmup_steps))
    return final + (1 - final) * 0.5 * (1 + math.cos(math.pi * progress))


def _synthetic(
    random: np.random.Generator, shape: tuple[int, int], vocab_size: int
) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """Return sequences that count up from a random token in steps of 1 to 7, with noise: a task that can be learned."""
    first, stride = random.integers(0, vocab_size, (shape[0], 1)), random.integers(1, 8, (shape[0], 1))
    tokens = (first + stride * np.arange(shape[1])) % vocab_size
    noise = random.integers(0, vocab_size, shape)
    return np.where(random.random(shape) < NOISE, noise, tokens)
