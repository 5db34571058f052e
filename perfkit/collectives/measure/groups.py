"""The groups in which collectives are measured."""

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

import torch
import torch.distributed as dist

from perfkit.capture.mesh import MeshLayout
from perfkit.collectives.measure.calls import Member


class Place(NamedTuple):
    """Where a series is measured: this rank's membership, and how many groups take part at once."""

    dimension: str | None
    """None for the group of all ranks."""
    group_size: int
    groups: int
    member: Member | None
    """None if this rank only waits."""


def make_places(
    layout: MeshLayout | None, rank: int, world_size: int, device: torch.device, timeout: timedelta
) -> list[Place]:
    """Create the process groups; called by all ranks.

    Args:
        layout: The mesh; None for one group of all ranks.
        rank: This rank.
        world_size: Number of ranks.
        device: Where this rank has its messages.
        timeout: Limit of each collective.

    Returns:
        The group of all ranks; or for each dimension with two ranks or more its first group alone, then, if it has
        several, all of its groups at once.
    """
    if layout is None:
        everybody = range(world_size)
        return [Place(None, world_size, 1, Member(None, everybody, rank, device))]
    places = []
    for name, size in layout.sizes.items():
        if size > 1:
            member = _join(layout.groups(name), rank, device, timeout, name)
            groups = world_size // size
            alone = member if rank in layout.groups(name)[0] else None
            places.append(Place(name, size, 1, alone))
            if groups > 1:
                places.append(Place(name, size, groups, member))
    return places


def _join(groups: Sequence[Sequence[int]], rank: int, device: torch.device, timeout: timedelta, name: str) -> Member:
    """Return this rank's membership in one of `groups`."""
    own = next(group for group in groups if rank in group)
    if len(groups) == 1:
        return Member(None, own, own.index(rank), device)
    made: tuple[dist.ProcessGroup, object] = dist.new_subgroups_by_enumeration(  # type: ignore[no-untyped-call]
        groups, timeout=timeout, group_desc=f"mesh_{name}"
    )
    return Member(made[0], own, own.index(rank), device)
