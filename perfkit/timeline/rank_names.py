"""Order and names of ranks on a timeline, by their place in the mesh."""

import math
from collections.abc import Mapping
from typing import Final

_INNERMOST: Final = ("pp", "tp")
"""Dimensions that vary fastest down the timeline: the stages of a pipeline below each other, and in each the ranks that
share its tensors."""


_MOST_DIMENSIONS: Final = 16
"""A mesh with more is damage, and its product a number of any length."""


def coordinate(rank: int, mesh: Mapping[str, int]) -> dict[str, int]:
    """Return a rank's position in each dimension that has several, in the order of the timeline; empty if unknown.

    Args:
        rank: its number.
        mesh: size of each dimension, outermost first; empty if unknown.
    """
    sizes = list(mesh.values())
    if not 0 < len(sizes) <= _MOST_DIMENSIONS or any(size < 1 for size in sizes) or not 0 <= rank < math.prod(sizes):
        return {}
    found: dict[str, int] = {}
    for name, size in reversed(list(mesh.items())):
        rank, found[name] = divmod(rank, size)
    outer = [name for name in mesh if name not in _INNERMOST]
    return {name: found[name] for name in (*outer, *_INNERMOST) if mesh.get(name, 1) > 1}


def rank_name(rank: int, mesh: Mapping[str, int]) -> str:
    """Return the display name of a rank: `rank 5`, or with its coordinate `dp0 pp1 tp1 (rank 5)`.

    One of data-parallel ranks alone is its number.
    """
    found = coordinate(rank, mesh)
    if set(found) <= {"dp"}:
        return f"rank {rank}"
    return f"{' '.join(f'{name}{position}' for name, position in found.items())} (rank {rank})"
