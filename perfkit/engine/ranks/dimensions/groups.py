"""Find which ranks take part in each collective: how many groups there are, and whether one spans several hosts."""

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np

from perfkit.engine.communication.dimensions import listed_ranks
from perfkit.engine.ranks.matching import MatchedCollectives
from perfkit.trace.intervals import Ints

ONE_HOST: Final = 0
SEVERAL_HOSTS: Final = 1
UNKNOWN: Final = -1


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
    rows = np.flatnonzero(matched.collective >= 0)
    if not len(rows):
        return found
    rows = rows[np.argsort(matched.collective[rows], kind="stable")]
    first = np.flatnonzero(np.diff(matched.collective[rows], prepend=-1))
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
