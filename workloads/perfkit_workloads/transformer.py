"""`torch.nn.Transformer` on random tensors: a plain, communication-heavy workload with every dimension as an option.

Importing this file does not import torch.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, ClassVar

from msgspec import Meta, Struct
from numpy.random import default_rng

from perfkit_workloads.base import (
    Arrays,
    DataSpec,
    Field,
    Optimization,
    OptimizerFactory,
    RateScale,
    Workload,
    generate_blocks,
    make_optimizer,
    scale_rate,
)

if TYPE_CHECKING:
    from torch import Tensor, nn


class TransformerConfig(Struct, frozen=True, kw_only=True):
    """Options of the transformer; the defaults are those of `torch.nn.Transformer`."""

    samples: Annotated[int, Meta(ge=1, description="samples in the data set")] = 2048
    source_length: Annotated[int, Meta(ge=1, description="length of a source sequence")] = 1
    target_length: Annotated[int, Meta(ge=1, description="length of a target sequence")] = 20
    d_model: Annotated[int, Meta(ge=1, description="embedding size")] = 512
    heads: Annotated[int, Meta(ge=1, description="attention heads; must divide d_model")] = 8
    encoder_layers: Annotated[int, Meta(ge=1, description="encoder layers")] = 6
    decoder_layers: Annotated[int, Meta(ge=1, description="decoder layers")] = 6
    feedforward: Annotated[int, Meta(ge=1, description="width of the feed-forward layers")] = 2048
    dropout: Annotated[float, Meta(ge=0, lt=1, description="dropout probability")] = 0.1
    learning_rate: Annotated[float, Meta(gt=0, description="Adam's learning rate for one batch per step")] = 0.001
    lr_scale: RateScale = "linear"

    def __post_init__(self) -> None:
        if self.d_model % self.heads:
            raise ValueError(f"d_model {self.d_model} is not divisible by heads {self.heads}")


class Transformer(Workload[TransformerConfig]):
    """An encoder-decoder on uniform random numbers.

    A sample is `source` (source_length, d_model) and `target` (target_length, d_model), float32 in
    [0, 1). The target is also the decoder's input: the cost is that of training, but there is nothing to learn.
    """

    name = "transformer"
    Config = TransformerConfig
    PRESETS: ClassVar[dict[str, dict[str, object]]] = {
        "default": {},
        "tiny": {
            "samples": 256,
            "target_length": 8,
            "d_model": 32,
            "heads": 4,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "feedforward": 64,
            "batch_size": 8,
        },
    }
    DEFAULT_PRESET = "default"
    STRATEGIES = frozenset({"zero1", "zero2", "zero3", "deepspeed"})

    @property
    def tokens_per_sample(self) -> int:
        """Positions of the target that are predicted."""
        return self.config.target_length

    def flops_per_token(self, model: nn.Module) -> float:
        """Return FLOPs of a sample, forward and backward, per position of the target (metrics.md section 8).

        6 N for each position that N parameters compute, and 12 d_model for each pair of positions that a layer's
        attention compares. The encoder, and the decoder's keys and values of the encoder's output, compute the source.
        """
        from torch import nn

        assert isinstance(model, nn.Transformer)  # noqa: S101
        config = self.config
        source, target, width = config.source_length, config.target_length, config.d_model
        encoder, decoder = (sum(p.numel() for p in part.parameters()) for part in (model.encoder, model.decoder))
        across = config.decoder_layers * 2 * (width * width + width)
        computed = encoder * source + (decoder - across) * target + across * source
        pairs = config.encoder_layers * source**2 + config.decoder_layers * (target**2 + target * source)
        return float(6 * computed + 12 * width * pairs) / target

    def data_spec(self, seed: int) -> DataSpec:
        lengths = {"source": self.config.source_length, "target": self.config.target_length}
        fields = tuple(
            Field(name=name, shape=(length, self.config.d_model), dtype="float32") for name, length in lengths.items()
        )
        return DataSpec(workload=self.name, fields=fields, samples=self.config.samples, seed=seed)

    def generate(self, spec: DataSpec, start: int, stop: int) -> Arrays:
        """Return uniform float32 numbers in [0, 1), seeded by (seed, block, field)."""

        def block(number: int) -> Arrays:
            return {
                field.name: default_rng((spec.seed, number, position)).random(
                    (spec.block_samples, *field.shape), dtype="float32"
                )
                for position, field in enumerate(spec.fields)
            }

        return generate_blocks(spec, start, stop, block)

    def build(self) -> nn.Module:
        """Build the model: 44,140,544 parameters by default."""
        from torch import nn

        config = self.config
        with warnings.catch_warnings():
            # torch warns for an odd number of heads that inference will not use nested tensors.
            warnings.filterwarnings("ignore", "enable_nested_tensor is True", UserWarning)
            return nn.Transformer(
                d_model=config.d_model,
                nhead=config.heads,
                num_encoder_layers=config.encoder_layers,
                num_decoder_layers=config.decoder_layers,
                dim_feedforward=config.feedforward,
                dropout=config.dropout,
                batch_first=True,
            )

    def layers(self, model: nn.Module) -> list[nn.Module]:
        from torch import nn

        assert isinstance(model, nn.Transformer)  # noqa: S101
        return [*model.encoder.layers, *model.decoder.layers]

    def loss(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        """Return the cross entropy over the feature axis, averaged over target positions.

        Each of the batch x target_length positions is one prediction over d_model classes; the target's row of d_model
        entries is its (not normalised) distribution. Rows of uniform numbers
        sum to about d_model / 2, so the loss starts near d_model / 2 x ln(d_model).
        """
        from torch.nn import functional

        output: Tensor = model(batch["source"], batch["target"])
        return functional.cross_entropy(output.flatten(0, 1), batch["target"].flatten(0, 1))

    def optimization(
        self,
        model: nn.Module,
        *,
        world_size: int,
        total_steps: int,  # noqa: ARG002
        device_type: str,  # noqa: ARG002
        accumulate: int = 1,
        make: OptimizerFactory = make_optimizer,
    ) -> Optimization:
        from torch.optim import Adam

        rate = scale_rate(self.config.learning_rate, self.config.lr_scale, world_size * accumulate)
        return Optimization(make(Adam, model.parameters(), lr=rate))
