"""The data of a run's charts: plain numbers in milliseconds, which the page draws.

Every chart answers a question, and a table beside it has the same numbers.
"""

from collections.abc import Callable
from statistics import fmean
from typing import Any, Final, Literal, NamedTuple

from perfkit.report.content import aggregates as sums
from perfkit.report.content.run_tables import LONG, rank_label, step_label
from perfkit.schema.common import CATEGORIES
from perfkit.schema.cross_rank import BandwidthFit, MatchedCollectiveStat
from perfkit.schema.rank import MemoryUse, RankReport
from perfkit.schema.run import RunReport
from perfkit.util.formatting import escape_unprintable, in_ms

MOST_CELLS: Final = 20_000
"""Of the heat map; of more ranks and steps the ranks with the longest steps are shown."""
_MOST_BARS: Final = 256
_MOST_LINES: Final = 5
_NEAR_THE_LIMIT: Final = 0.25


def figures(run: RunReport) -> list[dict[str, Any]]:
    """Return the charts of a run, in order; none without steps."""
    return [found for name in CHARTS if (found := chart(run, name))]


def _longest(ranks: list[RankReport], most: int) -> tuple[list[RankReport], str]:
    """Return at most so many ranks, those with the longest mean step, in order; and what to say of the others."""
    if len(ranks) <= most:
        return ranks, ""
    chosen = sorted(ranks, key=lambda rank: -fmean(step.wall_ns for step in rank.steps))[:most]
    kept = {id(rank) for rank in chosen}
    return [rank for rank in ranks if id(rank) in kept], f"The {most} of {len(ranks)} ranks with the longest steps."


def _by_rank(ranks: list[RankReport]) -> dict[str, Any] | None:
    if len(ranks) < 2:
        return None
    shown, note = _longest(ranks, _MOST_BARS)
    means = [[ns / len(rank.steps) for ns in sums.exposed_sums(rank.steps)] for rank in shown]
    return {
        "kind": "stack",
        "title": "Where a rank's mean step goes",
        "note": note,
        "axis": "rank",
        "y": "ms, exposed",
        "x": [rank_label(rank.rank) for rank in shown],
        "series": [
            {"colour": category, "name": LONG[category], "ms": [in_ms(mean[i]) for mean in means]}
            for i, category in enumerate(CATEGORIES)
        ],
    }


def _by_step(ranks: list[RankReport]) -> dict[str, Any] | None:
    by_step = _steps(ranks)
    if len(by_step) < 2:
        return None
    return {
        "kind": "stack",
        "title": "Where each step goes" + (", mean over ranks" if len(ranks) > 1 else ""),
        "note": "",
        "axis": "step",
        "y": "ms, exposed",
        "x": [step_label(number) for number in by_step],
        "series": [
            {
                "colour": category,
                "name": LONG[category],
                "ms": [
                    in_ms(fmean(getattr(step.exposed_ns, category) for step in steps)) for steps in by_step.values()
                ],
            }
            for category in CATEGORIES
        ],
    }


def _steps(ranks: list[RankReport]) -> dict[int | None, list[Any]]:
    numbers = sorted(
        {step.step for rank in ranks for step in rank.steps}, key=lambda number: (number is None, number or 0)
    )
    by_step: dict[int | None, list[Any]] = {number: [] for number in numbers}
    for rank in ranks:
        for step in rank.steps:
            by_step[step.step].append(step)
    return by_step


