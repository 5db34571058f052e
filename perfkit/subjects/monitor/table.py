"""The step logs of a run's ranks as arrays, and what follows from their columns alone."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.ranks.lateness import COLUMN, OwnTimes
from perfkit.records.common import CATEGORIES, Category
from perfkit.records.per_run.monitor import StepPart

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


ONLY: Final[Category] = "overhead"
"""The category in which the model of late ranks has whole steps."""


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

    With pauses: a rank that writes a checkpoint is waited for too. A single rank has no other to compare with. A step
    without a record takes as long as the median of the others.
    """
    collectives = table.columns.get("collective_ns")
    if len(table.ranks) < 2 or collectives is None:
        return None
    has_steps = ~np.isnan(table.columns["step_ns"]).all(axis=1)
    is_known = ~np.isnan(collectives).all(axis=1)
    known = has_steps.any() and is_known.any() and (is_known | ~has_steps).all()
    return _filled(table.wall_ns - collectives) if known else None


def _filled(values: Values) -> Values:
    """Return values of which each that is missing is the median of its step, or 0 if all are."""
    missing = np.isnan(values)
    if not missing.any():
        return np.asarray(values)
    some = np.where(missing.all(axis=0), 0.0, values)
    return np.asarray(np.where(np.isnan(some), np.nanmedian(some, axis=0), some))


def own_times(table: StepTable) -> OwnTimes | None:
    """Return the own times of whole steps, all in one category; None if they are unknown.

    So a rank that takes longer in one part of the step and less in another is on time, and which part is left to
    `late_part`.
    """
    if (own := own_ns(table)) is None:
        return None
    exposed_ns = np.zeros((*own.shape, len(CATEGORIES)), np.int64)
    exposed_ns[:, :, COLUMN[ONLY]] = np.rint(own)
    exposed_ns[:, :, COLUMN["communication"]] = np.rint(_filled(table.columns["collective_ns"]))
    return OwnTimes(table.ranks, table.first.tolist(), exposed_ns)
