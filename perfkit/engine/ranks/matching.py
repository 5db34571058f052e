"""Match collectives across ranks and split them into waiting and transfer (metrics.md section 5).

Collectives are matched by process group and sequence number if the traces contain it. Otherwise they are matched by
issue order among a step's collectives of one operator, dtype and size, so that a collective missing from a trace does
not shift the others. The size is ignored for all_to_all, where it may differ between ranks. A match by number must
agree in operator, dtype and size too, and cannot have more ranks than the group. Unnamed groups count as one group.

`Comms Id`, which metrics.md mentions next to the number, is not used: torch derives it from the number, and it has no
order. A group is identified by its name and its ranks, because sibling groups (of a mesh, for example) may share one
name.

A send is matched with a receive, not with another send: see `perfkit.engine.ranks.matched_run`.

The transfer time of an n-to-n collective is its shortest duration over the ranks; the rest of each rank's duration is
waiting. No clocks are compared.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.communication.collective_calls import COLUMNS, CollectiveCalls
from perfkit.engine.communication.collective_metadata import CollectiveKey, flagged
from perfkit.engine.communication.message_batches import EXCHANGE, RECEIVE, SEND, is_exchange
from perfkit.trace.intervals import Ints, combinations

N_TO_N: Final = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"})
_MANY: Final = np.iinfo(np.int64).max
_PAIRED: Final = frozenset({SEND, RECEIVE})


class MatchedCollectives(NamedTuple):
    """Every collective of every rank, matched ones in order of their number; columns of shape (c,)."""

    kinds: list[CollectiveKey]
    rank: Ints
    kind: Ints
    step: Ints
    """Step number, or -1."""
    duration_ns: Ints
    exposed_ns: Ints
    joined_ns: Ints
    blocked_ns: Ints
    ended_ns: Ints
    """End, by the clock of the rank's host."""
    collective: Ints
    """Number of the matched collective, in order of group and sequence number or of step and issue; -1 if unmatched."""
    order: Ints
    """Position in the rank's own issue order."""
    splits: NDArray[np.bool_]
    """Whether it is matched and n-to-n, so that it can be split into waiting and transfer."""
    transfer_ns: Ints
    """Shortest duration over the ranks; its own duration if it is not split. Of a send or receive whose waiting is
    known, the rest of its duration."""
    wait_known: NDArray[np.bool_]
    """Whether `wait_ns` is known: it is split, or a message that was compared with its other end. Elsewhere it is 0."""

    @property
    def split_rows(self) -> tuple[Ints, Ints]:
        """The rows of the collectives that are split, and the place among these at which each collective begins."""
        return self.opening(np.flatnonzero(self.splits))

    @property
    def matched_rows(self) -> tuple[Ints, Ints]:
        """The same of all that is matched."""
        return self.opening(np.flatnonzero(self.collective >= 0))

    def opening(self, rows: Ints) -> tuple[Ints, Ints]:
        """Return some rows, and the place among these at which each collective begins."""
        return rows, np.flatnonzero(np.diff(self.collective[rows], prepend=-1))

    @property
    def alone(self) -> NDArray[np.bool_]:
        """Whether its group has a single rank, so that it has no counterpart."""
        return flagged(self.kinds, self.kind, lambda one: one.group_size == 1)

    @property
    def paired(self) -> NDArray[np.bool_]:
        """Whether it is a send or a receive, or both."""
        return flagged(self.kinds, self.kind, _is_paired)

    @property
    def transfer_known(self) -> NDArray[np.bool_]:
        """Whether `transfer_ns` is that of the whole collective: of a message that of the receive."""
        return np.asarray(self.wait_known & ~flagged(self.kinds, self.kind, lambda one: one.operator == SEND))

    @property
    def wait_ns(self) -> Ints:
        """How long the rank waited for others in it."""
        return self.duration_ns - self.transfer_ns

    @property
    def exposed_wait_ns(self) -> Ints:
        """The exposed part of waiting (ns), assuming the ratio of waiting to transfer is the same in it."""
        # Only the ratio is a float: the product of two durations in ns would overflow int64.
        share = np.divide(self.wait_ns, self.duration_ns, out=np.zeros(len(self.rank)), where=self.duration_ns > 0)
        return np.minimum(np.rint(self.exposed_ns * share).astype(np.int64), self.exposed_ns)


def may_lack_ranks(matched: MatchedCollectives, partial: bool) -> NDArray[np.bool_]:
    """Return for each collective whether ranks without a trace take part in it, or may because its group is unknown.

    Its transfer is an upper bound then: the last to arrive may be one of them. Shape (c,); False if it is unmatched,
    and for messages, in which no others take part.

    Args:
        matched: the collectives of all ranks.
        partial: whether ranks of the run have no trace.
    """
    there = (matched.collective >= 0) & ~matched.paired
    members = np.bincount(matched.collective[matched.collective >= 0], minlength=1)
    size = np.array([kind.group_size or 0 for kind in matched.kinds] or [0], np.int64)[matched.kind]
    return np.asarray(there & np.where(size > 0, members[matched.collective] < size, partial))


