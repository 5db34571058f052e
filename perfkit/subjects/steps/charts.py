"""Charts of steps: where their time goes, over all ranks and on each."""

from statistics import fmean
from typing import Final

from perfkit.base.formatting import in_ms
from perfkit.records.common import CATEGORIES
from perfkit.records.rank import RankReport, StepBreakdown
from perfkit.records.run import RunReport
from perfkit.tables.charts import Bars, Chart, RunChart, heat_map, longest_ranks, ranks_with_steps, stacked_bars
from perfkit.tables.labels import LONG, rank_labels, step_label

MOST_CELLS: Final = 20_000
"""In the heat map; beyond that, only the ranks that take longest without communication are shown."""


def _by_step(run: RunReport) -> Chart | None:
    ranks = ranks_with_steps(run)
    by_step = _steps(ranks)
    if len(by_step) < 2:
        return None
    series = [
        Bars(name, LONG[name], [in_ms(fmean(getattr(s.exposed_ns, name) for s in steps)) for steps in by_step.values()])
        for name in CATEGORIES
    ]
    title = "Time per profiled step" + (", mean over ranks" if len(ranks) > 1 else "")
    return stacked_bars(title, [step_label(number) for number in by_step], series, label="step", in_time=True)


def _heat_map(run: RunReport) -> Chart | None:
    ranks = ranks_with_steps(run)
    numbers = list(_steps(ranks))
    if len(ranks) < 2 or len(numbers) < 2:
        return None
    shown, note = longest_ranks(ranks, max(1, MOST_CELLS // len(numbers)))
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

    layers = [("whole step", cells(None)), *((LONG[category], cells(category)) for category in CATEGORIES)]
    steps, names = [step_label(number) for number in numbers], rank_labels(shown)
    return heat_map("Every profiled step of every rank", steps, names, layers, note=note)


def _steps(ranks: list[RankReport]) -> dict[int | None, list[StepBreakdown]]:
    numbers = sorted(
        {step.step for rank in ranks for step in rank.steps}, key=lambda number: (number is None, number or 0)
    )
    by_step: dict[int | None, list[StepBreakdown]] = {number: [] for number in numbers}
    for rank in ranks:
        for step in rank.steps:
            by_step[step.step].append(step)
    return by_step


CHARTS: Final[dict[str, RunChart]] = {
    "steps": RunChart(_by_step, "a chart of steps needs two or more"),
    "heat_map": RunChart(_heat_map, "a map of ranks and steps needs two or more of both"),
}
