"""Match the collectives and messages of a run: the one way in which reports and timelines do (metrics.md section 5).

A send and a receive pair up in the order of issue between their two ranks, step by step. NCCL's metadata name the peer
of each, and the header of perfkit's own pipelines lists them. Without either the peer is known in a group of two ranks
only.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from perfkit.engine.communication.collective_calls import CollectiveCalls
from perfkit.engine.communication.collective_metadata import flagged
from perfkit.engine.communication.message_batches import RECEIVE, SEND
from perfkit.engine.pipelines.groups import name_pipeline_groups
from perfkit.engine.ranks.clock_alignment import align, align_ranks
from perfkit.engine.ranks.matching import MatchedCollectives, match
from perfkit.records.cross_rank import HostClock
from perfkit.records.manifest import MeshDimension
from perfkit.trace.intervals import Ints

_UNKNOWN: Final = np.iinfo(np.int64).max


class Pairs(NamedTuple):
    """Rows of matched sends and receives; columns of shape (p,)."""

    send: Ints
    receive: Ints


def split_messages(matched: MatchedCollectives, clocks: Sequence[HostClock]) -> MatchedCollectives:
    """Return the matched collectives with the waiting of messages, where the clocks are good enough to tell it.

    A receive waits until its send begins, and a send until its receive does; the rest is transfer. A send that has
    ended by then did not wait: there was a buffer for it. Where the instants that are compared are closer to each other
    than the clocks agree, waiting stays unknown.
    """
    pairs = pair_rows(matched)
    if not len(pairs.send):
        return matched
    end_ns = align_ranks(clocks, matched.rank, matched.ended_ns)
    begin_ns = end_ns - matched.duration_ns
    later_ns = begin_ns[pairs.send] - begin_ns[pairs.receive]
    left_ns = end_ns[pairs.send] - begin_ns[pairs.receive]
    least_ns = _uncertainty_ns(matched, pairs, clocks)
    told = np.abs(later_ns) >= least_ns
    found = _with_waits(matched, pairs.receive[told], np.maximum(later_ns[told], 0))
    ended = told & (np.abs(left_ns) >= least_ns)
    return _with_waits(found, pairs.send[ended], np.where(left_ns > 0, np.maximum(-later_ns, 0), 0)[ended])


def _with_waits(matched: MatchedCollectives, rows: Ints, wait_ns: Ints) -> MatchedCollectives:
    """Return the matched collectives, of which some have waited so long, at most as long as they took."""
    transfer_ns, wait_known = matched.transfer_ns.copy(), matched.wait_known.copy()
    transfer_ns[rows] = np.maximum(matched.duration_ns[rows] - wait_ns, 0)
    wait_known[rows] = True
    return matched._replace(transfer_ns=transfer_ns, wait_known=wait_known)


def pair_rows(matched: MatchedCollectives) -> Pairs:
    """Return the rows of each send and its receive."""
    rows, _ = matched.matched_rows
    send = rows[flagged(matched.kinds, matched.kind[rows], lambda one: one.operator == SEND)]
    receive = rows[flagged(matched.kinds, matched.kind[rows], lambda one: one.operator == RECEIVE)]
    return Pairs(send, receive)


def _uncertainty_ns(matched: MatchedCollectives, pairs: Pairs, clocks: Sequence[HostClock]) -> Ints:
    """Return for each pair how far the aligned clocks of its ranks may disagree; beyond any time if that is unknown."""
    clock_of = {rank: clock for clock in clocks for rank in clock.ranks}
    ranks = list(zip(matched.rank[pairs.send].tolist(), matched.rank[pairs.receive].tolist(), strict=True))
    known = {pair: _residual_ns(clock_of, *pair) for pair in set(ranks)}
    return np.array([known[pair] for pair in ranks], np.int64)


def _residual_ns(clock_of: Mapping[int, HostClock], one: int, other: int) -> int:
    a, b = clock_of.get(one), clock_of.get(other)
    if a is None or b is None:
        return _UNKNOWN
    if a is b:
        return a.residual_ns or 0
    if a.offset_ns is None or b.offset_ns is None:
        return _UNKNOWN
    return (a.residual_ns or 0) + (b.residual_ns or 0)


class MatchedRun(NamedTuple):
    """The matched collectives of all ranks, and the clocks of their hosts."""

    collectives: MatchedCollectives
    clocks: list[HostClock]


def match_run(
    calls: Mapping[int, CollectiveCalls],
    hosts: Mapping[int, str | None],
    mesh: Sequence[MeshDimension],
    known_size: int | None,
) -> MatchedRun:
    """Match collectives, sends and receives.

    Args:
        calls: the collectives of each rank.
        hosts: the host of each rank.
        mesh: the run's mesh; empty if unknown.
        known_size: number of ranks, as the manifest or the headers have it; None if they do not.
    """
    matched = match(name_pipeline_groups(calls, mesh), known_size)
    clocks = align(matched, hosts)
    return MatchedRun(split_messages(matched, clocks), clocks)