def match(ranks: Mapping[int, CollectiveCalls], world_size: int | None = None) -> MatchedCollectives:
    """Match the collectives of all ranks.

    Args:
        ranks: their collectives, by rank.
        world_size: if it is 2, sends and receives without a group have one possible peer.
    """
    kinds = list(dict.fromkeys(kind for calls in ranks.values() for kind in calls.kinds))
    columns = _stacked(ranks, kinds)
    kind, step, sequence = columns["kind"], columns["step"], columns.pop("sequence")
    group, similar = _codes(kinds)
    paired, direction, has_peer = _directions(kinds, kind, group, columns["rank"], step, world_size)
    # A sequence number identifies a collective within its group; an ordinal only among collectives of one kind.
    # Coalesced collectives share a number and are ordered by issue. Sends and receives are ordered by issue.
    sequence = np.where(paired, -1, sequence)
    within = np.where(paired, direction, np.where(sequence >= 0, -1, similar[kind]))
    key = (np.where(sequence >= 0, -2, step), group[kind], within, np.maximum(sequence, 0))
    place = ordinals(columns["rank"], *key)
    by = np.lexsort((columns["rank"], columns["order"], place, *reversed(key)))
    starts = _group_starts(by, *key, place)
    has_peer = has_peer[by]
    del kind, step, sequence, within, key, place, paired, direction
    for name, column in columns.items():  # one at a time, so that not all columns of thousands of ranks exist twice
        columns[name] = column[by]
    first = np.flatnonzero(starts)
    members = np.array([described.group_size or _MANY for described in kinds] or [0], np.int64)
    kind, duration = columns["kind"], columns["duration_ns"]
    fits = _is_valid_match(first, columns["rank"], similar[kind], members[kind])
    fits &= np.logical_and.reduceat(has_peer, first) if len(first) else fits
    number = np.cumsum(starts) - 1
    splitting = np.array([described.operator in N_TO_N for described in kinds], np.bool_)
    fitting = fits[number] if len(by) else np.zeros(0, bool)
    splits = fitting & splitting[kind] if len(by) else np.zeros(0, bool)
    shortest = np.minimum.reduceat(duration, first)[number] if len(by) else duration
    return MatchedCollectives(
        kinds=kinds,
        collective=np.where(fitting, number, -1),
        splits=splits,
        transfer_ns=np.where(splits, shortest, duration),
        wait_known=splits,
        **columns,
    )


def _stacked(ranks: Mapping[int, CollectiveCalls], kinds: list[CollectiveKey]) -> dict[str, Ints]:
    """Return the columns of all ranks, concatenated: those of `CollectiveCalls`, rank, and issue order."""
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
    """Return for each kind the code of its group, and the code of everything that must agree in a match."""
    sizes = [None if kind.operator == "all_to_all" else kind.bytes for kind in kinds]
    # A send goes with a receive.
    operators = ["point-to-point" if kind.operator in _PAIRED else kind.operator for kind in kinds]
    return (
        numbered([(kind.group, kind.members) for kind in kinds]),
        numbered([(operator, kind.dtype, size) for operator, kind, size in zip(operators, kinds, sizes, strict=True)]),
    )


def numbered(values: Sequence[Hashable]) -> Ints:
    """Return a number for each value, the same for equal ones; at least one."""
    known = {value: place for place, value in enumerate(dict.fromkeys(values))}
    return np.array([known[value] for value in values] or [0], np.int64)


def _is_paired(kind: CollectiveKey) -> bool:
    return kind.operator in _PAIRED or is_exchange(kind)


def _directions(
    kinds: list[CollectiveKey], kind: Ints, group: Ints, rank: Ints, step: Ints, world_size: int | None
) -> tuple[NDArray[np.bool_], Ints, NDArray[np.bool_]]:
    """Return which rows are sends or receives, their direction (a negative code), and which may be matched.

    A direction is a pair of ranks in a group, both with a trace. It must have as many receives as sends in a step:
    otherwise a missing one would shift the others. So would a message in a kernel that sends and receives.
    """
    paired = flagged(kinds, kind, _is_paired)
    direction, has_peer = np.zeros(len(kind), np.int64), ~paired
    peer = _peers(kinds, kind, group, rank, world_size)
    known = paired & (peer >= 0) & (peer != rank) & np.isin(peer, np.unique(rank))
    between = np.stack([rank, peer, step])
    rows = np.flatnonzero(known & ~_with_exchanges(kinds, kind, between) & ~_with_mixed(kinds, kind, group, between))
    if not len(rows):
        return paired, direction, has_peer
    sends = np.array([one.operator == SEND for one in kinds], np.bool_)[kind[rows]]
    ends = np.stack([np.where(sends, rank[rows], peer[rows]), np.where(sends, peer[rows], rank[rows])])
    _, way = combinations(np.stack([group[kind[rows]], *ends]))
    direction[rows] = -2 - way
    _, place = combinations(np.stack([direction[rows], step[rows]]))
    sent, received = (np.bincount(place[which], minlength=place.max() + 1) for which in (sends, ~sends))
    has_peer[rows] = (sent == received)[place]
    return paired, direction, has_peer


