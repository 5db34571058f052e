"""The same collective on different ranks: matched, and split into waiting and transfer (metrics.md section 5).

Matched by process group and sequence number where the traces have it, else by the order in which a step's collectives
of one operator, type and size were issued (but for all_to_all, to which a rank gives as much as it likes, whatever the
size): those that are not alike cannot be one, and a collective that a trace lost puts no others out of order. A match
by number must agree in the same, and have no more ranks than the group. Groups that a trace does not name are one here.
`Comms Id`, which metrics.md names beside the number, is not used: torch makes it from the number, and it has no order.
A group is its name and its ranks: siblings (of a mesh, say) may have one name. Of an n-to-n collective the shortest
duration over the ranks is the transfer, and what a rank spent in it beyond that it waited for others. No clock is
compared.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.analysis.per_rank.collective_calls import COLUMNS, CollectiveCalls
from perfkit.analysis.per_rank.collective_metadata import CollectiveKey
from perfkit.trace.intervals import Ints

N_TO_N: Final = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"})
_MANY: Final = np.iinfo(np.int64).max
_PAIRED: Final = frozenset({"send", "recv"})


class MatchedCollectives(NamedTuple):
    """Every collective of every rank, those that are one collective side by side; columns of shape (c,)."""

    kinds: list[CollectiveKey]
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


def match(ranks: Mapping[int, CollectiveCalls]) -> MatchedCollectives:
    """Match the collectives of ranks, given by rank."""
    kinds = list(dict.fromkeys(kind for calls in ranks.values() for kind in calls.kinds))
    columns = _stacked(ranks, kinds)
    kind, step, sequence = columns["kind"], columns["step"], columns.pop("sequence")
    group, alike = _codes(kinds)
    # A number in the group says by itself which collective it is (sends and receives are numbered apart); a place says
    # so among those that are alike. Coalesced collectives have one number: then they are told by their order.
    apart = np.array([-2 if described.operator in _PAIRED else -1 for described in kinds] or [0], np.int64)
    within = np.where(sequence >= 0, apart[kind], alike[kind])
    key = (np.where(sequence >= 0, -2, step), group[kind], within, np.maximum(sequence, 0))
    place = _ordinal_in_step(columns["rank"], *key)
    by = np.lexsort((columns["rank"], columns["order"], place, *reversed(key)))
    opens = _group_starts(by, *key, place)
    del kind, step, sequence, within, key, place
    for name, column in columns.items():  # one after the other: of thousands of ranks all would be there twice
        columns[name] = column[by]
    first = np.flatnonzero(opens)
    members = np.array([described.group_size or _MANY for described in kinds] or [0], np.int64)
    kind, duration = columns["kind"], columns["duration_ns"]
    fits = _is_valid_match(first, columns["rank"], alike[kind], members[kind])
    number = np.cumsum(opens) - 1
    splitting = np.array([described.operator in N_TO_N for described in kinds], np.bool_)
    fitting = fits[number] if len(by) else np.zeros(0, bool)
    splits = fitting & splitting[kind] if len(by) else np.zeros(0, bool)
    shortest = np.minimum.reduceat(duration, first)[number] if len(by) else duration
    return MatchedCollectives(
        kinds=kinds,
        collective=np.where(fitting, number, -1),
        splits=splits,
        transfer_ns=np.where(splits, shortest, duration),
        **columns,
    )


def _stacked(ranks: Mapping[int, CollectiveCalls], kinds: list[CollectiveKey]) -> dict[str, Ints]:
    """Return the columns of all ranks one after the other: those of `CollectiveCalls`, rank, and order of issue."""
    number = {kind: index for index, kind in enumerate(kinds)}
    own = [np.array([number[kind] for kind in calls.kinds] or [0], np.int64) for calls in ranks.values()]
    counts = [len(calls.column("kind")) for calls in ranks.values()]

    def joined(parts: Iterable[Ints]) -> Ints:
        return np.concatenate([np.zeros(0, np.int64), *parts])

    columns = {name: joined(calls.column(name) for calls in ranks.values()) for name in COLUMNS[1:]}
    columns["kind"] = joined(numbers[calls.column("kind")] for numbers, calls in zip(own, ranks.values(), strict=True))
    columns["rank"] = np.repeat(np.array(list(ranks), np.int64), counts)
    columns["order"] = joined(np.arange(count) for count in counts)
    return columns


def _codes(kinds: list[CollectiveKey]) -> tuple[Ints, Ints]:
    """Return for each kind the number of its group, and of what must agree in a match."""

    def number(values: list[object]) -> Ints:
        known = {value: place for place, value in enumerate(dict.fromkeys(values))}
        return np.array([known[value] for value in values] or [0], np.int64)

    sizes = [None if kind.operator == "all_to_all" else kind.bytes for kind in kinds]
    return (
        number([(kind.group, kind.members) for kind in kinds]),
        number([(kind.operator, kind.dtype, size) for kind, size in zip(kinds, sizes, strict=True)]),
    )


def _ordinal_in_step(rank: Ints, *within: Ints) -> Ints:
    """Return the how-manieth of its rank and of what else is given each is; the columns are in order of issue."""
    if not len(rank):
        return rank
    by = np.lexsort((rank, *within))
    first = np.maximum.accumulate(np.where(_group_starts(by, rank, *within), np.arange(len(by)), 0))
    place = np.empty(len(by), np.int64)
    place[by] = np.arange(len(by)) - first
    return place


def _group_starts(by: Ints, *keys: Ints) -> NDArray[np.bool_]:
    """Return at which places, in the given order, any of the keys begins another value."""
    opens = np.zeros(len(by), np.bool_)
    opens[:1] = True
    for key in keys:
        ordered = key[by]
        opens[1:] |= ordered[1:] != ordered[:-1]
    return opens


def _is_valid_match(first: Ints, rank: Ints, alike: Ints, members: Ints) -> NDArray[np.bool_]:
    """Return for each candidate, which starts at `first`, whether it is one collective of several ranks."""
    if not len(first):
        return np.zeros(0, np.bool_)
    count = np.diff(np.append(first, len(rank)))
    same = np.minimum.reduceat(alike, first) == np.maximum.reduceat(alike, first)
    again = np.concatenate(([0], (rank[1:] == rank[:-1]).astype(np.int64)))
    again[first] = 0
    few = count <= np.minimum.reduceat(members, first)
    return np.asarray((count > 1) & few & same & (np.add.reduceat(again, first) == 0))
