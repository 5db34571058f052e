"""Sum a run's communication by dimension of parallelism, and divide what it costs (metrics.md section 6).

Groups on one host and groups across hosts are separate rows.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.communication.dimensions import listed_ranks
from perfkit.engine.ranks.bandwidth import bus_factor
from perfkit.engine.ranks.matching import MatchedCollectives, may_lack_ranks
from perfkit.records.per_run.communication import DimensionStat, DimensionSummary
from perfkit.records.rank import RankReport
from perfkit.records.run import Efficiency
from perfkit.trace.intervals import Ints

ONE_HOST: Final = 0
SEVERAL_HOSTS: Final = 1
UNKNOWN: Final = -1
_ACROSS: Final[Mapping[int, bool]] = {ONE_HOST: False, SEVERAL_HOSTS: True}


class Groups(NamedTuple):
    """The group of each collective of each rank; columns of shape (c,), -1 where it is unknown."""

    hosts: Ints
    """`ONE_HOST` or `SEVERAL_HOSTS`."""
    group: Ints
    """The same number for all collectives of groups with the same lowest and highest rank and size."""
    size: Ints


class _Members(NamedTuple):
    """Members of groups; columns of one length."""

    lowest: Ints
    highest: Ints
    size: Ints
    hosts: Ints


def find_groups(matched: MatchedCollectives, hosts: Mapping[int, str | None], world_size: int | None) -> Groups:
    """Return the groups of all collectives, by the members that traces list, or else by the ranks that took part.

    Args:
        matched: the collectives of all ranks.
        hosts: host of each rank; None if unknown.
        world_size: number of ranks; None if unknown.
    """
    numbers = {name: place for place, name in enumerate(sorted({name for name in hosts.values() if name is not None}))}
    host_of = {rank: numbers[name] for rank, name in hosts.items() if name is not None}
    listed = _listed(matched, host_of)
    seen = _taking_part(matched, host_of, world_size)
    known = listed.size >= 0
    joined = _Members(*(np.where(known, one, other) for one, other in zip(listed, seen, strict=True)))
    stated = _by_kind(matched, [kind.group_size or UNKNOWN for kind in matched.kinds])
    return Groups(
        hosts=joined.hosts,
        group=np.where(joined.size >= 0, _numbered(joined), UNKNOWN),
        size=np.where(stated >= 0, stated, joined.size),
    )


def _numbered(members: _Members) -> Ints:
    """Return a number for each distinct combination of lowest and highest rank and size."""
    number = np.zeros(len(members.size), np.int64)
    for column in members[:3]:
        # One column at a time: sorting tuples of millions of collectives would take minutes.
        values, place = np.unique(column, return_inverse=True)
        _, number = np.unique(number * len(values) + place, return_inverse=True)
    return number


def _listed(matched: MatchedCollectives, host_of: Mapping[int, int]) -> _Members:
    """Return the members as far as the traces list them."""
    known: dict[str | None, tuple[int, int, int, int]] = {}
    for kind in matched.kinds:
        if kind.members not in known:
            ranks = listed_ranks(kind.members)
            there = [host_of.get(rank, UNKNOWN) for rank in ranks or ()]
            known[kind.members] = (min(ranks), max(ranks), len(ranks), _spread(there)) if ranks else (UNKNOWN,) * 4
    table = np.array([known[kind.members] for kind in matched.kinds] or [(UNKNOWN,) * 4], np.int64)
    return _Members(*table[matched.kind].T)


def _by_kind(matched: MatchedCollectives, values: list[int]) -> Ints:
    return np.array(values or [0], np.int64)[matched.kind]


def _spread(hosts: list[int]) -> int:
    """Return whether members are on several hosts: two that differ are enough, whatever the others' are."""
    known = set(hosts) - {UNKNOWN}
    if len(known) > 1:
        return SEVERAL_HOSTS
    return ONE_HOST if known and UNKNOWN not in hosts else UNKNOWN


def _taking_part(matched: MatchedCollectives, host_of: Mapping[int, int], world_size: int | None) -> _Members:
    """Return the members by the ranks of each matched collective, which are all if they are as many as the group has.

    A group of unknown size may have members without a trace, unless all ranks of the world take part.
    """
    found = _Members(*(np.full(len(matched.rank), UNKNOWN, np.int64) for _ in range(4)))
    rows, first = matched.matched_rows
    if not len(rows):
        return found
    count = np.diff(np.append(first, len(rows)))
    stated = _by_kind(matched, [kind.group_size or UNKNOWN for kind in matched.kinds])[rows[first]]
    whole = (count == stated) | ((stated < 0) & (count == (world_size or UNKNOWN)))
    rank, host = matched.rank[rows], _hosts_of(matched.rank[rows], host_of)
    least, most = np.minimum.reduceat(host, first), np.maximum.reduceat(host, first)
    least_known = np.minimum.reduceat(np.where(host >= 0, host, np.iinfo(np.int64).max), first)
    spread = np.where(most > least_known, SEVERAL_HOSTS, np.where((least >= 0) & whole, ONE_HOST, UNKNOWN))
    ends = np.minimum.reduceat(rank, first), np.maximum.reduceat(rank, first), count
    for column, values in zip(found, (*(np.where(whole, end, UNKNOWN) for end in ends), spread), strict=True):
        column[rows] = np.repeat(values, count)
    return found


def _hosts_of(rank: Ints, host_of: Mapping[int, int]) -> Ints:
    ranks, place = np.unique(rank, return_inverse=True)
    return np.array([host_of.get(one, UNKNOWN) for one in ranks.tolist()], np.int64)[place]


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
