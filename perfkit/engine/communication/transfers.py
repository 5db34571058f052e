"""The transfers of matched collectives and messages, by what they have in common and between whom they are.

Those are comparable that have operator, type, size, dimension, number of ranks and of hosts in common, and the place
in the step.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.ranks.matching import MatchedCollectives, may_lack_ranks, numbered, ordinals
from perfkit.trace.intervals import Ints

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


class Unit(NamedTuple):
    """Ranks that transfer among each other: those of a group, or the two ends of messages."""

    ranks: tuple[int, ...]
    hosts: frozenset[str]


class Transfers(NamedTuple):
    """One row for each matched collective or message whose transfer is known; columns of shape (t,)."""

    log_ns: Floats
    """Logarithm of the transfer."""
    cell: Ints
    """The same number for comparable transfers."""
    unit: Ints
    """Index into `units`."""
    step: Ints
    collective: Ints
    """As in `MatchedCollectives`."""
    units: list[Unit]

    @property
    def crosses(self) -> Bools:
        """Whether it is between hosts."""
        return np.array([len(unit.hosts) > 1 for unit in self.units] or [False], np.bool_)[self.unit]


def find_transfers(matched: MatchedCollectives, hosts: Mapping[int | None, str | None]) -> Transfers:
    """Return the transfers between ranks of known hosts, all of which have traces.

    Args:
        matched: the collectives and messages of all ranks.
        hosts: host of each rank; None if unknown.
    """
    known = [rank for rank, host in hosts.items() if rank is not None and host is not None]
    usable = matched.transfer_known & (matched.collective >= 0) & (matched.transfer_ns > 0) & (matched.step >= 0)
    usable &= ~may_lack_ranks(matched, partial=True) | matched.paired
    count = int(matched.collective.max(initial=-1)) + 1
    whole, of = np.ones(count, np.bool_), matched.collective >= 0
    whole[matched.collective[of & ~np.isin(matched.rank, known)]] = False
    rows = np.flatnonzero(usable)
    rows = rows[whole[matched.collective[rows]]]
    collective, first = np.unique(matched.collective[rows], return_index=True)
    rows = rows[first]
    units, unit = _units(matched, hosts, collective)
    kind = numbered([one._replace(group=None, members=None, peer=None) for one in matched.kinds])[matched.kind[rows]]
    spread = np.array([(len(one.ranks), len(one.hosts)) for one in units] or [(0, 0)], np.int64)[unit]
    step = matched.step[rows]
    place = ordinals(unit, kind, step)
    _, cell = np.unique(np.column_stack((kind, spread, place)), axis=0, return_inverse=True)
    return Transfers(np.log(matched.transfer_ns[rows]), cell.reshape(-1), unit, step, collective, units)


def _units(
    matched: MatchedCollectives, hosts: Mapping[int | None, str | None], collective: Ints
) -> tuple[list[Unit], Ints]:
    """Return the distinct sets of ranks of some collectives, and that of each."""
    rows, opens = matched.opening(np.flatnonzero(np.isin(matched.collective, collective)))
    ranks, place = np.unique(matched.rank[rows], return_inverse=True)
    # Sets of ranks by the sum of a random number for each: thousands of ranks have millions of collectives.
    weight = np.random.default_rng(0).integers(1, np.iinfo(np.int64).max, len(ranks), np.int64)[place]
    if not len(opens):
        return [], opens
    _, first, unit = np.unique(np.add.reduceat(weight, opens), return_index=True, return_inverse=True)
    ends = np.append(opens[1:], len(rows))
    members = [tuple(sorted(matched.rank[rows[opens[one] : ends[one]]].tolist())) for one in first.tolist()]
    return [Unit(own, frozenset(hosts[rank] or "" for rank in own)) for own in members], unit


def medians(values: Floats, key: Ints, size: int) -> Floats:
    """Return the median of the values of each key, shape (size,); NaN where there are none."""
    by = np.lexsort((values, key))
    count = np.bincount(key, minlength=size)
    first = np.cumsum(count) - count
    ordered = np.append(values[by], np.nan)
    low, high = (first + np.maximum(count - 1, 0) // 2), first + count // 2
    middle = (ordered[np.minimum(low, len(values))] + ordered[np.minimum(high, len(values))]) / 2
    return np.where(count > 0, middle, np.nan)
