"""The clocks of hosts, aligned by the collectives that they ended together (metrics.md section 5).

No rank can leave an n-to-n collective before the last one has joined it, and all leave it at nearly the same time: the
median of how much earlier or later a host's clock says that was is the host's offset. Clocks that run at different
speeds drift apart while one watches: where a line lessens what the offset leaves by half, its slope is the drift.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.analysis.cross_rank.matching import MatchedCollectives
from perfkit.schema.cross_rank import HostClock
from perfkit.trace.intervals import Ints

_FEWEST_FOR_DRIFT: Final = 9
"""Three in each third."""
_WORTH_A_LINE: Final = 0.5
"""So much of the residual a drift must leave at most, to be taken for one."""


class _Host(NamedTuple):
    name: str | None
    ranks: list[int]


def align(matched: MatchedCollectives, hosts: Mapping[int, str | None]) -> list[HostClock]:
    """Return the clock of each host as against that of the lowest rank's host, which comes first.

    Hosts that share no collective with the reference are aligned through those that do; one that nothing leads to has
    no offset.

    Args:
        matched: the collectives of all ranks.
        hosts: the host of each rank; a rank whose host is not known has a clock of its own.
    """
    all_hosts = _hosts(hosts)
    place = {rank: index for index, host in enumerate(all_hosts) for rank in host.ranks}
    rows = np.flatnonzero(matched.splits & np.isin(matched.rank, list(place)))
    rows = rows[np.argsort(matched.collective[rows], kind="stable")]
    ranks, number = np.unique(matched.rank[rows], return_inverse=True)
    host = np.array([place[rank] for rank in ranks.tolist()] or [0], np.int64)[number]
    return _Alignment(all_hosts, host, matched.collective[rows], matched.ended_ns[rows]).clocks()


def _hosts(hosts: Mapping[int, str | None]) -> list[_Host]:
    """Return the hosts with their ranks, that of the lowest rank first."""
    by_key: dict[object, _Host] = {}
    for rank in sorted(hosts):
        by_key.setdefault(hosts[rank] or rank, _Host(hosts[rank], [])).ranks.append(rank)
    return list(by_key.values())


class _Alignment:
    """Goes from host to host; columns of shape (c,), sorted by collective and then by rank."""

    def __init__(self, hosts: Sequence[_Host], host: Ints, collective: Ints, ended_ns: Ints) -> None:
        self.hosts, self.host, self.ended_ns = hosts, host, ended_ns
        self.opens = np.flatnonzero(np.diff(collective, prepend=-1))
        self.count = np.diff(np.append(self.opens, len(host)))
        self.rows_of = rows_by(host)
        self.aligned_ns = ended_ns.copy()
        self.known = host == 0
        """Rows whose host's clock is aligned: their `aligned_ns` is by the reference's."""

    def clocks(self) -> list[HostClock]:
        found = {0: self._clock(0, *self._against_reference())}
        while new := self._reachable(found):
            first, has_reference = self._first_known()
            reference_ns = self.aligned_ns[first]
            for host in new:
                every = self.rows_of[host]
                rows = every[has_reference[every]]
                found[host] = self._clock(host, reference_ns[rows] - self.ended_ns[rows], self.ended_ns[rows])
                self.aligned_ns[every] = aligned(found[host], self.ended_ns[every])
            self.known |= np.isin(self.host, new)
        unknown = (HostClock(host=host.name, ranks=host.ranks) for host in self.hosts)
        return [found.get(index, clock) for index, clock in enumerate(unknown)]

    def _reachable(self, found: Mapping[int, HostClock]) -> list[int]:
        """Return the hosts that share a collective with one that is aligned, and are not."""
        return sorted({host for host in np.unique(self.host[self._first_known()[1]]).tolist() if host not in found})

    def _first_known(self) -> tuple[Ints, NDArray[np.bool_]]:
        """Return for each row that of the first aligned rank in its collective, and whether there is one."""
        last = len(self.host)
        if not last:
            return self.host, self.known
        first = np.minimum.reduceat(np.where(self.known, np.arange(last), last), self.opens)
        each = np.repeat(first, self.count)
        return np.minimum(each, last - 1), each < last

    def _against_reference(self) -> tuple[Ints, Ints]:
        """Return how the ends on the reference host differ from those of its first rank in each collective."""
        first, _ = self._first_known()
        rows = np.flatnonzero(self.known & (first != np.arange(len(self.host))))
        return self.aligned_ns[first[rows]] - self.ended_ns[rows], self.ended_ns[rows]

    def _clock(self, host: int, difference_ns: Ints, at_ns: Ints) -> HostClock:
        name, ranks = self.hosts[host]
        if host == 0:
            residual = round(float(np.median(np.abs(difference_ns)))) if len(difference_ns) else None
            return HostClock(host=name, ranks=ranks, offset_ns=0, residual_ns=residual, collectives=len(difference_ns))
        offset_ns, middle_ns = _median(difference_ns), _median(at_ns)
        left = difference_ns - offset_ns
        residual_ns = float(np.median(np.abs(left)))
        drift, left_ns = _drift(left, at_ns - middle_ns)
        if left_ns > _WORTH_A_LINE * residual_ns:
            drift, left_ns = 0.0, residual_ns
        return HostClock(
            host=name,
            ranks=ranks,
            offset_ns=offset_ns,
            at_ns=middle_ns,
            drift=drift,
            residual_ns=round(left_ns),
            collectives=len(difference_ns),
        )


def _median(values: Ints) -> int:
    """Return the median in whole nanoseconds: a float would lose hundreds of them at epoch scale."""
    base = int(values[0])
    return base + round(float(np.median(values - base)))


def _drift(left_ns: Ints, at_ns: Ints) -> tuple[float, float]:
    """Return the slope of what the offset leaves over time, and what the line leaves (Tukey's resistant line)."""
    order = np.argsort(at_ns, kind="stable")
    thirds = np.array_split(order, 3)
    span = float(np.median(at_ns[thirds[2]]) - np.median(at_ns[thirds[0]])) if len(order) >= _FEWEST_FOR_DRIFT else 0.0
    if span <= 0:
        return 0.0, float("inf")
    slope = float(np.median(left_ns[thirds[2]]) - np.median(left_ns[thirds[0]])) / span
    return slope, float(np.median(np.abs(left_ns - slope * at_ns)))


def rows_by(keys: Ints) -> dict[int, Ints]:
    """Return the rows of each key, ascending."""
    order = np.argsort(keys, kind="stable")
    found, first = np.unique(keys[order], return_index=True)
    return dict(zip(found.tolist(), np.split(order, first[1:]), strict=True)) if len(keys) else {}


def align_ranks(clocks: Sequence[HostClock], rank: Ints, times_ns: Ints) -> Ints:
    """Return instants, each of a rank, by the reference's clock; as they are where a rank's offset is not known."""
    clock_of = {number: clock for clock in clocks for number in clock.ranks}
    together = times_ns.copy()
    for number, rows in rows_by(rank).items():
        if number in clock_of:
            together[rows] = aligned(clock_of[number], times_ns[rows])
    return together


def aligned(clock: HostClock, times_ns: Ints) -> Ints:
    """Return instants of a host's clock by the reference's; as they are where its offset is not known."""
    if clock.offset_ns is None:
        return times_ns
    corrected: Ints = times_ns + clock.offset_ns
    if clock.drift:
        corrected = corrected + np.rint(clock.drift * (times_ns - clock.at_ns)).astype(np.int64)
    return corrected
