"""Options of `perfkit plan`: names, types and defaults. None leaves a default that depends on others."""

from pathlib import Path
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct

from perfkit.options.help_groups import COMMON, group, metavar, names

RESERVE: Final = 0.05
"""Share of the need that the allocator is assumed to waste."""

_MODEL: Final = group("Model")
_RUN: Final = group("Run")
_DEVICE: Final = group("Device")
_RATES: Final = group("Assumptions")
_OUTPUT: Final = group("Output")
_Count = Annotated[int, Meta(ge=1)]
_Share = Annotated[float, Meta(ge=0.001, le=1)]


class PlanOptions(Struct, frozen=True, kw_only=True):
    """The options as they are given."""

    model: str = "gpt"
    preset: Annotated[
        str | None,
        _MODEL,
        COMMON,
        Meta(description="Such as gpt2-xl, gpt3-175b, llama-7b or bert-base."),
    ] = None
    params: Annotated[
        float | None,
        _MODEL,
        COMMON,
        Meta(description="Number of parameters of any model, such as 7.5e9."),
    ] = None
    layers: Annotated[Annotated[int, Meta(ge=1, le=4096)] | None, _MODEL, Meta(description="Transformer blocks.")] = (
        None
    )
    width: Annotated[_Count | None, _MODEL, Meta(description="Embedding size.")] = None
    heads: Annotated[_Count | None, _MODEL, Meta(description="Attention heads.")] = None
    sequence: Annotated[
        _Count | None, _MODEL, names("--sequence", "--block"), Meta(description="Tokens per sample.")
    ] = None
    vocab_size: Annotated[_Count | None, _MODEL, Meta(description="Vocabulary size.")] = None
    inputs: Annotated[
        tuple[str, ...],
        _MODEL,
        names("--input"),
        metavar("SHAPE[:DTYPE]"),
        Meta(description="Tensor per rank and step that the module takes, such as 4,512:int64; may be repeated."),
    ] = ()
    batch: Annotated[
        str | None, _MODEL, metavar("FUNCTION"), Meta(description="Function of FILE.py that returns these tensors.")
    ] = None
    bias: Annotated[bool | None, _MODEL, Meta(description="Biases in gpt.")] = None
    experts: Annotated[
        _Count | None, _MODEL, Meta(description="Experts that replace each MLP of gpt [default: one MLP].")
    ] = None
    top_k: Annotated[_Count | None, _MODEL, Meta(description="Experts that each token is routed to [default: 2].")] = (
        None
    )
    ranks: Annotated[
        int, _RUN, COMMON, names("-n", "--ranks"), Meta(ge=1, le=2**17, description="Number of ranks.")
    ] = 1
    batch_size: Annotated[
        _Count | None,
        _RUN,
        COMMON,
        Meta(description="Global batch size / ranks; the same for all layouts [default: the preset's, or 1]."),
    ] = None
    precision: Annotated[
        Literal["float32", "bfloat16", "float16", "mixed", "megatron", "fp8", "half"] | None,
        _RUN,
        Meta(
            description="Data types: float32, bfloat16 and float16 as in `perfkit run`; mixed: parameters in 16 bits, "
            "with a float32 copy in the optimizer; megatron: mixed with gradients in float32; fp8: the same with "
            "products in 8 bits; half: all in 16 bits [default: float32, mixed where `perfkit run` has no preset]."
        ),
    ] = None
    checkpoint: Annotated[
        Literal["none", "selective", "full"] | None,
        _RUN,
        Meta(description="Activation checkpointing [default: compare all]."),
    ] = None
    offload: Annotated[
        Literal["none", "cpu", "nvme"] | None,
        _RUN,
        Meta(
            description="Where DeepSpeed keeps the optimizer's state, or all of the state, with --precision mixed: in "
            "the host's memory or on its NVMe [default: compared if nothing fits without]."
        ),
    ] = None
    attention: Annotated[
        Literal["fused", "stored"], _RUN, Meta(description="Whether attention scores are stored for backward.")
    ] = "fused"
    tokens: Annotated[
        Annotated[float, Meta(ge=1)] | None, _RUN, Meta(description="Tokens to train on, for device-hours and energy.")
    ] = None
    device: Annotated[
        str | None, _DEVICE, COMMON, Meta(description="Such as a100-40g or h100; how it begins; torch's name.")
    ] = None
    device_table: Annotated[Path | None, _DEVICE, metavar("FILE"), Meta(description="TOML file with more devices.")] = (
        None
    )
    cluster: Annotated[
        str | None, _DEVICE, COMMON, Meta(description="Such as polaris; or aurora, sophia, or one of --cluster-table.")
    ] = None
    cluster_table: Annotated[
        Path | None, _DEVICE, metavar("FILE"), Meta(description="TOML file with more clusters.")
    ] = None
    measured: Annotated[
        Path | None,
        _RATES,
        names("--from"),
        metavar("RUN|FILE.json"),
        Meta(description="Take FLOP/s, latency and bandwidth from a run, or from a file of `perfkit collectives`."),
    ] = None
    check: Annotated[
        Path | None,
        _RATES,
        metavar("RUN"),
        Meta(description="Compare the prediction for a run of gpt with its measurements, term by term."),
    ] = None
    efficiency: Annotated[
        _Share | None, _RATES, Meta(description="Share of peak FLOP/s that compute reaches [default: 0.4].")
    ] = None
    link_efficiency: Annotated[
        _Share | None, _RATES, Meta(description="Share of link bandwidth that collectives reach [default: 0.7].")
    ] = None
    latency: Annotated[str | None, _RATES, Meta(description="Latency of a message [default: 10us].")] = None
    reserve: Annotated[float, _RATES, Meta(ge=0, le=1, description="Allocator overhead, as a share of the memory.")] = (
        RESERVE
    )
    explain: Annotated[
        bool, _OUTPUT, COMMON, names("--explain"), Meta(description="Show every term with its formula and source.")
    ] = False
    trace: Annotated[
        bool,
        _MODEL,
        names("--trace"),
        Meta(description="Trace the best layout on fake tensors, for the memory of the real module (needs torch)."),
    ] = False

    @property
    def sizes(self) -> dict[str, Any]:
        """The sizes of the model that are given, by the workload's names."""
        fields = {"block": self.sequence, "layers": self.layers, "width": self.width, "heads": self.heads}
        fields |= {"vocab_size": self.vocab_size, "bias": self.bias, "experts": self.experts, "top_k": self.top_k}
        return {name: value for name, value in fields.items() if value is not None}
