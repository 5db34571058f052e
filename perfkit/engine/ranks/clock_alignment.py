"""Align the clocks of hosts by the ends of the collectives that they took part in (metrics.md section 5).

No rank can leave an n-to-n collective before the last one has joined it, and all leave it at nearly the same time. So
the median difference between the ends on two hosts' clocks is the offset between them. Clocks that run at different
speeds also drift: if a line halves the residual of the offset, its slope is the drift.

A host that shares only messages is aligned by these. No receive ends before its send begins: messages in both
directions bound the offset from both sides. Within the bounds it is that of the ends, if they agree better than the
bounds; else, because a send that is buffered ends at any time, it is in the middle.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from perfkit.engine.communication.collective_metadata import flagged
from perfkit.engine.communication.message_batches import SEND
from perfkit.engine.kinds.classify import rows_by_key
from perfkit.engine.ranks.matching import MatchedCollectives
from perfkit.records.cross_rank import HostClock
from perfkit.trace.intervals import Ints

_FEWEST_FOR_DRIFT: Final = 9
"""Three per third."""
_MAX_DRIFT_RESIDUAL: Final = 0.5
"""Largest ratio of the residual with drift to the residual without, for the drift to count."""


class _Host(NamedTuple):
    name: str | None
    ranks: list[int]


def align(matched: MatchedCollectives, hosts: Mapping[int, str | None]) -> list[HostClock]:
    """Return the clock of each host relative to the reference, the lowest rank's host, which comes first.

    Hosts that share no collective with the reference are aligned through hosts that do, else by messages. A host
    without such a chain has no offset.

    Args:
        matched: collectives of all ranks.
        hosts: host of each rank; a rank with an unknown host has its own clock.
    """
    all_hosts = _hosts(hosts)
    if not all_hosts:
        return []
    place = {rank: index for index, host in enumerate(all_hosts) for rank in host.ranks}
    linked = matched.splits | (matched.paired & (matched.collective >= 0))
    rows = np.flatnonzero(linked & np.isin(matched.rank, list(place)))
    ranks, number = np.unique(matched.rank[rows], return_inverse=True)
    host = np.array([place[rank] for rank in ranks.tolist()] or [0], np.int64)[number]
    return _Alignment(all_hosts, host, matched, rows).clocks()


def _hosts(hosts: Mapping[int, str | None]) -> list[_Host]:
    """Return the hosts with their ranks, the host of the lowest rank first."""
    by_key: dict[object, _Host] = {}
    for rank in sorted(hosts):
        by_key.setdefault(hosts[rank] or rank, _Host(hosts[rank], [])).ranks.append(rank)
    return list(by_key.values())


class _Alignment:
    """Propagates the alignment from host to host; columns of shape (c,), sorted by collective and then rank."""

    def __init__(self, hosts: Sequence[_Host], host: Ints, matched: MatchedCollectives, rows: Ints) -> None:
        self.hosts, self.host, self.ended_ns = hosts, host, matched.ended_ns[rows]
        self.begun_ns = self.ended_ns - matched.duration_ns[rows]
        self.is_message = ~matched.splits[rows]
        self.sends = flagged(matched.kinds, matched.kind[rows], lambda one: one.operator == SEND)
        _, self.opens = matched.opening(rows)
        self.count = np.diff(np.append(self.opens, len(host)))
        self.rows_of = rows_by_key(host)
        self.aligned_ns, self.aligned_begun_ns = self.ended_ns.copy(), self.begun_ns.copy()
        self.known = host == 0
        """Rows of hosts that are aligned: their `aligned_ns` is by the reference clock."""

    def clocks(self) -> list[HostClock]:
        clocks = {0: self._clock(0, *self._against_reference())}
        while new := self._next(clocks, by_messages=False) or self._next(clocks, by_messages=True):
            for host, clock in new.items():
                rows = self.rows_of[host]
                self.aligned_ns[rows] = aligned(clock, self.ended_ns[rows])
                self.aligned_begun_ns[rows] = aligned(clock, self.begun_ns[rows])
            self.known |= np.isin(self.host, list(new))
            clocks |= new
        unknown = (HostClock(host=host.name, ranks=host.ranks) for host in self.hosts)
        return [clocks.get(index, clock) for index, clock in enumerate(unknown)]

    def _next(self, clocks: Mapping[int, HostClock], *, by_messages: bool) -> dict[int, HostClock]:
        """Return the clocks of unaligned hosts that share collectives, or messages in both directions, with others."""
        first, has_reference = self._first_known(self.is_message == by_messages)
        found: dict[int, HostClock] = {}
        for host in np.unique(self.host[has_reference]).tolist():
            if host in clocks:
                continue
            rows = self.rows_of[host]
            rows = rows[has_reference[rows]]
            clock = self._clock(host, self.aligned_ns[first[rows]] - self.ended_ns[rows], self.ended_ns[rows])
            known = self._bounded(clock, rows, first[rows]) if by_messages else clock
            if known is not None:
                found[host] = known
        return found

    def _bounded(self, clock: HostClock, rows: Ints, others: Ints) -> HostClock | None:
        """Return the clock of a host within the bounds that its messages give; None if they are in one direction."""
        sends, offset_ns, residual_ns = self.sends[rows], clock.offset_ns or 0, clock.residual_ns or 0
        if sends.all() or not sends.any():
            return None
        least = int((self.aligned_begun_ns[others] - self.ended_ns[rows])[~sends].max())
        most = int((self.aligned_ns[others] - self.begun_ns[rows])[sends].min())
        # Bounds that contradict each other are those of a clock that drifts.
        if most < least or (residual_ns <= (most - least) // 2 and least <= offset_ns <= most):
            return clock
        middle_ns = least + (most - least) // 2
        return replace(clock, offset_ns=middle_ns, drift=0.0, residual_ns=(most - least) // 2)

    def _first_known(self, among: NDArray[np.bool_]) -> tuple[Ints, NDArray[np.bool_]]:
        """Return for each row the row of the first aligned rank in its collective, and whether there is one."""
        last, known = len(self.host), self.known & among
        if not last:
            return self.host, known
        first = np.minimum.reduceat(np.where(known, np.arange(last), last), self.opens)
        each = np.repeat(first, self.count)
        return np.minimum(each, last - 1), each < last

    def _against_reference(self) -> tuple[Ints, Ints]:
        """Return how the ends on the reference host differ from its first rank's in each collective."""
        among = ~self.is_message
        first, _ = self._first_known(among)
        rows = np.flatnonzero(self.known & among & (first != np.arange(len(self.host))))
        return self.aligned_ns[first[rows]] - self.ended_ns[rows], self.ended_ns[rows]

    def _clock(self, host: int, difference_ns: Ints, at_ns: Ints) -> HostClock:
        name, ranks = self.hosts[host]
        if host == 0:
            residual = round(float(np.median(np.abs(difference_ns)))) if len(difference_ns) else None
            return HostClock(host=name, ranks=ranks, offset_ns=0, residual_ns=residual, collectives=len(difference_ns))
        offset_ns, middle_ns = _median(difference_ns), _median(at_ns)
        residuals_ns = difference_ns - offset_ns
        residual_ns = float(np.median(np.abs(residuals_ns)))
        drift, drift_residual_ns = _drift(residuals_ns, at_ns - middle_ns)
        if drift_residual_ns > _MAX_DRIFT_RESIDUAL * residual_ns:
            drift, drift_residual_ns = 0.0, residual_ns
        return HostClock(
            host=name,
            ranks=ranks,
            offset_ns=offset_ns,
            at_ns=middle_ns,
            drift=drift,
            residual_ns=round(drift_residual_ns),
            collectives=len(difference_ns),
        )


