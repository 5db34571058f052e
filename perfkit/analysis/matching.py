"""The same collective on different ranks: matched, and split into waiting and transfer (METRICS section 5).

Matched by process group and sequence number where the traces have it, else by the order in which a step's collectives
of one operator, type and size were issued (but for all_to_all, to which a rank gives as much as it likes, whatever the
size): those that are not alike cannot be one, and a collective that a trace lost puts no others out of order. A match
by number must agree in the same, and have no more ranks than the group. Groups that a trace does not name are one here.
A group is its name and its ranks: siblings (of a mesh, say) may have one name. Of an n-to-n collective
the shortest duration over the ranks is the transfer, and what a rank spent in it beyond that it waited for others. No
clock is compared.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.analysis.calls import COLUMNS, Calls
from perfkit.analysis.collectives import Description
from perfkit.trace.intervals import Ints

N_TO_N: Final = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"})
_MANY: Final = np.iinfo(np.int64).max
_PAIRED: Final = frozenset({"send", "recv"})


class Matched(NamedTuple):
    """Every collective of every rank, those that are one collective side by side; columns of shape (c,)."""

    kinds: list[Description]
    rank: Ints
    kind: Ints
    step: Ints
    """Number of its step, or -1."""
    duration_ns: Ints
    exposed_ns: Ints
    joined_ns: Ints
    blocked_ns: Ints
    ended_ns: Ints
    """When it ended, by the clock of the rank's host."""
    collective: Ints
    """Which collective it is, counted in the order of group and sequence number, or of step and issue; -1 where no
    other rank's fits."""
    order: Ints
    """Place in the rank's own order of issue."""
    splits: NDArray[np.bool_]
    """Whether it was matched and is n-to-n, so that waiting and transfer can be told apart."""
    transfer_ns: Ints
    """The shortest duration over the ranks; the duration itself where it does not split."""

    @property
    def alone(self) -> NDArray[np.bool_]:
        """Whether its group has one rank: it has no counterpart to be matched with."""
        return np.array([kind.group_size == 1 for kind in self.kinds] or [False], np.bool_)[self.kind]

    @property
    def wait_ns(self) -> Ints:
        """How long the rank waited in it for others."""
        return self.duration_ns - self.transfer_ns

    @property
    def exposed_wait_ns(self) -> Ints:
        """The exposed part that is waiting, in the proportion wait : transfer, in whole nanoseconds."""
        # In float only the proportion: nanoseconds of a duration times those of another would not fit int64.
        share = np.divide(self.wait_ns, self.duration_ns, out=np.zeros(len(self.rank)), where=self.duration_ns > 0)
        return np.minimum(np.rint(self.exposed_ns * share).astype(np.int64), self.exposed_ns)


def match(ranks: Mapping[int, Calls]) -> Matched:
    """Match the collectives of ranks, given by rank."""
    kinds = list(dict.fromkeys(kind for calls in ranks.values() for kind in calls.kinds))
    table = _stacked(ranks, kinds)
    rank, order, kind, step, sequence, duration, exposed, joined, blocked, ended = table
    group, alike = _codes(kinds)
    # A number in the group says by itself which collective it is (sends and receives are numbered apart); a place says
    # so among those that are alike. Coalesced collectives have one number: then they are told by their order.
    apart = np.array([-2 if described.operator in _PAIRED else -1 for described in kinds] or [0], np.int64)
    within = np.where(sequence >= 0, apart[kind], alike[kind])
    key = (np.where(sequence >= 0, -2, step), group[kind], within, np.maximum(sequence, 0))
    place = _place_in_step(rank, *key)
    by = np.lexsort((rank, order, place, *reversed(key)))
    keys = np.vstack((*key, place))[:, by]
    opens = np.concatenate(([True], (keys[:, 1:] != keys[:, :-1]).any(axis=0))) if len(by) else np.zeros(0, bool)
    members = np.array([described.group_size or _MANY for described in kinds] or [0], np.int64)
    fits = _fits(np.flatnonzero(opens), rank[by], alike[kind][by], members[kind][by])
    number = np.cumsum(opens) - 1
    splitting = np.array([described.operator in N_TO_N for described in kinds], np.bool_)
    fitting = fits[number] if len(by) else np.zeros(0, bool)
    splits = fitting & splitting[kind[by]] if len(by) else np.zeros(0, bool)
    shortest = np.minimum.reduceat(duration[by], np.flatnonzero(opens))[number] if len(by) else duration
    return Matched(
        kinds=kinds,
        rank=rank[by],
        kind=kind[by],
        step=step[by],
        duration_ns=duration[by],
        exposed_ns=exposed[by],
        joined_ns=joined[by],
        blocked_ns=blocked[by],
        ended_ns=ended[by],
        collective=np.where(fitting, number, -1),
        order=order[by],
        splits=splits,
        transfer_ns=np.where(splits, shortest, duration[by]),
    )


def _stacked(ranks: Mapping[int, Calls], kinds: list[Description]) -> Ints:
    """Return the columns of all ranks one after the other: rank, order of issue, and those of `Calls`."""
    number = {kind: index for index, kind in enumerate(kinds)}
    parts = [np.zeros((len(COLUMNS) + 2, 0), np.int64)]
    for rank, calls in ranks.items():
        own = np.array([number[kind] for kind in calls.kinds] or [0], np.int64)
        kind = own[calls.column("kind")]
        columns = [calls.column(name) for name in COLUMNS[1:]]
        parts.append(np.vstack((np.full(len(kind), rank), np.arange(len(kind)), kind, *columns)))
    return np.hstack(parts)


def _codes(kinds: list[Description]) -> tuple[Ints, Ints]:
    """Return for each kind the number of its group, and of what must agree in a match."""

    def number(values: list[object]) -> Ints:
        known = {value: place for place, value in enumerate(dict.fromkeys(values))}
        return np.array([known[value] for value in values] or [0], np.int64)

    sizes = [None if kind.operator == "all_to_all" else kind.bytes for kind in kinds]
    return (
        number([(kind.group, kind.members) for kind in kinds]),
        number([(kind.operator, kind.dtype, size) for kind, size in zip(kinds, sizes, strict=True)]),
    )


def _place_in_step(rank: Ints, *within: Ints) -> Ints:
    """Return the how-manieth of its rank and of what else is given each is; the columns are in order of issue."""
    if not len(rank):
        return rank
    keys = np.vstack((rank, *within))
    by = np.lexsort(keys)
    opens = np.concatenate(([True], (keys[:, by[1:]] != keys[:, by[:-1]]).any(axis=0)))
    first = np.maximum.accumulate(np.where(opens, np.arange(len(by)), 0))
    place = np.empty(len(by), np.int64)
    place[by] = np.arange(len(by)) - first
    return place


def _fits(first: Ints, rank: Ints, alike: Ints, members: Ints) -> NDArray[np.bool_]:
    """Return for each candidate, which starts at `first`, whether it is one collective of several ranks."""
    if not len(first):
        return np.zeros(0, np.bool_)
    count = np.diff(np.append(first, len(rank)))
    same = np.minimum.reduceat(alike, first) == np.maximum.reduceat(alike, first)
    again = np.concatenate(([0], (rank[1:] == rank[:-1]).astype(np.int64)))
    again[first] = 0
    few = count <= np.minimum.reduceat(members, first)
    return np.asarray((count > 1) & few & same & (np.add.reduceat(again, first) == 0))
