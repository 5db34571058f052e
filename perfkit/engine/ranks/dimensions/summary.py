"""Sum a run's communication by dimension of parallelism, and divide what it costs (metrics.md section 6)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.ranks.bandwidth import bus_factor
from perfkit.engine.ranks.dimensions.groups import ONE_HOST, SEVERAL_HOSTS, Groups, find_groups
from perfkit.engine.ranks.matching import MatchedCollectives, may_lack_ranks
from perfkit.records.per_run.communication import DimensionStat, DimensionSummary
from perfkit.records.rank import RankReport
from perfkit.records.run import Efficiency
from perfkit.trace.intervals import Ints

_ACROSS: Final[Mapping[int, bool]] = {ONE_HOST: False, SEVERAL_HOSTS: True}


def summarize_dimensions(
    matched: MatchedCollectives,
    ranks: Sequence[RankReport],
    efficiency: Efficiency | None,
    world_size: int | None,
    partial: bool = False,
) -> DimensionSummary | None:
    """Return the communication of a run by dimension; None without collectives, or without steps of known ranks.

    Args:
        matched: the collectives of all ranks, with the waiting of receives.
        ranks: reports of ranks with a known number.
        efficiency: of the same ranks.
        world_size: number of ranks; None if unknown.
        partial: whether ranks of the run have no trace, or may have none.
    """
    steps = [step for rank in ranks for step in rank.steps]
    if efficiency is None or not len(matched.rank) or not steps:
        return None
    groups = find_groups(matched, {rank.rank: rank.host for rank in ranks if rank.rank is not None}, world_size)
    wall_ns = sum(step.wall_ns for step in steps)
    parts = list(_parts(matched, groups))
    wait_ns = [int(matched.exposed_wait_ns[rows].sum()) for rows in parts]
    transfer_ns = [int(matched.exposed_ns[rows].sum()) - wait for rows, wait in zip(parts, wait_ns, strict=True)]
    outside_ns = efficiency.wait_ns + efficiency.transfer_ns - sum(wait_ns) - sum(transfer_ns)
    # What is in no collective counts as transfer, in the efficiency too.
    serialisation = divide(efficiency.t_ideal_ns - efficiency.own_ns, [*wait_ns, 0], [*transfer_ns, outside_ns])
    transfer = divide(efficiency.t_ns - efficiency.t_ideal_ns, [*transfer_ns, outside_ns], [*wait_ns, 0])
    unsure = ~matched.wait_known | may_lack_ranks(matched, partial)
    rows = [
        _row(matched, groups, part, wall_ns, lost, unsure)
        for part, lost in zip(parts, zip(serialisation, transfer, strict=True), strict=False)
    ]
    return DimensionSummary(
        rows=sorted(rows, key=lambda row: (-row.exposed_ns, -row.total_ns)),
        rank_steps=len(steps),
        outside_ns=outside_ns,
        outside_share=outside_ns / wall_ns if wall_ns else 0.0,
        outside_lost_ns=serialisation[-1] + transfer[-1],
    )


def divide(whole: int, weights: Sequence[int], otherwise: Sequence[int]) -> list[int]:
    """Return integers in the proportion of `weights` that add up to `whole` exactly.

    Each differs from its exact share by less than one; the largest remainders are rounded up.

    Args:
        whole: what is divided.
        weights: not negative.
        otherwise: the weights that count if all of these are 0; if they are too, the last part is the whole.
    """
    chosen = weights if sum(weights) else otherwise
    total = sum(chosen)
    if not total:
        return [*[0] * (len(chosen) - 1), whole]
    shares = [divmod(whole * weight, total) for weight in chosen]
    parts = [share for share, _ in shares]
    by_remainder = sorted(range(len(parts)), key=lambda place: -shares[place][1])
    for place in by_remainder[: whole - sum(parts)]:
        parts[place] += 1
    return parts


def _parts(matched: MatchedCollectives, groups: Groups) -> Iterator[Ints]:
    """Yield the rows of each dimension, those of groups on one host and across hosts apart."""
    number: dict[str | None, int] = {}
    places = [number.setdefault(kind.dimension, len(number)) for kind in matched.kinds]
    key = 3 * np.array(places, np.int64)[matched.kind] + groups.hosts + 1
    order = np.argsort(key, kind="stable")
    yield from np.split(order, np.flatnonzero(np.diff(key[order])) + 1)


def _row(
    matched: MatchedCollectives,
    groups: Groups,
    rows: Ints,
    wall_ns: int,
    lost_ns: tuple[int, int],
    unsure: NDArray[np.bool_],
) -> DimensionStat:
    exposed = matched.exposed_ns[rows]
    wait_ns, exposed_ns = int(matched.exposed_wait_ns[rows].sum()), int(exposed.sum())
    sizes, found = np.unique(groups.size[rows]), np.unique(groups.group[rows])
    calls = np.bincount(matched.kind[rows], minlength=len(matched.kinds)).tolist()
    carried = [(kind.bytes, count) for kind, count in zip(matched.kinds, calls, strict=True) if count]
    return DimensionStat(
        dimension=matched.kinds[matched.kind[rows[0]]].dimension,
        across_hosts=_ACROSS.get(int(groups.hosts[rows[0]])),
        group_size=int(sizes[0]) if len(sizes) == 1 and sizes[0] > 0 else None,
        groups=int((found >= 0).sum()) or None,
        calls=len(rows),
        bytes=None if any(size is None for size, _ in carried) else sum((size or 0) * count for size, count in carried),
        total_ns=int(matched.duration_ns[rows].sum()),
        exposed_ns=exposed_ns,
        exposed_wait_ns=wait_ns,
        exposed_transfer_ns=exposed_ns - wait_ns,
        wait_unknown_ns=int((exposed - matched.exposed_wait_ns[rows])[unsure[rows]].sum()),
        share=exposed_ns / wall_ns if wall_ns else 0.0,
        busbw=_bus_bandwidth(matched, groups, rows),
        serialisation_lost_ns=lost_ns[0],
        transfer_lost_ns=lost_ns[1],
    )


def _bus_bandwidth(matched: MatchedCollectives, groups: Groups, rows: Ints) -> float | None:
    """Return bytes on the bus / transfer time of all matched collectives of known size; None if there are none."""
    known = rows[matched.transfer_known[rows] & (groups.size[rows] > 1)]
    _, first = np.unique(matched.collective[known], return_index=True)
    known = known[first]
    if not len(known):
        return None
    most = int(groups.size[known].max()) + 1
    pairs, place = np.unique(matched.kind[known] * most + groups.size[known], return_inverse=True)
    each = []
    for kind, size in (divmod(pair, most) for pair in pairs.tolist()):
        one = matched.kinds[kind]
        each.append((one.bytes or 0) * (bus_factor(one._replace(group_size=size)) or 0.0))
    carried = np.array(each)[place]
    transfer_ns = int(matched.transfer_ns[known[carried > 0]].sum())
    return float(carried.sum()) * 1e9 / transfer_ns if transfer_ns else None
