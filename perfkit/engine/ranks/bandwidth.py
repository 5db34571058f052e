"""Fit latency and bandwidth to the transfer times of collectives of several sizes."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final

import numpy as np

from perfkit.base.statistics.nnls import nnls
from perfkit.engine.communication.collective_metadata import CollectiveKey
from perfkit.records.cross_rank import BandwidthFit, MatchedCollectiveStat
from perfkit.records.facts import Statement, statement

_FEWEST_SIZES: Final = 3


GroupKey = tuple[str, str, int]
"""Operator, group and group size; empty and 0 where they are unknown."""


def fits(rows: Sequence[MatchedCollectiveStat], incomplete: Collection[GroupKey] = ()) -> list[BandwidthFit]:
    """Fit t = alpha + factor * S / beta to each operator and group with known transfer times and sizes.

    The fit is non-negative least squares of the relative error (metrics.md section 5), with one point per size: the
    mean of its rows' median transfer times, weighted by their counts.

    Args:
        rows: matched collectives.
        incomplete: of which some ranks have no trace. Their times may be mostly waiting, so that nothing is fitted.
    """
    known = [row for row in rows if row.transfer_ns and row.bytes and (row.group_size or 0) > 1]
    by_group = groupby(sorted(known, key=group_key), key=group_key)
    return [_fit(list(group), key in incomplete) for key, group in by_group]


def group_key(row: MatchedCollectiveStat | CollectiveKey) -> GroupKey:
    """Return what collectives have in common that one fit is made of."""
    return row.operator, row.group or "", row.group_size or 0


def _fit(rows: list[MatchedCollectiveStat], incomplete: bool) -> BandwidthFit:
    first, points = rows[0], dict(_points(rows))
    described = CollectiveKey(first.operator, first.group, first.group_size)
    if incomplete:
        return _unknown(described, len(points), statement("transfers_bounded"))
    return fit_times(described, points)


def _unknown(described: CollectiveKey, sizes: int, reason: Statement) -> BandwidthFit:
    return BandwidthFit(
        operator=described.operator,
        group=described.group,
        group_size=described.group_size,
        sizes=sizes,
        alpha_ns=None,
        beta=None,
        error=None,
        reason=reason,
    )


def fit_times(described: CollectiveKey, times_ns: Mapping[int, float]) -> BandwidthFit:
    """Fit t = alpha + factor * S / beta to the time of each size S.

    Args:
        described: operator, group and group size.
        times_ns: time by size in bytes, both above 0.
    """
    if len(times_ns) < _FEWEST_SIZES:
        reason = statement("few_message_sizes", sizes=len(times_ns), fewest=_FEWEST_SIZES)
        return _unknown(described, len(times_ns), reason)
    sizes = (bus_factor(described) or 0.0) * np.array(list(times_ns), np.float64)
    times = np.array(list(times_ns.values()), np.float64)
    alpha_ns, slope = nnls(np.column_stack((np.ones_like(sizes), sizes)), times[None])[0].tolist()
    return BandwidthFit(
        operator=described.operator,
        group=described.group,
        group_size=described.group_size,
        sizes=len(times_ns),
        alpha_ns=alpha_ns,
        beta=1e9 / slope if slope else None,
        error=float(np.sqrt(np.mean(((alpha_ns + slope * sizes) / times - 1) ** 2))),
        reason=None,
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
