"""Summarise matched collectives: waiting per rank, transfer times and bandwidths (metrics.md section 5)."""

from collections.abc import Hashable, Iterator, Sequence
from statistics import median

import numpy as np

from perfkit.analysis.cross_rank.bandwidth import bus_factor, fits
from perfkit.analysis.cross_rank.clock_alignment import align
from perfkit.analysis.cross_rank.lateness import own_times
from perfkit.analysis.cross_rank.matching import N_TO_N, MatchedCollectives
from perfkit.analysis.cross_rank.stragglers import Stragglers, find_one_off_stragglers, find_stragglers
from perfkit.schema.cross_rank import CrossRankSummary, MatchedCollectiveStat, RankWait
from perfkit.schema.rank import RankReport
from perfkit.trace.intervals import Ints


def summarize_cross_rank(matched: MatchedCollectives, ranks: Sequence[RankReport]) -> CrossRankSummary:
    """Sum matched collectives by kind and by rank, and find stragglers and clock offsets."""
    rows = sorted(_shared(matched), key=lambda row: -row.count * ((row.wait_ns or 0) + (row.transfer_ns or 0)))
    comparable = len({rank.device for rank in ranks}) == 1
    times = own_times(ranks) if comparable else None
    late = find_stragglers(times) if times else Stragglers([], 0)
    return CrossRankSummary(
        collectives=rows,
        rank_waits=_waits(matched),
        matched=int((matched.collective >= 0).sum()),
        unmatched=int((~matched.alone & (matched.collective < 0)).sum()),
        stragglers=late.ranks,
        stragglers_gain_ns=late.gain_ns,
        one_off_stragglers=find_one_off_stragglers(times, late) if times else [],
        clocks=align(matched, {rank.rank: rank.host for rank in ranks if rank.rank is not None}),
        bandwidth_fits=fits(rows),
    )


def _waits(matched: MatchedCollectives) -> list[RankWait]:
    ranks, number = np.unique(matched.rank, return_inverse=True)
    columns = (matched.wait_ns, matched.exposed_wait_ns, matched.transfer_ns)
    sums = np.zeros((len(columns), len(ranks)), np.int64)
    for total, column in zip(sums, columns, strict=True):
        np.add.at(total, number, column)
    return [
        RankWait(rank=rank, wait_ns=wait_ns, exposed_wait_ns=exposed_ns, transfer_ns=transfer_ns)
        for rank, wait_ns, exposed_ns, transfer_ns in zip(ranks.tolist(), *sums.tolist(), strict=True)
    ]


def _shared(matched: MatchedCollectives) -> Iterator[MatchedCollectiveStat]:
    rows = np.flatnonzero(matched.collective >= 0)
    rows = rows[np.lexsort((matched.rank[rows], matched.collective[rows]))]
    # Described by the lowest rank: in an all_to_all sizes may differ between ranks.
    first = np.flatnonzero(np.diff(matched.collective[rows], prepend=-1))
    shown = _numbered([tuple(kind.as_columns().values()) for kind in matched.kinds])
    kind = np.repeat(shown[matched.kind[rows[first]]], np.diff(np.append(first, len(rows))))
    by = np.argsort(kind, kind="stable")
    for members in np.split(rows[by], np.flatnonzero(np.diff(kind[by])) + 1) if len(rows) else ():
        yield _shared_row(matched, members)


def _numbered(values: Sequence[Hashable]) -> Ints:
    places = {value: place for place, value in enumerate(dict.fromkeys(values))}
    return np.array([places[value] for value in values] or [0], np.int64)


def _shared_row(matched: MatchedCollectives, rows: Ints) -> MatchedCollectiveStat:
    """Sum the matched collectives of one kind."""
    described = matched.kinds[matched.kind[rows[0]]]
    _, first = np.unique(matched.collective[rows], return_index=True)
    splits = described.operator in N_TO_N
    transfer_ns = median(matched.transfer_ns[rows[first]].tolist()) if splits else None
    algbw = described.bytes * 1e9 / transfer_ns if transfer_ns and described.bytes else None
    factor = bus_factor(described)
    return MatchedCollectiveStat(
        **described.as_columns(),
        count=len(first),
        wait_ns=float(matched.wait_ns[rows].mean()) if splits else None,
        transfer_ns=transfer_ns,
        algbw=algbw,
        busbw=algbw * factor if algbw is not None and factor is not None else None,
    )
