"""The mesh of ranks: named dimensions, who shares a group, and which ranks train on different samples.

Does not import torch: a mesh is checked against the number of ranks before anything starts.
"""

import math
from collections.abc import Collection
from typing import Final

from msgspec import Struct

from perfkit.errors import UsageError
from perfkit.records.manifest import MeshDimension

DATA_DIMENSIONS: Final = ("replicate", "dp", "shard")
"""The dimensions of `--dp`, whose ranks train on different samples."""

SAMPLE_DIMENSIONS: Final = (*DATA_DIMENSIONS, "ep")
"""All dimensions whose ranks train on different samples."""

HYBRID_DIMENSIONS: Final = ("replicate", "shard")
"""The data-parallel dimensions of hybrid sharding; that of all other strategies is `dp`."""

DIMENSIONS: Final = ("pp", *SAMPLE_DIMENSIONS, "cp", "tp")
"""All dimensions, outermost first: the ranks of a tensor-parallel group, which communicate most, are neighbours."""


class MeshLayout(Struct, frozen=True, kw_only=True):
    """Sizes of the dimensions of a mesh by name, outermost first: the last one varies fastest with the rank."""

    sizes: dict[str, int]

    @property
    def world_size(self) -> int:
        return math.prod(self.sizes.values())

    @property
    def replicas(self) -> int:
        """Number of ranks, or groups of ranks, that train on different samples."""
        return math.prod(self.size(name) for name in SAMPLE_DIMENSIONS)

    def size(self, name: str) -> int:
        """Return the size of a dimension; 1 if the mesh does not have it."""
        return self.sizes.get(name, 1)

    def coordinate(self, rank: int) -> dict[str, int]:
        """Return the position of `rank` in each dimension."""
        found: dict[str, int] = {}
        for name, size in reversed(self.sizes.items()):
            rank, found[name] = divmod(rank, size)
        return {name: found[name] for name in self.sizes}

    def replica(self, rank: int) -> int:
        """Return which of the `replicas` parts of the samples `rank` trains on."""
        number = 0
        for name, position in self.coordinate(rank).items():
            if name in SAMPLE_DIMENSIONS:
                number = number * self.sizes[name] + position
        return number

    def groups(self, name: str) -> list[list[int]]:
        """Return the ranks of each group along a dimension, ordered by the first rank."""
        stride = math.prod(list(self.sizes.values())[list(self.sizes).index(name) + 1 :])
        size = self.sizes[name]
        firsts = [rank for rank in range(self.world_size) if rank // stride % size == 0]
        return [[first + position * stride for position in range(size)] for first in firsts]

    def record(self) -> list[MeshDimension]:
        return [MeshDimension(name=name, size=size, groups=self.groups(name)) for name, size in self.sizes.items()]


def parse_mesh(text: str) -> dict[str, int]:
    """Return the sizes that a text such as `pp=2,dp=2,tp=2` gives, in its order.

    Raises:
        UsageError: A dimension is unknown or given twice, or a size is not a positive number.
    """
    sizes: dict[str, int] = {}
    for part in text.split(","):
        name, _, size = (piece.strip() for piece in part.partition("="))
        if name not in DIMENSIONS:
            raise UsageError(f"--mesh {text}: unknown dimension '{name}': choose from {', '.join(DIMENSIONS)}")
        if name in sizes:
            raise UsageError(f"--mesh {text}: dimension {name} is given twice")
        if not (size.isdecimal() and size.isascii()) or int(size) < 1:
            raise UsageError(f"--mesh {text}: '{part.strip()}' has no size: write it as {name}=2")
        sizes[name] = int(size)
    return sizes


def data_dimensions(given: Collection[str]) -> tuple[str, ...]:
    """Return the data-parallel dimensions of a mesh that names the dimensions `given`."""
    return HYBRID_DIMENSIONS if set(given) & set(HYBRID_DIMENSIONS) else ("dp",)


def lay_out(text: str | None, world_size: int) -> MeshLayout:
    """Return the layout of `world_size` ranks.

    Args:
        text: The option; None puts all ranks into the dimension `dp`. Its data-parallel dimensions are `dp`, or
            `replicate` and `shard` if it names one of them; those that it does not name have size 1.

    Raises:
        UsageError: The text is invalid, or its sizes do not multiply to the number of ranks.
    """
    given = {"dp": world_size} if text is None else parse_mesh(text)
    data = data_dimensions(given)
    sizes: dict[str, int] = {name: given.get(name, 1) for name in DIMENSIONS if name in given or name in data}
    layout = MeshLayout(sizes=sizes)
    if layout.world_size != world_size:
        product = f"{' x '.join(map(str, given.values()))} = " if len(given) > 1 else ""
        raise UsageError(
            f"--mesh {text}: {product}{layout.world_size} ranks, but this run has {world_size}: "
            f"start {layout.world_size} ranks, or change a dimension"
        )
    return layout