def _median(values: Ints) -> int:
    """Return the median in whole ns: at epoch scale a float is off by hundreds of ns."""
    base = int(values[0])
    return base + round(float(np.median(values - base)))


def _drift(residuals_ns: Ints, at_ns: Ints) -> tuple[float, float]:
    """Return the slope of the residuals over time, and the residual of that line (Tukey's resistant line)."""
    order = np.argsort(at_ns, kind="stable")
    thirds = np.array_split(order, 3)
    span = float(np.median(at_ns[thirds[2]]) - np.median(at_ns[thirds[0]])) if len(order) >= _FEWEST_FOR_DRIFT else 0.0
    if span <= 0:
        return 0.0, float("inf")
    slope = float(np.median(residuals_ns[thirds[2]]) - np.median(residuals_ns[thirds[0]])) / span
    return slope, float(np.median(np.abs(residuals_ns - slope * at_ns)))


def align_ranks(clocks: Sequence[HostClock], rank: Ints, times_ns: Ints) -> Ints:
    """Return each rank's instants by the reference clock; unchanged if the rank's offset is unknown."""
    clock_of = {number: clock for clock in clocks for number in clock.ranks}
    aligned_ns = times_ns.copy()
    for number, rows in rows_by_key(rank).items():
        if number in clock_of:
            aligned_ns[rows] = aligned(clock_of[number], times_ns[rows])
    return aligned_ns


def aligned(clock: HostClock, times_ns: Ints) -> Ints:
    """Return a host's instants by the reference clock; unchanged if its offset is unknown."""
    if clock.offset_ns is None:
        return times_ns
    corrected: Ints = times_ns + clock.offset_ns
    if clock.drift:
        corrected = corrected + np.rint(clock.drift * (times_ns - clock.at_ns)).astype(np.int64)
    return corrected
