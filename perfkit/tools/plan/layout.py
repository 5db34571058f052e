"""The ways to share a model that a plan compares: strategy, mesh and activation checkpointing."""

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from perfkit.tools.plan.shape import Shape

DataParallel = Literal["ddp", "zero1", "zero2", "zero3", "zero++", "hsdp"]
Checkpointing = Literal["none", "selective", "full"]

Offload = Literal["none", "optimizer", "parameters", "nvme"]

SHARDED: Final = ("zero2", "zero3", "zero++", "hsdp")
"""Strategies that divide gradients: of torch's `fully_shard`, and ZeRO++, which DeepSpeed alone has."""

MOST_STAGES: Final = 64

_NAMES: Final = {"ddp": "DDP", "zero1": "ZeRO-1", "zero2": "ZeRO-2", "zero3": "ZeRO-3", "zero++": "ZeRO++"} | {
    "hsdp": "hybrid sharded"
}

_OFFLOADED: Final = {
    "optimizer": "optimizer state in host memory",
    "parameters": "all state in host memory",
    "nvme": "all state on NVMe",
}


class Layout(Struct, frozen=True, kw_only=True):
    """One way to share a model between all ranks."""

    dp: DataParallel = "ddp"
    replicate: int = 1
    """Groups of ranks, of hybrid sharding, that each have all parts."""
    shard: int = 1
    """Ranks with different samples that share what `dp` divides; with hybrid sharding, those of one group."""
    hpz: int = 1
    """Ranks of a host that have all parameters between them once more, with ZeRO++."""
    tp: int = 1
    pp: int = 1
    cp: int = 1
    """Ranks that divide each sequence."""
    ep: int = 1
    """Ranks with different samples that divide the experts of each layer."""
    micro_batches: int = 1
    """Parts of a batch in a pipeline."""
    checkpointing: Checkpointing = "none"
    sequence_parallel: bool = False
    """Whether the ranks of `tp` also divide, along the sequence, what is between the matrices."""
    loss_parallel: bool = False
    """Whether the ranks of `tp` leave the logits divided along the vocabulary."""
    offload: Offload = "none"
    """What DeepSpeed keeps outside of the device."""
    tiles: int = 1
    """Parts that each large matrix is computed in."""

    @property
    def between(self) -> int:
        """Number of ranks that divide the tokens between the matrices."""
        return self.tp if self.sequence_parallel else 1

    @property
    def splits_logits(self) -> int:
        return self.tp if self.loss_parallel else 1

    @property
    def ranks(self) -> int:
        return self.replicas * self.cp * self.tp * self.pp

    @property
    def replicas(self) -> int:
        """Number of ranks, or groups of ranks, with different samples."""
        return self.replicate * self.shard * self.ep

    @property
    def sharing(self) -> int:
        """Number of ranks that share what `dp` divides: those that divide a sequence have the same parameters."""
        return self.shard * self.cp

    @property
    def name(self) -> str:
        """Words for it, without checkpointing."""
        divides = self.tp * self.pp * self.cp * self.ep > 1
        shares = self.replicate * self.shard > 1 or self.dp != "ddp"
        parts = [_NAMES[self.dp]] if shares or not divides else []
        words = "tensor and sequence parallel" if self.sequence_parallel else "tensor parallel"
        words += " with a split loss" if self.loss_parallel else ""
        parts += [f"{self.tp}-way {words}"] if self.tp > 1 else []
        parts += [f"{self.pp}-stage pipeline"] if self.pp > 1 else []
        parts += [f"{self.cp}-way context parallel"] if self.cp > 1 else []
        parts += [f"{self.ep}-way expert parallel"] if self.ep > 1 else []
        parts += [_OFFLOADED[self.offload]] if self.offload != "none" else []
        parts += [f"matrices in {self.tiles} tiles"] if self.tiles > 1 else []
        return ", ".join(parts) if self.ranks > 1 or self.offload != "none" else "one rank"

    @property
    def mesh(self) -> dict[str, int]:
        """Sizes of the dimensions as `--mesh` has them, outermost first."""
        data = {"replicate": self.replicate, "shard": self.shard} if self.dp == "hsdp" else {"dp": self.shard}
        sizes = {"pp": self.pp, **data, "cp": self.cp, "ep": self.ep, "tp": self.tp}
        kept = {name: size for name, size in sizes.items() if size > 1 or (self.dp == "hsdp" and name in data)}
        return kept or {"dp": 1}

    @property
    def mesh_option(self) -> str:
        """The value of `--mesh`."""
        return ",".join(f"{name}={size}" for name, size in self.mesh.items())


