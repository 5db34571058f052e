"""Which part of a step, and which rank, additional time belongs to."""

from typing import Final

import numpy as np

from perfkit.records.aggregate import MAJORITY
from perfkit.records.per_run.monitor import StepPart
from perfkit.subjects.monitor.course import median_of
from perfkit.subjects.monitor.table import PARTS, Bools, Ints, StepTable, Values

_MOSTLY: Final = 0.8
_MOST_OTHERS: Final = 32
"""Ranks that a late one is compared with, part by part."""


def part_of(
    table: StepTable, ranks: list[int], usual: slice | Bools | Ints, other: slice | Bools | Ints, extra_ns: float
) -> StepPart | None:
    """Return the part that has at least half of `extra_ns`, the difference of some steps from usual ones.

    Args:
        table: the steps.
        ranks: rows to look at; empty for all. Of several, the median counts.
        usual: places of steps that take the usual time.
        other: places of the steps that take `extra_ns` longer, or less if it is negative.
        extra_ns: the difference.
    """
    rows = ranks or list(range(len(table.ranks)))
    parts = dict(PARTS)
    if not ranks:
        parts["collectives"] = "collective_ns"
    shares = {part: _difference(table, column, rows, usual, other) / extra_ns for part, column in parts.items()}
    known = {part: share for part, share in shares.items() if share >= MAJORITY}
    # Collectives are waited for within the other parts: where they explain it, these do not.
    if "collectives" in known:
        return "collectives"
    return max(known, key=lambda part: known[part], default=None)


def _difference(
    table: StepTable, column: str, rows: list[int], usual: slice | Bools | Ints, other: slice | Bools | Ints
) -> float:
    return median_of(
        np.array([_median(table, column, row, other) - _median(table, column, row, usual) for row in rows])
    )


def _median(table: StepTable, column: str, row: int, places: slice | Bools | Ints) -> float:
    """Return the median of a part of the step on one rank; of backward passes without waiting for collectives."""
    values = table.columns.get(column)
    if values is None:
        return float("nan")
    chosen = values[row, places]
    if column == PARTS["backward"] and (waits := table.columns.get("collective_ns")) is not None:
        chosen = chosen - np.nan_to_num(waits[row, places])
    return median_of(chosen)


def late_part(table: StepTable, row: int, late: Bools, lag_ns: float) -> StepPart | None:
    """Return the part of the step in which a late rank has at least half of its lag over the others.

    Args:
        table: the steps.
        row: the late rank.
        late: in which steps it is late, shape (steps,).
        lag_ns: median of its excess in them.
    """
    others = [other for other in range(len(table.ranks)) if other != row][:_MOST_OTHERS]
    found: dict[StepPart, float] = {}
    for part, column in PARTS.items():
        usual = median_of(np.array([_median(table, column, other, late) for other in others]))
        share = (_median(table, column, row, late) - usual) / lag_ns
        if share >= MAJORITY:
            found[part] = share
    return max(found, key=lambda part: found[part], default=None)


def only_rank(excess_ns: Values | None, places: Ints, extra_ns: Values) -> int | None:
    """Return the row that alone exceeds the others in most of some steps; None if there is none, or it is unknown.

    Args:
        excess_ns: excess of each rank's own time over the median of the others, shape (ranks, steps); None if unknown.
        places: the steps, shape (n,).
        extra_ns: what they take more than usual, shape (n,).
    """
    if excess_ns is None or not len(places):
        return None
    late = excess_ns[:, places] >= MAJORITY * extra_ns
    alone = late & (late.sum(axis=0) == 1)
    share = alone.mean(axis=1)
    row = int(share.argmax())
    return row if share[row] >= _MOSTLY else None
