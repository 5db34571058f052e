"""The step logs of a run's ranks as arrays, and what follows from their columns alone."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.schema.per_run.monitor import StepPart

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Values = NDArray[np.floating[Any]]
"""Of a table float32, which is exact to a ten-millionth: a table of many ranks is large."""

PARTS: Final[Mapping[StepPart, str]] = {
    "data_loading": "data_ns",
    "forward": "forward_ns",
    "backward": "backward_ns",
    "optimizer": "optimizer_ns",
    "pause": "pause_ns",
}
"""Parts of a step that exclude each other, and their columns."""


class StepTable(NamedTuple):
    """Steps of a run: rows are ranks, columns steps, or several steps that were rolled up into one record."""

    ranks: list[int]
    first: Ints
    """Number of the (first) step of each column, shape (steps,); ascending."""
    counts: Ints
    """Steps that each column stands for, shape (steps,)."""
    ends: Ints
    """Number of the last step that each rank has logged, shape (ranks,)."""
    columns: Mapping[str, Values]
    """Columns of the log, shape (ranks, steps); NaN where a rank has no record, or the value is unknown."""

    def between(self, places: slice | Bools | Ints) -> "StepTable":
        """Return the table of some of the steps."""
        columns = {name: values[:, places] for name, values in self.columns.items()}
        return StepTable(self.ranks, self.first[places], self.counts[places], self.ends, columns)

    @property
    def wall_ns(self) -> Values:
        """Time of each step with its pauses, shape (ranks, steps)."""
        pauses = self.columns.get("pause_ns")
        step = self.columns["step_ns"]
        return step if pauses is None else np.asarray(step + np.nan_to_num(pauses))


def over_ranks(values: Values) -> Values:
    """Return the largest value over ranks, shape (steps,); every step has one."""
    longest: Values = np.fmax.reduce(values, axis=0)
    return longest


def own_ns(table: StepTable) -> Values | None:
    """Return each step without waiting for collectives, shape (ranks, steps); None if that is unknown on any rank.

    With pauses: a rank that writes a checkpoint is waited for too. A single rank has no other to compare with.
    """
    collectives = table.columns.get("collective_ns")
    if len(table.ranks) < 2 or collectives is None:
        return None
    has_steps = ~np.isnan(table.columns["step_ns"]).all(axis=1)
    is_known = ~np.isnan(collectives).all(axis=1)
    known = has_steps.any() and is_known.any() and (is_known | ~has_steps).all()
    return np.asarray(table.wall_ns - collectives) if known else None


def excess_ns(own: Values) -> Values:
    """Return by how much each rank exceeds the median of the others, per step, shape (ranks, steps); 0 if unknown.

    The median of the others follows from the middle values of all: leaving one out moves the middle by one place.
    """
    count = len(own)
    missing = np.isnan(own)
    if missing.any():
        own = np.where(missing.all(axis=0), 0.0, own)
        own = np.where(missing, np.nanmedian(own, axis=0), own)
    filled = own
    half = count // 2
    # The values at places half - 1, half and half + 1 of each step, in order.
    middle = [place for place in (half - 1, half, half + 1) if place < count]
    ordered = np.partition(filled, middle, axis=0)
    if count % 2 == 0:
        lower, upper = ordered[half - 1], ordered[half]
        return np.asarray(filled - np.where(filled <= lower, upper, lower))
    below, centre, above = ordered[half - 1 : half + 2]
    others = np.where(filled < centre, centre + above, np.where(filled > centre, below + centre, below + above)) / 2
    return np.asarray(filled - others)
