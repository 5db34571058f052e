"""The table of a run's slowest steps, and all steps in files."""

from collections.abc import Iterator
from statistics import median
from typing import Final, NamedTuple

from perfkit.base.formatting import MISSING, difference, duration, format_percent
from perfkit.records.common import CATEGORIES
from perfkit.records.rank import RankReport, StepBreakdown
from perfkit.records.run import RunReport
from perfkit.tables import aggregates as sums
from perfkit.tables.aggregates import TIMES
from perfkit.tables.labels import LONG, rank_label, step_label
from perfkit.tables.specification import RANK, RUN, Listing, Table, data, make_table, number, of_ranks, words


class _Slow(NamedTuple):
    """A step on its slowest rank."""

    rank: RankReport
    step: StepBreakdown

    @property
    def excess_ns(self) -> float:
        """Time in excess of the rank's median."""
        return self.step.wall_ns - median(step.wall_ns for step in self.rank.steps)


def tables(run: RunReport, top: int) -> Iterator[Table | None]:
    """Yield the longest steps, each on its slowest rank; None if none is longer than that rank's median."""
    longest: dict[int | None, _Slow] = {}
    usual_ns: dict[int | None, float] = {}
    for rank in run.ranks:
        of_rank_ns = sums.median_wall(rank.steps) or 0
        for step in rank.steps:
            if step.step not in longest or step.wall_ns > longest[step.step].step.wall_ns:
                longest[step.step], usual_ns[step.step] = _Slow(rank, step), of_rank_ns
    found = [one for number, one in longest.items() if one.step.wall_ns > usual_ns[number]]
    ordered = sorted(found, key=lambda one: -one.step.wall_ns)
    left = len(ordered) - top
    columns = (
        number("step", lambda one: step_label(one.step.step)),
        number("rank", lambda one: rank_label(one.rank.rank)),
        number("wall", lambda one: one.step.wall_ns, duration),
        number("over median", lambda one: one.excess_ns, difference),
        words("dominant", _dominant),
        words("largest increase", _increase),
    )
    title = "Slowest profiled steps (each on its slowest rank, compared with that rank's median)"
    yield make_table(title, ordered, columns, f"{left} more above the median" if left > 0 else "", top=top)


def _dominant(one: _Slow) -> str:
    parts = {category: getattr(one.step.exposed_ns, category) for category in CATEGORIES}
    largest = max(parts, key=parts.__getitem__)
    return f"{LONG[largest]} {format_percent(parts[largest] / one.step.wall_ns if one.step.wall_ns else None)}"


def _increase(one: _Slow) -> str:
    grown = {
        category: getattr(one.step.exposed_ns, category)
        - median(getattr(step.exposed_ns, category) for step in one.rank.steps)
        for category in CATEGORIES
    }
    largest = max(grown, key=grown.__getitem__)
    return f"{LONG[largest]} {difference(grown[largest])}" if one.excess_ns > 0 and grown[largest] > 0 else MISSING


LISTINGS: Final = {
    "steps": Listing(
        of_ranks(lambda rank: rank.steps),
        (
            *(RUN, RANK, data("step", int | None, lambda row: row.of.step)),
            data("start_ns", int, lambda row: row.of.start_ns),
            *TIMES,
        ),
    )
}
