"""Which share of the bandwidth that a benchmark measured each collective of a run reached (metrics.md section 21)."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from perfkit.records.benchmark import CollectiveBenchmark, Series
from perfkit.records.common import Observation
from perfkit.records.cross_rank import BandwidthShare, MatchedCollectiveStat
from perfkit.records.run import RunReport

_BENCHMARKED_AS: Final = {"send_recv": "send_recv_pairs"}
"""Operators of runs that the benchmark has under another name: a matched send is one-way, between two ranks."""


class BandwidthShares(NamedTuple):
    """The share of each collective that a benchmark measured too, and what limits them."""

    shares: list[BandwidthShare] | None
    """None if nothing can be compared."""
    limits: list[Observation]


def bandwidth_shares(run: RunReport, benchmark: CollectiveBenchmark) -> BandwidthShares:
    """Return which share of the measured bandwidth the collectives of a run reached."""
    if not run.cross_rank:
        return BandwidthShares(None, [])
    if any(finding.code == "groups_incomplete" for finding in run.findings):
        return BandwidthShares(None, [Observation("not_measured", case="ranks_missing")])
    rows = run.cross_rank.collectives
    shares = [share for row in rows if (share := _share(row, benchmark)) is not None]
    return BandwidthShares(shares, [*_incomparable(run, benchmark), *(() if shares else _why_none(rows, benchmark))])


def _incomparable(run: RunReport, benchmark: CollectiveBenchmark) -> Iterator[Observation]:
    """Yield a finding if run and benchmark used other backends or devices, so that shares mean little."""
    backends = sorted({rank.backend for rank in run.ranks if rank.backend})
    pairs = [("backend", backends, [benchmark.backend]), ("device", run.device_names, benchmark.device_names)]
    for what, own, other in pairs:
        if own and other and own != other:
            yield Observation("other_network_measured", {"what": what, "own": own, "measured": other})


def _why_none(rows: Sequence[MatchedCollectiveStat], benchmark: CollectiveBenchmark) -> Iterator[Observation]:
    """Yield a finding if the benchmark covers none of a run's collectives."""
    known = [row for row in rows if row.transfer_ns and row.bytes]
    wanted = sorted({(row.operator, row.group_size) for row in known}, key=lambda pair: (pair[0], str(pair[1])))
    if wanted:
        yield Observation("not_measured", {"ranks": benchmark.world_size, "wanted": wanted})
    elif rows:
        yield Observation("not_measured", case="unknown")


def _share(row: MatchedCollectiveStat, benchmark: CollectiveBenchmark) -> BandwidthShare | None:
    if not row.bytes or not row.transfer_ns:
        return None
    for number in _candidates(row, benchmark):
        measured_ns = _time_at(row.bytes, benchmark, number)
        if measured_ns is not None:
            return BandwidthShare(
                operator=row.operator,
                dimension=row.dimension,
                group_size=row.group_size,
                bytes=row.bytes,
                dtype=row.dtype,
                count=row.count,
                transfer_ns=row.transfer_ns,
                measured_ns=measured_ns,
                share=measured_ns / row.transfer_ns,
            )
    return None


def _candidates(row: MatchedCollectiveStat, benchmark: CollectiveBenchmark) -> Iterable[int]:
    """Return the comparable series, those with all groups of a dimension at once first: as in training."""
    operator = _BENCHMARKED_AS.get(row.operator, row.operator)
    found = [
        (-one.groups, one.in_place, number)
        for number, one in enumerate(benchmark.series)
        if one.operator == operator and one.concurrent == 1 and _comparable(row, one, benchmark.world_size)
    ]
    return [number for *_, number in sorted(found)]


def _comparable(row: MatchedCollectiveStat, series: Series, world_size: int) -> bool:
    if row.dtype is not None and row.dtype != series.dtype:
        return False
    if row.operator in _BENCHMARKED_AS:  # between two ranks, however many the group has
        return series.dimension in (row.dimension, None)
    if row.group_size != series.group_size:
        return False
    return series.dimension == row.dimension if series.dimension else series.group_size == world_size


def _time_at(size: int, benchmark: CollectiveBenchmark, number: int) -> float | None:
    """Return the measured time of a size, between two measured ones by a power law; None outside of them."""
    rows = sorted((row.bytes, row.time_ns) for row in benchmark.measurements if row.series == number and row.bytes)
    if not rows or not rows[0][0] <= size <= rows[-1][0]:
        return None
    sizes, times = np.log(np.array(rows, np.float64)).T
    return float(np.exp(np.interp(np.log(size), sizes, times)))
