"""The tensors of a model, as far as memory and communication depend on them."""

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from perfkit.errors import UsageError

Split = Literal["rows", "columns"]


class Tensor(Struct, frozen=True):
    """One parameter: a matrix, or a vector of one column."""

    rows: int
    columns: int = 1
    layer: int | None = None
    """Number of its layer; None outside of the layers."""
    split: Split | None = None
    """What tensor parallelism divides; None: every rank has all of it."""
    decayed: bool = True
    """Whether the optimizer decays it; ZeRO-1 gives those that it decays to ranks first."""
    end: Literal["first", "last", "tied", ""] = ""
    """The stage of a pipeline that has it, outside of the layers: with `tied`, both ends."""
    is_expert: bool = False
    """Whether it has one row for each expert, which expert parallelism divides."""
    is_norm: bool = False
    """Whether a norm scales or shifts with it."""

    @property
    def count(self) -> int:
        return self.rows * self.columns

    def divided(self, ranks: int) -> "Tensor":
        """Return the part of the rank that has most, of `ranks` of tensor parallelism."""
        if self.split == "rows":
            return replace(self, rows=-(-self.rows // ranks))
        if self.split == "columns":
            return replace(self, columns=-(-self.columns // ranks))
        return self


class Shape(Struct, frozen=True, kw_only=True):
    """A decoder-only transformer, or a model of which only the number of parameters is known."""

    name: str
    tensors: tuple[Tensor, ...]
    are_whole: bool
    """Whether `tensors` are the model's own, so that sharding can be counted exactly; else they only divide evenly."""
    layers: int | None = None
    width: int | None = None
    heads: int | None = None
    sequence: int | None = None
    """Tokens per sample."""
    vocabulary: int | None = None
    dropout: float = 0.0
    experts: int = 0
    """Of each layer's mixture of experts; 0: one MLP for all tokens."""
    top_k: int = 0
    """Experts that each token goes to."""
    hidden: int | None = None
    """Width inside of each MLP; None: four times the width."""
    gated: bool = False
    """Whether the MLP multiplies two hidden layers (SwiGLU)."""
    groups: int | None = None
    """Heads of keys and values; None: as many as heads."""
    is_assumed: bool = False
    """Whether the sizes are assumed from the number of parameters."""
    flops_per_sample: float | None = None
    """Counted, where `tensors` alone are known; samples then count as tokens."""

    @property
    def parameters(self) -> int:
        """Number of parameters, one that two modules share counted once."""
        return sum(tensor.count for tensor in self.tensors)

    @property
    def flops_per_token(self) -> float:
        """6 N + 12 L H Q T, N without what is only looked up (metrics.md section 8); 6 N where the shape is unknown.

        Of experts those count that a token goes to.
        """
        if self.flops_per_sample is not None:
            return self.flops_per_sample
        if self.layers is None or self.width is None or self.sequence is None:
            return 6.0 * self.parameters
        computed = self.computed(tensor for tensor in self.tensors if tensor.end != "first")
        return 6.0 * computed + 12.0 * self.layers * self.width * self.sequence

    @property
    def grouping(self) -> float:
        """Width of keys, and of values, as a share of the width."""
        return (self.groups / self.heads) if self.groups and self.heads else 1.0

    def computed(self, tensors: Iterable[Tensor]) -> float:
        """Return the parameters of `tensors` that one token is computed with."""
        share = self.top_k / self.experts if self.experts else 1.0
        return sum(tensor.count * (share if tensor.is_expert else 1.0) for tensor in tensors)

    def stage(self, index: int, count: int) -> tuple[Tensor, ...]:
        """Return the tensors of one of `count` stages of a pipeline: consecutive layers, and what is at its ends."""
        if count == 1:
            return self.tensors
        layers = self.layers or 1
        own = range(index * layers // count, (index + 1) * layers // count)
        ends = {"first"} if index == 0 else set()
        ends |= {"last"} if index == count - 1 else set()
        ends |= {"tied"} if ends else set()
        return tuple(
            tensor
            for tensor in self.tensors
            if (tensor.layer in own if tensor.layer is not None else tensor.end in ends)
        )


def gpt_shape(
    *,
    name: str,
    layers: int,
    width: int,
    heads: int,
    block: int,
    vocabulary: int,
    bias: bool,
    dropout: float = 0.0,
    experts: int = 0,
    top_k: int = 0,
) -> Shape:
    """Return the shape of the GPT workload: its tensors are those of `gpt_model.Decoder`, in its order.

    The preset gpt2 has 124,439,808 parameters, as published.
    """
    tensors = [Tensor(vocabulary, width, split="rows", end="tied"), Tensor(block, width, end="first")]
    for layer in range(layers):
        tensors += _gpt_block(layer, width, bias, experts)
    tensors += _norm(None, width, bias)
    return Shape(
        name=name,
        tensors=tuple(tensors),
        are_whole=True,
        layers=layers,
        width=width,
        heads=heads,
        sequence=block,
        vocabulary=vocabulary,
        dropout=dropout,
        experts=experts,
        top_k=top_k if experts else 0,
    )


def llama_shape(
    *, name: str, layers: int, width: int, heads: int, groups: int, hidden: int, vocabulary: int, sequence: int
) -> Shape:
    """Return the shape of a Llama: grouped queries, SwiGLU, RMSNorm, rotary positions, a head of its own, no biases.

    llama-7b has 6,738,415,616 parameters, and llama-8b 8,030,261,248, as published.
    """
    tensors = [Tensor(vocabulary, width, split="rows", end="first")]
    for layer in range(layers):
        keys = groups * width // heads
        tensors += [*_norm(layer, width, bias=False)] * 2
        tensors += [Tensor(rows, width, layer, "rows") for rows in (width, keys, keys, hidden, hidden)]
        tensors += [Tensor(width, width, layer, "columns"), Tensor(width, hidden, layer, "columns")]
    tensors += [*_norm(None, width, bias=False), Tensor(vocabulary, width, split="rows", end="last")]
    return Shape(
        name=name,
        tensors=tuple(tensors),
        are_whole=True,
        layers=layers,
        width=width,
        heads=heads,
        sequence=sequence,
        vocabulary=vocabulary,
        hidden=hidden,
        gated=True,
        groups=groups,
    )


def bert_shape(*, name: str, layers: int, width: int, heads: int, sequence: int, vocabulary: int) -> Shape:
    """Return the shape of a BERT, with its pooler: bert-base has 109,482,240 parameters, as published."""
    looked_up = [Tensor(rows, width, end="first") for rows in (sequence, 2)]
    tensors = [Tensor(vocabulary, width, split="rows", end="tied"), *looked_up]
    tensors += [Tensor(width, decayed=False, end="first", is_norm=True)] * 2
    for layer in range(layers):
        tensors += _gpt_block(layer, width, True, 0)
    tensors += [Tensor(width, width, end="last"), Tensor(width, decayed=False, end="last")]
    return Shape(
        name=name,
        tensors=tuple(tensors),
        are_whole=True,
        layers=layers,
        width=width,
        heads=heads,
        sequence=sequence,
        vocabulary=vocabulary,
    )


def _gpt_block(layer: int, width: int, bias: bool, experts: int) -> list[Tensor]:
    mlp = [*_linear(layer, 4 * width, width, "rows", bias), *_linear(layer, width, 4 * width, "columns", bias)]
    return [
        *_norm(layer, width, bias),
        *_linear(layer, 3 * width, width, "rows", bias),
        *_linear(layer, width, width, "columns", bias),
        *_norm(layer, width, bias),
        *(_mixture(layer, width, bias, experts) if experts else mlp),
    ]


def _mixture(layer: int, width: int, bias: bool, experts: int) -> list[Tensor]:
    """Return the router, and the matrices and vectors of all experts, each stacked to one tensor."""
    tensors = [Tensor(experts, width, layer)]
    for outputs in (4 * width, width):
        tensors.append(Tensor(experts, 4 * width * width, layer, is_expert=True))
        tensors += [Tensor(experts, outputs, layer, decayed=False, is_expert=True)] if bias else []
    return tensors


def _linear(layer: int, rows: int, columns: int, split: Split, bias: bool) -> list[Tensor]:
    vector = Tensor(rows, layer=layer, split="rows" if split == "rows" else None, decayed=False)
    return [Tensor(rows, columns, layer, split), *([vector] if bias else [])]


def _norm(layer: int | None, width: int, bias: bool) -> list[Tensor]:
    end: Literal["last", ""] = "" if layer is not None else "last"
    return [Tensor(width, layer=layer, decayed=False, end=end, is_norm=True)] * (2 if bias else 1)


def counted_shape(
    parameters: float,
    *,
    layers: int | None = None,
    width: int | None = None,
    heads: int | None = None,
    sequence: int | None = None,
    vocabulary: int | None = None,
    is_assumed: bool = False,
) -> Shape:
    """Return a model of a given number of parameters, of which everything divides evenly between layers and ranks.

    Raises:
        UsageError: It has fewer parameters than its vocabulary and width need, or only some sizes are given.
    """
    sizes = {"--layers": layers, "--width": width, "--sequence": sequence}
    if any(size is not None for size in sizes.values()) and None in sizes.values():
        missing = ", ".join(name for name, size in sizes.items() if size is None)
        raise UsageError(f"activations need --layers, --width and --sequence: add {missing}, or leave out all three")
    total, outer = round(parameters), (vocabulary or 0) * (width or 0)
    parts = layers or 1
    if total - outer < parts:
        raise UsageError(f"--params {parameters:g} are fewer than the {outer:,} of --vocab-size times --width need")
    inner = [(total - outer) // parts] * parts
    inner[-1] += (total - outer) - sum(inner)
    tensors = tuple(Tensor(count, layer=number, split="rows") for number, count in enumerate(inner))
    if outer:
        tensors = (Tensor(vocabulary or 0, width or 0, split="rows", end="tied"), *tensors)
    return Shape(
        name=f"{parameters:g} parameters",
        tensors=tensors,
        are_whole=False,
        layers=layers,
        width=width,
        heads=heads,
        sequence=sequence,
        vocabulary=vocabulary,
        is_assumed=is_assumed,
    )
