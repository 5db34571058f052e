"""How many ranks a run has, and how they are laid out: the one way in which reports, graphs and timelines tell it."""

import math
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from perfkit.analysis.per_run.rank_reports import NamedSummary
from perfkit.schema.manifest import MeshDimension, RunManifest
from perfkit.trace.events import MOST_RANKS

_MOST_DIMENSIONS: Final = 16
"""A mesh with more is damage, and its product a number of any length."""


class RunLayout(NamedTuple):
    """The ranks of a run."""

    world_size: int | None
    """None if neither the manifest nor a header tells it."""
    mesh: list[MeshDimension]
    """Outermost first; empty if unknown."""

    @property
    def sizes(self) -> dict[str, int]:
        """Size of each dimension of the mesh, outermost first; empty if it is not one of so many ranks."""
        sizes = {dimension.name: dimension.size for dimension in self.mesh}
        return sizes if _fits(sizes, self.world_size) else {}


def find_layout(traces: Sequence[NamedSummary], manifest: RunManifest | None) -> RunLayout:
    """Return the layout that the run's manifest has, or else the headers of its traces, if they agree.

    Args:
        traces: summaries of its traces.
        manifest: the run's manifest; None if it has none, or it cannot be read.
    """
    headers = [named.summary.header for named in traces]
    of_headers = max((header.world_size for header in headers if header.world_size), default=None)
    world_size = manifest.world.world_size if manifest else of_headers
    if manifest and manifest.mesh:
        return RunLayout(world_size, manifest.mesh)
    meshes = [header.perfkit.mesh if header.perfkit else {} for header in headers]
    sizes = meshes[0] if meshes and all(mesh == meshes[0] for mesh in meshes) else {}
    return RunLayout(world_size, _dimensions(sizes) if _fits(sizes, world_size) else [])


def _fits(sizes: Mapping[str, int], world_size: int | None) -> bool:
    """Return whether sizes, which may come from a damaged file, are those of a mesh of so many ranks."""
    if not 0 < len(sizes) <= _MOST_DIMENSIONS or not all(0 < size <= MOST_RANKS for size in sizes.values()):
        return False
    return world_size is not None and math.prod(sizes.values()) == world_size <= MOST_RANKS


def _dimensions(sizes: Mapping[str, int]) -> list[MeshDimension]:
    """Return the dimensions with their groups; the last one varies fastest with the rank."""
    ranks = np.arange(math.prod(sizes.values())).reshape(*sizes.values())
    return [
        MeshDimension(name=name, size=size, groups=np.moveaxis(ranks, place, -1).reshape(-1, size).tolist())
        for place, (name, size) in enumerate(sizes.items())
    ]