def candidates(shape: Shape, ranks: int, per_host: int, checkpointing: tuple[Checkpointing, ...]) -> list[Layout]:
    """Return the layouts of `ranks` ranks, the simplest first.

    Tensor parallelism stays within a host, whose links are the fastest, and divides the heads; a pipeline has at most
    as many stages as there are layers.
    """
    divided = _expert_parallel(shape, ranks) if shape.experts else _divided(shape, ranks, per_host)
    shared = [*_data_parallel(ranks, per_host), *divided, *_context_parallel(shape, ranks)]
    return [replace(layout, checkpointing=kind) for layout in shared for kind in checkpointing]


def quantized(ranks: int, per_host: int, checkpointing: tuple[Checkpointing, ...]) -> list[Layout]:
    """Return ZeRO++ on several hosts, inside of which parameters are gathered again for the backward pass."""
    if not ranks > per_host > 1 or ranks % per_host:
        return []
    return [Layout(dp="zero++", shard=ranks, hpz=per_host, checkpointing=kind) for kind in checkpointing]


def offloaded(
    ranks: int, where: Literal["cpu", "nvme"] | None, tilings: Sequence[int], checkpointing: tuple[Checkpointing, ...]
) -> list[Layout]:
    """Return data-parallel layouts of DeepSpeed with state outside of the device, the fastest to reach first.

    Args:
        ranks: All of them.
        where: In the host's memory or on NVMe; None: both.
        tilings: Numbers of tiles that make the largest matrix smaller.
        checkpointing: Of activations, which stay on the device.
    """
    found = []
    if where != "nvme":
        found = [Layout(dp="zero2", shard=ranks, offload="optimizer")]
        found += [Layout(dp="zero3", shard=ranks, offload="optimizer")] if ranks > 1 else []
        found += [Layout(dp="zero3", shard=ranks, offload="parameters", tiles=tiles) for tiles in tilings]
    if where != "cpu":
        found += [Layout(dp="zero3", shard=ranks, offload="nvme", tiles=tiles) for tiles in tilings]
    return [replace(layout, checkpointing=kind) for layout in found for kind in checkpointing]


def _data_parallel(ranks: int, per_host: int) -> Iterator[Layout]:
    yield Layout(shard=ranks)
    if ranks == 1:
        return
    for name in ("zero1", "zero2", "zero3"):
        yield Layout(dp=name, shard=ranks)
    if per_host > 1 and ranks > per_host and ranks % per_host == 0:
        yield Layout(dp="hsdp", replicate=ranks // per_host, shard=per_host)


def _expert_parallel(shape: Shape, ranks: int) -> Iterator[Layout]:
    """Yield expert parallelism, with DDP beside it: experts are divided by no other dimension."""
    for ep in range(2, min(ranks, shape.experts) + 1):
        if shape.experts % ep == 0 and ranks % ep == 0:
            yield Layout(shard=ranks // ep, ep=ep)


def _context_parallel(shape: Shape, ranks: int) -> Iterator[Layout]:
    """Yield context parallelism, each rank with two parts of every sequence, with DDP and with ZeRO-1 beside it."""
    if shape.layers is None or shape.sequence is None or shape.experts:
        return
    for power in range(1, ranks.bit_length()):
        cp = 2**power
        if ranks % cp == 0 and shape.sequence % (2 * cp) == 0:
            yield Layout(shard=ranks // cp, cp=cp)
            yield Layout(dp="zero1", shard=ranks // cp, cp=cp)


def _divided(shape: Shape, ranks: int, per_host: int) -> Iterator[Layout]:
    """Yield tensor parallelism, pipelines, and both, each with DDP and with ZeRO-3 beside it."""
    if shape.layers is None or shape.width is None:
        return
    stages = [2**power for power in range(math.floor(math.log2(min(ranks, shape.layers, MOST_STAGES))) + 1)]
    heads = shape.heads or 1
    parts = [size for size in range(1, min(ranks, per_host, heads) + 1) if heads % size == 0]
    for pp in stages:
        for tp in parts:
            if (pp, tp) == (1, 1) or ranks % (pp * tp):
                continue
            replicas = ranks // (pp * tp)
            # Split losses, which pipelines do not have, only where what is before them is split too.
            more = tp > 1 and (shape.sequence or 0) % tp == 0
            splits = [(False, False), *([(True, False)] if more else []), *([(True, True)] if more and pp == 1 else [])]
            shared: tuple[DataParallel, ...] = ("ddp", "zero3") if replicas > 1 else ("ddp",)
            for name, (sequence, loss) in product(shared, splits):
                yield Layout(
                    dp=name,
                    shard=replicas,
                    tp=tp,
                    pp=pp,
                    micro_batches=2 * pp if pp > 1 else 1,
                    sequence_parallel=sequence,
                    loss_parallel=loss,
                )
