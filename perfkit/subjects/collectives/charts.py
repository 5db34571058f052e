"""The chart of collectives: bandwidth against size."""

from collections import Counter
from typing import Final

from perfkit.base.formatting import escape_unprintable
from perfkit.records.cross_rank import BandwidthFit, MatchedCollectiveStat
from perfkit.records.run import RunReport
from perfkit.tables.charts import Chart, RunChart, bandwidths


def _bandwidth(run: RunReport) -> Chart | None:
    """Return bandwidth against size, one series per operator and group, with its fit."""
    rows = [row for row in run.cross_rank.collectives if row.busbw and row.bytes] if run.cross_rank else []
    if run.cross_rank is None or len({row.bytes for row in rows}) < 2:
        return None
    groups: dict[tuple[str, str | None, int | None], list[MatchedCollectiveStat]] = {}
    for row in sorted(rows, key=lambda row: row.bytes or 0):
        groups.setdefault((row.operator, row.group, row.group_size), []).append(row)
    counts = Counter((operator, size) for operator, _, size in groups)
    fits = {(fit.operator, fit.group, fit.group_size): fit for fit in run.cross_rank.bandwidth_fits}
    series = [
        (
            _series_name(*key, unique=counts[key[0], key[2]] == 1),
            [row.bytes or 0 for row in group],
            [row.busbw or 0 for row in group],
            _fitted(fits.get(key), group),
        )
        for key, group in groups.items()
    ]
    note = "Lines: fitted latency and bandwidth." if any(fit.alpha_ns is not None for fit in fits.values()) else ""
    return bandwidths("Bandwidth of collectives by size", series, note=note)


def _series_name(operator: str, group: str | None, size: int | None, *, unique: bool) -> str:
    """Return an operator with the size of its group, and with the group's name where others have the same."""
    name = "" if unique or group is None else f", {group}"
    return escape_unprintable(f"{operator} \u00d7{size}{name}")


def _fitted(fit: BandwidthFit | None, rows: list[MatchedCollectiveStat]) -> list[float] | None:
    """Return the fitted busbw at each size: factor * S / (alpha + factor * S / beta)."""
    if fit is None or fit.alpha_ns is None or len(rows) < 2:
        return None
    on_bus = [(row.bytes or 0) * (row.busbw or 0) / (row.algbw or 1) for row in rows]
    times = [fit.alpha_ns + (size * 1e9 / fit.beta if fit.beta else 0) for size in on_bus]
    return [size * 1e9 / ns for size, ns in zip(on_bus, times, strict=True)] if all(times) else None


CHARTS: Final[dict[str, RunChart]] = {
    "bandwidth": RunChart(
        _bandwidth, "a chart of bandwidths needs matched collectives of two or more sizes on several ranks"
    ),
}
