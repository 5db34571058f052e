"""Sums and medians over the ranks and steps of a run, and columns of files, that several tables have."""

from collections.abc import Iterable, Sequence
from operator import attrgetter
from statistics import median
from typing import Final

from perfkit.records.aggregate import add_collectives, step_time_ns, traced_step_ns
from perfkit.records.common import CATEGORIES
from perfkit.records.rank import CollectiveStat, StepBreakdown
from perfkit.records.run import RunReport
from perfkit.tables.specification import data

ACTIVE = CATEGORIES[:-1]
"""The categories that have a total: `overhead` is the time when none is active."""


def steps_of(run: RunReport) -> list[StepBreakdown]:
    """Return the steps of all ranks."""
    return [step for rank in run.ranks for step in rank.steps]


def exposed_sums(steps: Iterable[StepBreakdown]) -> list[int]:
    """Return the summed exposed time per category (ns), in the order of `CATEGORIES`."""
    rows = [[getattr(s.exposed_ns, c) for c in CATEGORIES] for s in steps]
    return [sum(column) for column in zip(*rows, strict=True)] if rows else [0] * len(CATEGORIES)


def total_sums(steps: Iterable[StepBreakdown]) -> list[int]:
    """Return the summed active time per category (ns), in the order of `ACTIVE`."""
    rows = [[getattr(s.total_ns, c) for c in ACTIVE] for s in steps]
    return [sum(column) for column in zip(*rows, strict=True)] if rows else [0] * len(ACTIVE)


def overlapped(total_ns: int, exposed_ns: int) -> float | None:
    """Return the overlapped share of an active time; None if it was never active (metrics.md section 4)."""
    return (total_ns - exposed_ns) / total_ns if total_ns else None


def median_wall(steps: Sequence[StepBreakdown]) -> float | None:
    """Return the median wall time (ns); None without steps."""
    return median(s.wall_ns for s in steps) if steps else None


def step_time(run: RunReport) -> float | None:
    """Return the mean over profiled steps of the largest wall time over ranks (ns; metrics.md section 7)."""
    return run.step_time.profiled_ns if run.step_time else step_time_ns(traced_step_ns(run.ranks).values())


def merged_collectives(run: RunReport) -> list[CollectiveStat]:
    """Return collectives of one kind, group, size and type over all ranks, largest exposed time first."""
    return add_collectives(row for rank in run.ranks for row in rank.collectives)


LOADS: Final = (
    data("count", int, lambda row: row.of.loads.count),
    data("sum_ns", int, lambda row: row.of.loads.sum_ns),
    data("max_ns", int, lambda row: row.of.loads.max_ns),
)
TIMES: Final = (
    data("wall_ns", int, lambda row: row.of.wall_ns),
    *(data(f"exposed_{one}_ns", int, attrgetter(f"of.exposed_ns.{one}")) for one in CATEGORIES),
    *(data(f"total_{one}_ns", int, attrgetter(f"of.total_ns.{one}")) for one in ACTIVE),
    *(data(f"loads_{field.key}", int, field.value) for field in LOADS if field.value),
)
"""Of a step: what is summed over the steps of a rank."""
