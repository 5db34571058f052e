"""The classify workload: an encoder of DistilBERT's shape, by Hugging Face transformers, that labels reviews.

Importing this file imports neither torch nor transformers.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

import numpy as np
from msgspec import Meta, Struct

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
from perfkit_workloads.classify_text import LABELS, VOCABULARY, make_reviews

if TYPE_CHECKING:
    from torch import Tensor, nn

_NO_DECAY: Final = ("bias", "LayerNorm.weight", "layer_norm.weight")


class ClassifyConfig(Struct, frozen=True, kw_only=True):
    """Options of the encoder; the defaults are the preset `tiny`."""

    samples: Annotated[int, Meta(ge=1, description="samples (labelled reviews) in the data set")] = 4096
    length: Annotated[
        int, Meta(ge=3, description="tokens per sample; longer reviews are cut, shorter ones are padded")
    ] = 64
    vocab_size: Annotated[
        int, Meta(ge=len(VOCABULARY), description="rows of the embedding; the reviews use the first 75")
    ] = 128
    layers: Annotated[int, Meta(ge=1, description="encoder layers")] = 2
    heads: Annotated[int, Meta(ge=1, description="attention heads; must divide width")] = 4
    width: Annotated[int, Meta(ge=1, description="embedding size")] = 64
    feedforward: Annotated[int, Meta(ge=1, description="width of the feed-forward layers")] = 256
    dropout: Annotated[float, Meta(ge=0, lt=1, description="dropout probability")] = 0.1
    learning_rate: Annotated[float, Meta(gt=0, description="peak learning rate")] = 5e-4
    lr_scale: RateScale = "none"  # the peak rate of a recipe is for its global batch size
    warmup_steps: Annotated[int, Meta(ge=0, description="warm-up steps of the learning rate")] = 0
    weight_decay: Annotated[float, Meta(ge=0, description="weight decay of matrices and embeddings")] = 0.01
    clip_norm: Annotated[float, Meta(ge=0, description="maximum gradient norm; 0 disables clipping")] = 1.0

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not divisible by heads {self.heads}")


class Classify(Workload[ClassifyConfig]):
    """Labels synthetic reviews as positive or negative, with an encoder of DistilBERT's shape by Hugging Face.

    The encoder is built from a configuration, with random weights: nothing is downloaded. It costs what fine-tuning a
    pre-trained one costs.
    """

    name = "classify"
    Config = ClassifyConfig
    PRESETS: ClassVar[dict[str, dict[str, object]]] = {
        "tiny": {"batch_size": 16},
        "distilbert": {
            "layers": 6,
            "heads": 12,
            "width": 768,
            "feedforward": 3072,
            "vocab_size": 30522,
            "length": 128,
            "samples": 1024,
            "learning_rate": 5e-5,
            "batch_size": 8,
        },
    }
    DEFAULT_PRESET = "tiny"
    STRATEGIES = frozenset({"zero1", "zero2", "zero3", "deepspeed"})
    PACKAGES: ClassVar[Mapping[str, str]] = {"transformers": "transformers"}

    @property
    def tokens_per_sample(self) -> int:
        """Tokens computed per sample, padding included."""
        return self.config.length

    def flops_per_token(self, model: nn.Module) -> float:
        """Return 6 N + 12 L H Q T + 6 C / T, forward and backward (metrics.md section 8).

        N counts the parameters of the layers, without embeddings, which are looked up; C those of the classifier, which
        sees one token per sample; H x Q is the width.
        """
        config, encoder = self.config, self._encoder(model)
        parameters = sum(p.numel() for p in encoder.parameters())
        embeddings = sum(p.numel() for p in model.get_submodule("distilbert.embeddings").parameters())
        classifier = sum(p.numel() for p in model.parameters()) - embeddings - parameters
        attention = 12 * config.layers * config.width * config.length
        return float(6 * parameters + attention + 6 * classifier / config.length)

    def data_spec(self, seed: int) -> DataSpec:
        fields = (
            Field(name="tokens", shape=(self.config.length,), dtype="int32"),
            Field(name="label", shape=(1,), dtype="int32"),
        )
        return DataSpec(workload=self.name, fields=fields, samples=self.config.samples, seed=seed)

    def generate(self, spec: DataSpec, start: int, stop: int) -> Arrays:
        """Return reviews, seeded by (seed, block)."""

        def block(number: int) -> Arrays:
            random = np.random.default_rng((spec.seed, number))
            return make_reviews(random, spec.block_samples, self.config.length)

        return generate_blocks(spec, start, stop, block)

    def build(self) -> nn.Module:
        """Build the model; the preset distilbert has 66,955,010 parameters."""
        from transformers import DistilBertConfig, DistilBertForSequenceClassification

        config = self.config
        model: nn.Module = DistilBertForSequenceClassification(
            DistilBertConfig(
                vocab_size=config.vocab_size,
                max_position_embeddings=max(512, config.length),
                n_layers=config.layers,
                n_heads=config.heads,
                dim=config.width,
                hidden_dim=config.feedforward,
                dropout=config.dropout,
                attention_dropout=config.dropout,
                seq_classif_dropout=config.dropout,
                num_labels=len(LABELS),
            )
        )
        return model

    def layers(self, model: nn.Module) -> list[nn.Module]:
        return [*self._encoder(model).children()]

    def loss(self, model: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        """Return the mean cross entropy of the labels; padding is not attended to."""
        tokens = batch["tokens"].long()
        output: Any = model(
            input_ids=tokens, attention_mask=(tokens != 0).long(), labels=batch["label"].flatten().long()
        )
        loss: Tensor = output.loss
        return loss

    def optimization(
        self,
        model: nn.Module,
        *,
        world_size: int,
        total_steps: int,
        device_type: str,  # noqa: ARG002
        accumulate: int = 1,
        make: OptimizerFactory = make_optimizer,
    ) -> Optimization:
        """Build AdamW without decay of biases and norms, whose rate rises linearly, then falls linearly to zero.

        As Hugging Face's `Trainer` does by default, but for the weight decay.
        """
        from torch.optim import AdamW
        from torch.optim.lr_scheduler import LambdaLR

        config = self.config
        named = [*model.named_parameters()]
        groups = [
            {"params": [p for name, p in named if name.endswith(_NO_DECAY) != decays], "weight_decay": decay}
            for decays, decay in ((True, config.weight_decay), (False, 0.0))
        ]
        rate = scale_rate(config.learning_rate, config.lr_scale, world_size * accumulate)
        optimizer = make(AdamW, groups, lr=rate)
        scheduler = LambdaLR(optimizer, partial(_rate_factor, warmup=config.warmup_steps, total=total_steps))
        return Optimization(optimizer, scheduler, config.clip_norm or None)

    @staticmethod
    def _encoder(model: nn.Module) -> nn.Module:
        return model.get_submodule("distilbert.transformer.layer")


def _rate_factor(step: int, warmup: int, total: int) -> float:
    """Return the share of the peak learning rate in a step: a rise to the peak, then a line to zero."""
    if step < warmup:
        return (step + 1) / warmup
    return max(0.0, (total - step) / max(1, total - warmup))
