"""What a collective costs by its size: a latency and a bandwidth, fitted to the transfers of several sizes."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

import numpy as np
from numpy.typing import NDArray

from perfkit.analysis.per_rank.collective_metadata import CollectiveKey
from perfkit.schema.cross_rank import BandwidthFit, MatchedCollectiveStat

_FEWEST_SIZES: Final = 3

Floats = NDArray[np.float64]


def fits(rows: Sequence[MatchedCollectiveStat]) -> list[BandwidthFit]:
    """Fit t = alpha + factor * S / beta to each operator and group whose transfers and sizes are known.

    By non-negative least squares on relative error (metrics.md section 5), a point a size: the mean of the medians of
    its rows, by their counts.
    """
    known = [row for row in rows if row.transfer_ns and row.bytes and (row.group_size or 0) > 1]
    return [_fit(list(alike)) for _, alike in groupby(sorted(known, key=_key), key=_key)]


def _key(row: MatchedCollectiveStat) -> tuple[str, str, int]:
    return row.operator, row.group or "", row.group_size or 0


def _fit(rows: list[MatchedCollectiveStat]) -> BandwidthFit:
    first = rows[0]
    points = dict(_points(rows))
    alpha_ns, beta, error, reason = None, None, None, None
    factor = bus_factor(CollectiveKey(first.operator, first.group, first.group_size)) or 0.0
    if len(points) < _FEWEST_SIZES:
        reason = f"{len(points)} distinct sizes: a latency and a bandwidth need {_FEWEST_SIZES}"
    else:
        sizes = factor * np.array(list(points), np.float64)
        times = np.array(list(points.values()), np.float64)
        alpha_ns, slope = non_negative(1 / times, sizes / times)
        beta = 1e9 / slope if slope else None
        error = float(np.sqrt(np.mean(((alpha_ns + slope * sizes) / times - 1) ** 2)))
    return BandwidthFit(
        operator=first.operator,
        group=first.group,
        group_size=first.group_size,
        sizes=len(points),
        alpha_ns=alpha_ns,
        beta=beta,
        error=error,
        reason=reason,
    )


def bus_factor(described: CollectiveKey) -> float | None:
    """Return busbw / algbw as nccl-tests has it; None where the group's size is not known."""
    size = described.group_size
    if described.operator in ("broadcast", "reduce", "send", "recv"):
        return 1.0
    if not size:
        return None
    share = (size - 1) / size
    return 2 * share if described.operator == "all_reduce" else share


def _points(rows: list[MatchedCollectiveStat]) -> Iterator[tuple[int, float]]:
    """Yield each size and its transfer; types of one size are one point, by their counts."""
    by_size: dict[int, list[MatchedCollectiveStat]] = {}
    for row in rows:
        by_size.setdefault(row.bytes or 0, []).append(row)
    for size, alike in by_size.items():
        yield size, float(np.average([row.transfer_ns or 0 for row in alike], weights=[row.count for row in alike]))


def non_negative(first: Floats, second: Floats) -> tuple[float, float]:
    """Return a, b >= 0 that minimise the sum of (a * first + b * second - 1)^2.

    The minimum lies inside, or on one of the two axes: the three are compared.
    """
    candidates = [_along(first), 0.0], [0.0, _along(second)]
    inside = np.linalg.lstsq(np.column_stack((first, second)), np.ones(len(first)), rcond=None)[0]
    allowed = [*candidates, inside.tolist()] if (inside >= 0).all() else list(candidates)
    best = min(allowed, key=lambda pair: float(((pair[0] * first + pair[1] * second - 1) ** 2).sum()))
    return best[0], best[1]


def _along(axis: Floats) -> float:
    return float(axis.sum() / (axis**2).sum())