def _with_exchanges(kinds: list[CollectiveKey], kind: Ints, between: Ints) -> NDArray[np.bool_]:
    """Return which rows are between two ranks of which any kernel of the step both sends and receives.

    Args:
        kinds: the distinct kinds.
        kind: index of each row's.
        between: rank, peer and step of each; shape (3, c).
    """
    exchanges = flagged(kinds, kind, is_exchange)
    if not exchanges.any():
        return exchanges
    either_way = np.vstack([np.sort(between[:2], axis=0), between[2:]])
    _, place = combinations(either_way)
    return np.asarray(np.isin(place, np.unique(place[exchanges])))


def _with_mixed(kinds: list[CollectiveKey], kind: Ints, group: Ints, between: Ints) -> NDArray[np.bool_]:
    """Return which rows have an end on a rank that sends to one rank and receives from another in a kernel of the step.

    Such a kernel (a step of an interleaved pipeline) does not tell its peers, so that a message of any pair may be in
    it: of its group, or of all if its group is unknown.

    Args:
        kinds: the distinct kinds.
        kind: index of each row's.
        group: code of each kind's group.
        between: as in `_with_exchanges`.
    """
    mixed = [one.operator == EXCHANGE and one.peer is None for one in kinds]
    nowhere = [(one.group, one.members) == (None, None) for one in kinds]
    found = np.zeros(len(kind), np.bool_)
    for of_any in (False, True):
        which = [is_mixed and is_nowhere == of_any for is_mixed, is_nowhere in zip(mixed, nowhere, strict=True)]
        if not any(which):
            continue
        within = np.zeros(len(kind), np.int64) if of_any else group[kind]
        ends = [np.stack([within, end, between[2]]) for end in between[:2]]
        _, place = combinations(np.hstack(ends))
        own, other = np.split(place, 2)
        hiding = np.unique(own[np.array(which, np.bool_)[kind]])
        found |= np.isin(own, hiding) | np.isin(other, hiding)
    return found


def _peers(kinds: list[CollectiveKey], kind: Ints, group: Ints, rank: Ints, world_size: int | None) -> Ints:
    """Return the peer of each send and receive: as the trace has it, or the other rank of a group of two; else -1."""
    peer = np.array([-1 if one.peer is None else one.peer for one in kinds] or [-1], np.int64)[kind]
    paired = flagged(kinds, kind, lambda one: one.operator in _PAIRED)
    sizes = [world_size if (one.group, one.members, one.group_size) == (None,) * 3 else one.group_size for one in kinds]
    of_two = np.array([size == 2 for size in sizes] or [False], np.bool_)[kind]
    for which in np.unique(group[kind[paired & of_two & (peer < 0)]]).tolist():
        rows = np.flatnonzero(paired & (peer < 0) & (group[kind] == which))
        ranks = np.unique(rank[group[kind] == which])
        if len(ranks) == 2:
            peer[rows] = ranks.sum() - rank[rows]
    return peer


def ordinals(rank: Ints, *within: Ints) -> Ints:
    """Return each collective's ordinal within its rank and `within` columns, which are in issue order."""
    if not len(rank):
        return rank
    by = np.lexsort((rank, *within))
    first = np.maximum.accumulate(np.where(_group_starts(by, rank, *within), np.arange(len(by)), 0))
    place = np.empty(len(by), np.int64)
    place[by] = np.arange(len(by)) - first
    return place


def _group_starts(by: Ints, *keys: Ints) -> NDArray[np.bool_]:
    """Return where, in the order `by`, the value of any key changes."""
    starts = np.zeros(len(by), np.bool_)
    starts[:1] = True
    for key in keys:
        ordered = key[by]
        starts[1:] |= ordered[1:] != ordered[:-1]
    return starts


def _is_valid_match(first: Ints, rank: Ints, similar: Ints, members: Ints) -> NDArray[np.bool_]:
    """Return for each candidate match, starting at `first`, whether it is one collective on several ranks."""
    if not len(first):
        return np.zeros(0, np.bool_)
    count = np.diff(np.append(first, len(rank)))
    same = np.minimum.reduceat(similar, first) == np.maximum.reduceat(similar, first)
    repeated = np.concatenate(([0], (rank[1:] == rank[:-1]).astype(np.int64)))
    repeated[first] = 0
    fits_group = count <= np.minimum.reduceat(members, first)
    return np.asarray((count > 1) & fits_group & same & (np.add.reduceat(repeated, first) == 0))