def _heat_map(ranks: list[RankReport]) -> dict[str, Any] | None:
    numbers = list(_steps(ranks))
    if len(ranks) < 2 or len(numbers) < 2:
        return None
    shown, note = _longest(ranks, max(1, MOST_CELLS // len(numbers)))
    tables = [{step.step: step for step in rank.steps} for rank in shown]

    def cells(category: str | None) -> list[list[float | None]]:
        return [
            [
                None
                if (step := table.get(number)) is None
                else in_ms(getattr(step.exposed_ns, category) if category else step.wall_ns)
                for number in numbers
            ]
            for table in tables
        ]

    return {
        "kind": "heat",
        "title": "Every step of every rank",
        "note": note,
        "x": [step_label(number) for number in numbers],
        "y": [rank_label(rank.rank) for rank in shown],
        "layers": [{"name": "whole step", "ms": cells(None)}]
        + [{"name": LONG[category], "ms": cells(category)} for category in CATEGORIES],
    }


def _waiting(run: RunReport) -> dict[str, Any] | None:
    """Return what a rank's collectives are made of: the rank that waits least is the one that is waited for."""
    waits = run.cross_rank.rank_waits if run.cross_rank and run.cross_rank.matched else []
    if len(waits) < 2:
        return None
    steps = {rank.rank: len(rank.steps) or 1 for rank in run.ranks}
    shown = sorted(sorted(waits, key=lambda wait: wait.wait_ns)[:_MOST_BARS], key=lambda wait: wait.rank)
    left = len(waits) - len(shown)
    return {
        "kind": "stack",
        "title": "Waiting and transfer in a rank's collectives, a mean step",
        "note": f"The {len(shown)} of {len(waits)} ranks that wait least." if left else "",
        "axis": "rank",
        "y": "ms, exposed or hidden",
        "x": [rank_label(wait.rank) for wait in shown],
        "series": [
            {
                "colour": part,
                "name": part,
                "ms": [in_ms(getattr(w, f"{part}_ns") / steps.get(w.rank, 1)) for w in shown],
            }
            for part in ("transfer", "wait")
        ],
    }


def _bandwidth(run: RunReport) -> dict[str, Any] | None:
    """Return bandwidth against size, a series an operator and group, with what the fit says."""
    rows = [row for row in run.cross_rank.collectives if row.busbw and row.bytes] if run.cross_rank else []
    if len({row.bytes for row in rows}) < 2:
        return None
    series: dict[tuple[str, str | None, int | None], list[MatchedCollectiveStat]] = {}
    for row in sorted(rows, key=lambda row: row.bytes or 0):
        series.setdefault((row.operator, row.group, row.group_size), []).append(row)
    fits = (
        {(fit.operator, fit.group, fit.group_size): fit for fit in run.cross_rank.bandwidth_fits}
        if run.cross_rank
        else {}
    )
    return {
        "kind": "scatter",
        "title": "Bandwidth of collectives by size",
        "note": "Lines: latency and bandwidth fitted."
        if any(fit.alpha_ns is not None for fit in fits.values())
        else "",
        "series": [
            {
                "name": f"{escape_unprintable(alike[0].operator)} \u00d7{alike[0].group_size}",
                "bytes": [row.bytes for row in alike],
                "busbw": [row.busbw for row in alike],
                "fit": _fitted(fits.get(key), alike),
            }
            for key, alike in series.items()
        ],
    }


def _fitted(fit: BandwidthFit | None, rows: list[MatchedCollectiveStat]) -> list[float] | None:
    """Return the busbw that the fit gives at each size: factor * S / (alpha + factor * S / beta)."""
    if fit is None or fit.alpha_ns is None or len(rows) < 2:
        return None
    on_bus = [(row.bytes or 0) * (row.busbw or 0) / (row.algbw or 1) for row in rows]
    times = [fit.alpha_ns + (size * 1e9 / fit.beta if fit.beta else 0) for size in on_bus]
    return [size * 1e9 / ns for size, ns in zip(on_bus, times, strict=True)] if all(times) else None


def _memory(run: RunReport) -> dict[str, Any] | None:
    """Return the levels of allocated memory over the step with the highest peak, of the ranks that need most.

    Of a run with accelerators it is their memory that runs out.
    """
    uses = [(rank, use) for rank in run.ranks for use in rank.memory]
    uses = [(rank, use) for rank, use in uses if use.device != "CPU"] or uses
    if not uses:
        return None
    shown = sorted(uses, key=lambda pair: -pair[1].peak.allocated_bytes)[:_MOST_LINES]
    names, shared = _told_apart([use for _, use in shown])
    left = f"The {len(shown)} highest peaks of {len(uses)}." if len(shown) < len(uses) else ""
    limits = [use.limit_bytes for _, use in shown if use.limit_bytes]
    most = shown[0][1].peak.allocated_bytes
    return {
        "kind": "levels",
        "title": "Memory over the step: " + ("how near is the limit, and when?" if limits else "how much, and when?"),
        "note": " ".join(filter(None, (shared, left))),
        "axis": "ms since the host began the step",
        "y": "allocated",
        # A limit that is far away would leave nothing to be seen of what is below it.
        "limit": min(limits) if limits and most >= min(limits) * _NEAR_THE_LIMIT else None,
        "series": [
            {
                "name": f"rank {rank_label(rank.rank)}{name}",
                "ms": [in_ms(ns) for ns in use.curve.at_ns],
                "bytes": use.curve.allocated_bytes,
                "peak": use.curve.allocated_bytes.index(max(use.curve.allocated_bytes)),
            }
            for name, (rank, use) in zip(names, shown, strict=True)
        ],
    }


def _told_apart(uses: list[MemoryUse]) -> tuple[list[str], str]:
    """Return what the lines' names say beyond their rank, and what all of them have in common."""
    parts = [(use.device, f"step {step_label(use.curve.step)}") for use in uses]
    common = [names[0] for names in zip(*parts, strict=True) if len(set(names)) == 1]
    apart = ["".join(f", {part}" for part in mine if part not in common) for mine in parts]
    return apart, f"{', '.join(common)}." if common else ""


class Chart(NamedTuple):
    """How a chart is made, and what a run needs to have it."""

    make: Callable[[RunReport], dict[str, Any] | None]
    needs: str


def _with_steps(run: RunReport) -> list[RankReport]:
    return [rank for rank in run.ranks if rank.steps]


ChartName = Literal["ranks", "steps", "heat_map", "waiting", "bandwidth", "memory"]
CHARTS: Final[dict[ChartName, Chart]] = {
    "ranks": Chart(lambda run: _by_rank(_with_steps(run)), "a chart of ranks needs two or more with steps"),
    "steps": Chart(lambda run: _by_step(_with_steps(run)), "a chart of steps needs two or more"),
    "heat_map": Chart(lambda run: _heat_map(_with_steps(run)), "a map of ranks and steps needs two or more of both"),
    "waiting": Chart(_waiting, "a chart of waiting needs collectives that several ranks have in common"),
    "bandwidth": Chart(_bandwidth, "a chart of bandwidths needs collectives of two or more sizes on several ranks"),
    "memory": Chart(_memory, "a chart of memory needs traces recorded with profile_memory"),
}
"""The charts that `figures` returns, by name."""


def chart(run: RunReport, name: ChartName) -> dict[str, Any] | None:
    """Return one chart of a run; None where it has none."""
    return CHARTS[name].make(run) if _with_steps(run) else None
