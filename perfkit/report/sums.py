"""Sums and medians over the ranks and steps of a run, for showing.

Nothing here is a metric of its own: every figure is a sum, a mean or a median of the report's.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import median

from perfkit.model import CATEGORIES, CollectiveStat, OperatorStat, RunReport, StepBreakdown

ACTIVE = CATEGORIES[:-1]
"""The categories that have a total: `overhead` is where none was active."""


def steps_of(run: RunReport) -> list[StepBreakdown]:
    """Return the steps of all ranks."""
    return [step for rank in run.ranks for step in rank.steps]


def exposed_sums(steps: Iterable[StepBreakdown]) -> list[int]:
    """Return the summed exclusive time a category (ns), in the order of `CATEGORIES`."""
    rows = [[getattr(s.exposed_ns, c) for c in CATEGORIES] for s in steps]
    return [sum(column) for column in zip(*rows, strict=True)] if rows else [0] * len(CATEGORIES)


def total_sums(steps: Iterable[StepBreakdown]) -> list[int]:
    """Return the summed active time a category (ns), in the order of `ACTIVE`."""
    rows = [[getattr(s.total_ns, c) for c in ACTIVE] for s in steps]
    return [sum(column) for column in zip(*rows, strict=True)] if rows else [0] * len(ACTIVE)


def hidden(total_ns: int, exposed_ns: int) -> float | None:
    """Return the hidden share of an active time; None where there was none (METRICS section 4)."""
    return (total_ns - exposed_ns) / total_ns if total_ns else None


def median_wall(steps: Sequence[StepBreakdown]) -> float | None:
    """Return the median wall time (ns); None without steps."""
    return median(s.wall_ns for s in steps) if steps else None


def step_time(run: RunReport) -> float | None:
    """Return the median over steps of the largest wall time over ranks (ns; METRICS section 7)."""
    longest: dict[int | None, int] = defaultdict(int)
    for step in steps_of(run):
        longest[step.step] = max(longest[step.step], step.wall_ns)
    return median(longest.values()) if longest else None


def merged_operators(run: RunReport) -> list[OperatorStat]:
    """Return kernels and operators summed over ranks, largest time first."""
    groups: dict[tuple[str, str], list[OperatorStat]] = defaultdict(list)
    for rank in run.ranks:
        for stat in rank.operators:
            groups[stat.name, stat.category].append(stat)
    merged = [
        OperatorStat(
            name=group[0].name,
            category=group[0].category,
            count=sum(s.count for s in group),
            total_ns=sum(s.total_ns for s in group),
            max_ns=max(s.max_ns for s in group),
        )
        for group in groups.values()
    ]
    return sorted(merged, key=lambda s: (-s.total_ns, s.name))


def merged_collectives(run: RunReport) -> list[CollectiveStat]:
    """Return collectives of one kind, group, size and type over all ranks, largest time first."""
    groups: dict[tuple[object, ...], list[CollectiveStat]] = defaultdict(list)
    for rank in run.ranks:
        for s in rank.collectives:
            groups[s.operator, s.group, s.group_size, s.bytes, s.dtype].append(s)
    merged = [
        CollectiveStat(
            operator=group[0].operator,
            group=group[0].group,
            group_size=group[0].group_size,
            bytes=group[0].bytes,
            dtype=group[0].dtype,
            count=sum(s.count for s in group),
            total_ns=sum(s.total_ns for s in group),
            exposed_ns=sum(s.exposed_ns for s in group),
            max_ns=max(s.max_ns for s in group),
        )
        for group in groups.values()
    ]
    return sorted(merged, key=lambda s: (-s.total_ns, s.operator, s.bytes or 0))
