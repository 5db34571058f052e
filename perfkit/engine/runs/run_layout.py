"""How many ranks a run has, and how they are laid out: the one way in which reports, graphs and timelines tell it."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from perfkit.engine.communication.collective_calls import CollectiveCalls
from perfkit.engine.communication.collective_metadata import CollectiveKey
from perfkit.engine.communication.dimensions import PIPELINE
from perfkit.engine.communication.message_batches import EXCHANGE, RECEIVE, SEND, is_exchange
from perfkit.engine.pipelines.groups import groups_along
from perfkit.engine.pipelines.inferred_lines import find_inferred_lines
from perfkit.engine.ranks.matched_run import match_run
from perfkit.engine.runs.rank_reports import NamedSummary, Ranks
from perfkit.records.aggregate import add_collectives, add_issued
from perfkit.records.manifest import MeshDimension, RunManifest
from perfkit.records.per_rank.sharding import IssuedCollectives
from perfkit.records.rank import CollectiveStat
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
        """Size of each dimension of the mesh, outermost first; empty if these do not tell its groups."""
        sizes = {dimension.name: dimension.size for dimension in self.mesh}
        return sizes if _fits(sizes, self.world_size) and _dimensions(sizes) == self.mesh else {}

    @property
    def stage_of(self) -> dict[int, int]:
        """Place of each rank in its pipeline; empty without one."""
        return {rank: stage for line in groups_along(self.mesh, PIPELINE) for stage, rank in enumerate(line)}


def lay_out(ranks: Ranks, traces: Sequence[NamedSummary], manifest: RunManifest | None) -> tuple[Ranks, RunLayout]:
    """Return the layout of a run, and its ranks, whose sends and receives it may tell to be those of a pipeline.

    It is that of the run's manifest, or else of the headers of its traces, if they agree, or else the pipelines that
    the traces show.

    Args:
        manifest: the run's manifest; None if it has none, or it cannot be read.
    """
    headers = [named.summary.header for named in traces]
    of_headers = max((header.world_size for header in headers if header.world_size), default=None)
    world_size = manifest.world.world_size if manifest else of_headers
    if manifest and manifest.mesh:
        return ranks, RunLayout(world_size, manifest.mesh)
    meshes = [header.perfkit.mesh if header.perfkit else {} for header in headers]
    sizes = meshes[0] if meshes and all(mesh == meshes[0] for mesh in meshes) else {}
    if _fits(sizes, world_size):
        return ranks, RunLayout(world_size, _dimensions(sizes))
    lines = _inferred(ranks, world_size)
    mesh = [MeshDimension(name=PIPELINE, size=len(lines[0]), groups=lines)] if lines else []
    return _with_messages(ranks, {rank for line in lines for rank in line}), RunLayout(world_size, mesh)


def _inferred(ranks: Ranks, world_size: int | None) -> list[list[int]]:
    """Return the pipelines that nothing names, of which the traces show stages and micro-batches."""
    if all(trace.names_stages for traces in ranks.pipelines.values() for trace in traces):
        return []
    hosts = {report.rank: report.host for report in ranks.reports if report.rank is not None}
    clocks = match_run(ranks.calls, hosts, (), world_size).clocks
    return find_inferred_lines(ranks.pipelines, ranks.calls, clocks, world_size)


def _with_messages(ranks: Ranks, of_pipelines: Collection[int]) -> Ranks:
    """Return the ranks with the sends and receives of unknown dimension as those of their pipeline."""
    if not of_pipelines:
        return ranks
    operators = {rank: _message_operators(ranks.calls[rank]) for rank in of_pipelines}
    calls = ranks.calls | {
        rank: replace(ranks.calls[rank], kinds=_named(ranks.calls[rank].kinds, own)) for rank, own in operators.items()
    }
    reports = [
        replace(
            report,
            collectives=add_collectives(_named(report.collectives, operators[report.rank])),
            issued_collectives=add_issued(_named(report.issued_collectives, operators[report.rank])),
        )
        if report.rank in operators and report.rank is not None
        else report
        for report in ranks.reports
    ]
    return ranks._replace(calls=calls, reports=reports)


def _message_operators(calls: CollectiveCalls) -> frozenset[str]:
    """Return what a rank of a pipeline calls its messages: kernels that do both, if none of them may be another's."""
    both = [kind for kind in calls.kinds if kind.operator == EXCHANGE and kind.dimension is None]
    return frozenset({SEND, RECEIVE, EXCHANGE} if all(map(is_exchange, both)) else {SEND, RECEIVE})


_Message = TypeVar("_Message", CollectiveKey, CollectiveStat, IssuedCollectives)


def _named(rows: Iterable[_Message], operators: Collection[str]) -> list[_Message]:
    """Return collectives, of which messages of unknown dimension are the pipeline's."""
    named = []
    for row in rows:
        if row.operator in operators and row.dimension is None:
            row = replace(row, dimension=PIPELINE) if isinstance(row, Struct) else row._replace(dimension=PIPELINE)
        named.append(row)
    return named


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
