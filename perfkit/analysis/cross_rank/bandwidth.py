"""Fit latency and bandwidth to the transfer times of collectives of several sizes."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

import numpy as np

from perfkit.analysis.per_rank.communication.collective_metadata import CollectiveKey
from perfkit.schema.cross_rank import BandwidthFit, MatchedCollectiveStat
from perfkit.stats.nnls import nnls

_FEWEST_SIZES: Final = 3


def fits(rows: Sequence[MatchedCollectiveStat]) -> list[BandwidthFit]:
    """Fit t = alpha + factor * S / beta to each operator and group with known transfer times and sizes.

    The fit is non-negative least squares of the relative error (metrics.md section 5), with one point per size: the
    mean of its rows' median transfer times, weighted by their counts.
    """
    known = [row for row in rows if row.transfer_ns and row.bytes and (row.group_size or 0) > 1]
    return [_fit(list(group)) for _, group in groupby(sorted(known, key=_key), key=_key)]


def _key(row: MatchedCollectiveStat) -> tuple[str, str, int]:
    return row.operator, row.group or "", row.group_size or 0


def _fit(rows: list[MatchedCollectiveStat]) -> BandwidthFit:
    first = rows[0]
    return fit_times(CollectiveKey(first.operator, first.group, first.group_size), dict(_points(rows)))


def fit_times(described: CollectiveKey, times_ns: Mapping[int, float]) -> BandwidthFit:
    """Fit t = alpha + factor * S / beta to the time of each size S.

    Args:
        described: operator, group and group size.
        times_ns: time by size in bytes, both above 0.
    """
    alpha_ns, beta, error, reason = None, None, None, None
    factor = bus_factor(described) or 0.0
    if len(times_ns) < _FEWEST_SIZES:
        reason = f"{len(times_ns)} distinct sizes: a latency and a bandwidth need {_FEWEST_SIZES}"
    else:
        sizes = factor * np.array(list(times_ns), np.float64)
        times = np.array(list(times_ns.values()), np.float64)
        alpha_ns, slope = nnls(np.column_stack((np.ones_like(sizes), sizes)), times[None])[0].tolist()
        beta = 1e9 / slope if slope else None
        error = float(np.sqrt(np.mean(((alpha_ns + slope * sizes) / times - 1) ** 2)))
    return BandwidthFit(
        operator=described.operator,
        group=described.group,
        group_size=described.group_size,
        sizes=len(times_ns),
        alpha_ns=alpha_ns,
        beta=beta,
        error=error,
        reason=reason,
    )


def bus_factor(described: CollectiveKey) -> float | None:
    """Return busbw / algbw as defined by nccl-tests; None if the group's size is unknown."""
    size = described.group_size
    if described.operator in ("broadcast", "reduce", "send", "recv", "send_recv"):
        return 1.0
    if not size:
        return None
    share = (size - 1) / size
    return 2 * share if described.operator == "all_reduce" else share


def _points(rows: list[MatchedCollectiveStat]) -> Iterator[tuple[int, float]]:
    """Yield each size and its transfer time; rows of one size are averaged, weighted by their counts."""
    by_size: dict[int, list[MatchedCollectiveStat]] = {}
    for row in rows:
        by_size.setdefault(row.bytes or 0, []).append(row)
    for size, group in by_size.items():
        yield size, float(np.average([row.transfer_ns or 0 for row in group], weights=[row.count for row in group]))
