"""The data of a run's charts: plain numbers in milliseconds, which the page draws.

Every chart answers a question, and a table beside it has the same numbers.
"""

from statistics import fmean
from typing import Any, Final

from perfkit.model import CATEGORIES, RankReport, RunReport
from perfkit.report import sums
from perfkit.report.tables import LONG, rank_label, step_label

MOST_CELLS: Final = 20_000
"""Of the heat map; of more ranks and steps the ranks with the longest steps are shown."""
_MOST_BARS: Final = 256


def figures(run: RunReport) -> list[dict[str, Any]]:
    """Return the charts of a run, in order; none without steps."""
    ranks = [rank for rank in run.ranks if rank.steps]
    return [chart for chart in (_by_rank(ranks), _by_step(ranks), _heat_map(ranks)) if chart] if ranks else []


def _ms(ns: float) -> float:
    return round(ns / 1e6, 6)


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
        "x": [rank_label(rank.rank) for rank in shown],
        "series": [
            {"category": category, "name": LONG[category], "ms": [_ms(mean[i]) for mean in means]}
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
        "x": [step_label(number) for number in by_step],
        "series": [
            {
                "category": category,
                "name": LONG[category],
                "ms": [_ms(fmean(getattr(step.exposed_ns, category) for step in steps)) for steps in by_step.values()],
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
                else _ms(getattr(step.exposed_ns, category) if category else step.wall_ns)
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
