"""Links between ranks: which rank each waited for, who delayed the others, and arrows between their collectives."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.communication.collective_metadata import message_sizes
from perfkit.engine.ranks.clock_alignment import aligned
from perfkit.engine.ranks.matching import MatchedCollectives
from perfkit.records.cross_rank import HostClock
from perfkit.trace.intervals import Ints

UNKNOWN_DIMENSION: Final = "unknown dimension"


class Spans(NamedTuple):
    """Labelled slices of one rank, by its own clock."""

    start_ns: Ints
    end_ns: Ints
    label: list[str]


class CollectiveLinks(NamedTuple):
    """One rank's links to the others."""

    waits: Spans
    delays_others: Spans
    dimensions: Spans
    """Its collectives, labelled with the dimension of parallelism that they serve; empty if none is known."""
    in_flight: tuple[Ints, Ints]
    """Instants, and the bytes of running collectives from each on; empty if no size is known."""
    arrows: dict[int, int]
    """Number of the arrow through a collective, by its start."""


class RunLinks(NamedTuple):
    """The links of all ranks."""

    by_rank: dict[int, CollectiveLinks]
    arrow_ends: dict[int, tuple[int, int]]
    """First and last rank of each arrow."""

    @property
    def latest_rank(self) -> int | None:
        """The rank that delays the others longest, in all; None if none does."""
        delays = {
            rank: int((one.delays_others.end_ns - one.delays_others.start_ns).sum())
            for rank, one in self.by_rank.items()
        }
        longest = max(delays, key=lambda rank: delays[rank], default=None)
        return longest if longest is not None and delays[longest] > 0 else None


def find_links(
    matched: MatchedCollectives, ranks: Sequence[int], steps: NDArray[np.bool_], clocks: Mapping[int, HostClock]
) -> RunLinks:
    """Find the links between the selected ranks.

    Args:
        matched: the collectives of these ranks and of others, which may be those waited for.
        steps: mask of the collectives that are shown, by their step; shape (c,).
    """
    start_ns = matched.ended_ns - matched.duration_ns
    last, longest_ns = _last_to_join(matched)
    shown = _rows_by_rank(matched.rank, ranks, steps)
    arrow, ends = _arrows(matched, shown, start_ns, clocks)
    by_rank = {}
    for rank, rows in shown.items():
        rows = rows[np.argsort(start_ns[rows], kind="stable")]
        waiting = rows[matched.splits[rows] & (matched.wait_ns[rows] > 0)]
        late = rows[(last[rows] == rows) & (longest_ns[rows] > 0)]
        linked = rows[arrow[rows] > 0]
        waited_for = zip(waiting.tolist(), matched.rank[last[waiting]].tolist(), strict=True)
        by_rank[rank] = CollectiveLinks(
            waits=Spans(
                start_ns[waiting],
                start_ns[waiting] + matched.wait_ns[waiting],
                [f"waits for rank {other}: {_name(matched, row)}" for row, other in waited_for],
            ),
            delays_others=Spans(
                start_ns[late] - longest_ns[late],
                start_ns[late],
                [f"delays others: {_name(matched, row)}" for row in late.tolist()],
            ),
            dimensions=_dimensions(matched, rows, start_ns),
            in_flight=_in_flight(matched, rows, start_ns),
            arrows=dict(zip(start_ns[linked].tolist(), arrow[linked].tolist(), strict=True)),
        )
    return RunLinks(by_rank, ends)


def _rows_by_rank(rank: Ints, ranks: Sequence[int], shown: NDArray[np.bool_]) -> dict[int, Ints]:
    """Return the rows of each shown rank, in order."""
    rows = np.flatnonzero(shown)
    rows = rows[np.argsort(rank[rows], kind="stable")]
    opens, ends = (np.searchsorted(rank[rows], ranks, side).tolist() for side in ("left", "right"))
    return {number: rows[a:b] for number, a, b in zip(ranks, opens, ends, strict=True)}


def _name(matched: MatchedCollectives, row: int) -> str:
    return matched.kinds[int(matched.kind[row])].operator


def _dimensions(matched: MatchedCollectives, rows: Ints, start_ns: Ints) -> Spans:
    names = [matched.kinds[kind].dimension for kind in matched.kind[rows].tolist()]
    if not any(names):
        return Spans(rows[:0], rows[:0], [])
    return Spans(start_ns[rows], matched.ended_ns[rows], [name or UNKNOWN_DIMENSION for name in names])


def _last_to_join(matched: MatchedCollectives) -> tuple[Ints, Ints]:
    """Return for each row the row of the rank that joined its collective last (or -1), and the longest wait in it."""
    last, longest = np.full(len(matched.rank), -1, np.int64), np.zeros(len(matched.rank), np.int64)
    rows = np.flatnonzero(matched.splits)
    rows = rows[np.lexsort((matched.duration_ns[rows], matched.collective[rows]))]
    if len(rows):
        opens = np.flatnonzero(np.diff(matched.collective[rows], prepend=-1))
        count = np.diff(np.append(opens, len(rows)))
        last[rows] = np.repeat(rows[opens], count)
        longest[rows] = np.repeat(np.maximum.reduceat(matched.wait_ns[rows], opens), count)
    return last, longest


def _arrows(
    matched: MatchedCollectives, rows_by_rank: Mapping[int, Ints], start_ns: Ints, clocks: Mapping[int, HostClock]
) -> tuple[Ints, dict[int, tuple[int, int]]]:
    """Number the collectives of several shown ranks; return each row's number or 0, and the ends of the arrows."""
    at_ns = start_ns.copy()
    for rank, rows in rows_by_rank.items():
        if rank in clocks:
            at_ns[rows] = aligned(clocks[rank], start_ns[rows])
    shown = np.concatenate([np.zeros(0, np.int64), *rows_by_rank.values()])
    shown = shown[(matched.collective[shown] >= 0) & (matched.duration_ns[shown] > 0)]
    shown = shown[np.lexsort((matched.rank[shown], at_ns[shown], matched.collective[shown]))]
    opens = np.flatnonzero(np.diff(matched.collective[shown], prepend=-1))
    count = np.diff(np.append(opens, len(shown)))
    arrow = np.zeros(len(start_ns), np.int64)
    arrow[shown] = np.repeat(np.where(count > 1, np.cumsum(count > 1), 0), count)
    firsts, lasts = shown[opens[count > 1]], shown[(opens + count - 1)[count > 1]]
    ends = zip(matched.rank[firsts].tolist(), matched.rank[lasts].tolist(), strict=True)
    return arrow, dict(enumerate(ends, 1))


def _in_flight(matched: MatchedCollectives, rows: Ints, start_ns: Ints) -> tuple[Ints, Ints]:
    """Return the instants at which the bytes of running collectives change, and the bytes from then on."""
    size = np.maximum(message_sizes(matched.kinds, len(rows)), 0)[matched.kind[rows]]
    rows, size = rows[size > 0], size[size > 0]
    instants, place = np.unique(np.concatenate((start_ns[rows], matched.ended_ns[rows])), return_inverse=True)
    change = np.zeros(len(instants), np.int64)
    np.add.at(change, place, np.concatenate((size, -size)))
    return instants, np.cumsum(change)
