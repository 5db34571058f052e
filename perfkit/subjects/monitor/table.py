"""The step logs of a run's ranks as one table, also where they were rolled up differently."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.ranks.lateness import COLUMN, OwnTimes
from perfkit.records.common import CATEGORIES, Category
from perfkit.records.monitor import UNKNOWN
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


# ---- from the logs of ranks ------------------------------------------------------------------------------------------


MEANS: Final = ("step_ns", "data_ns", "forward_ns", "backward_ns", "optimizer_ns", "collective_ns", "pause_ns")
COLUMNS: Final = (*MEANS, "kind", "longest_ns", "longest_offset")
"""Columns of the table; `longest_offset` is the number of the longest step less that of the first."""
MOST_CELLS: Final = 12_000_000
"""Ranks times columns of a table; beyond, steps are joined. 12 million are about half a gigabyte."""


class RankSteps(NamedTuple):
    """What the table needs of a rank's log: its records in order, shape (records,), unknown times as -1."""

    first: Ints
    counts: Ints
    values: Mapping[str, NDArray[np.float32]]
    """`COLUMNS`."""


def rank_steps(records: NDArray[np.void], device: str) -> RankSteps:
    """Return the columns of a log's records (`perfkit.records.monitor.STEP_DTYPE`).

    Of records of the same step, the last counts: a run that begins anew numbers its steps again. On a device other than
    the CPU, the device waits for collectives and not the host: the host's waiting is unrelated to it.
    """
    kept = records
    if bool((np.diff(records["step"]) <= 0).any()):
        _, last = np.unique(records["step"][::-1], return_index=True)
        kept = records[len(records) - 1 - last]
    values = {name: kept[name].astype(np.float32) for name in COLUMNS if name != "longest_offset"}
    if not device.startswith("cpu"):
        values["collective_ns"] = np.full(len(kept), UNKNOWN, np.float32)
    values["longest_offset"] = (kept["longest_step"] - kept["step"]).astype(np.float32)
    first, count = kept["step"].astype(np.int64), kept["steps"].astype(np.int64)
    return RankSteps(first, np.minimum(count, np.diff(first, append=first[-1:] + count[-1:])), values)


def align(ranks: Mapping[int, RankSteps], most_cells: int = MOST_CELLS) -> StepTable | None:
    """Return the table of all ranks; None without any record.

    A column of the table begins where every rank that has records before and after has one that begins there.
    """
    logs = {rank: log for rank, log in sorted(ranks.items()) if len(log.first)}
    if not logs:
        return None
    first, count = _columns(list(logs.values()), max(1, most_cells // len(logs)))
    table = {name: np.full((len(logs), len(first)), np.nan, np.float32) for name in COLUMNS}
    for row, log in enumerate(logs.values()):
        _fill(table, row, log, first)
    ends = np.array([log.first[-1] + log.counts[-1] - 1 for log in logs.values()], np.int64)
    return StepTable(list(logs), first, count, ends, table)


def _columns(logs: list[RankSteps], most: int) -> tuple[Ints, Ints]:
    """Return first step and number of steps of the table's columns."""
    end = max(int(log.first[-1] + log.counts[-1]) for log in logs)
    if all(np.array_equal(log.first, logs[0].first) for log in logs):
        first = logs[0].first
    else:
        begins, times = np.unique(np.concatenate([log.first for log in logs]), return_counts=True)
        starts = np.sort([log.first[0] for log in logs])
        ends = np.sort([log.first[-1] + log.counts[-1] for log in logs])
        covering = np.searchsorted(starts, begins, side="right") - np.searchsorted(ends, begins, side="right")
        first = begins[times >= covering]
    if len(first) > most:
        first = first[:: -(-len(first) // most)]
    steps = np.zeros(len(first), np.int64)
    for log in logs:
        at = np.searchsorted(first, log.first, side="right") - 1
        own = np.bincount(at[at >= 0], log.counts[at >= 0], len(first)).astype(np.int64)
        np.maximum(steps, own, out=steps)
    return first, np.minimum(np.maximum(steps, 1), np.diff(first, append=end))


def _fill(table: Mapping[str, Values], row: int, log: RankSteps, first: Ints) -> None:
    """Write a rank's records into its row: means weighted by steps, the longest step, and the kind if it is one."""
    at = np.searchsorted(first, log.first, side="right") - 1
    inside = at >= 0
    at, records = at[inside], np.flatnonzero(inside)
    if not len(at):
        return
    if len(at) == 1 or bool((at[1:] > at[:-1]).all()):
        _copy(table, row, log, records, at)
        table["longest_offset"][row, at] += log.first[records] - first[at]
        return
    begins = np.flatnonzero(np.diff(at, prepend=-1))
    columns = at[begins]
    weights = log.counts[records].astype(np.float64)
    for name in MEANS:
        values = log.values[name][records].astype(np.float64)
        known = np.where(values == UNKNOWN, 0.0, weights)
        sums, totals = np.add.reduceat(values * known, begins), np.add.reduceat(known, begins)
        table[name][row, columns] = np.divide(sums, totals, out=np.full(len(sums), np.nan), where=totals > 0)
    kind = log.values["kind"][records]
    lowest, highest = np.minimum.reduceat(kind, begins), np.maximum.reduceat(kind, begins)
    table["kind"][row, columns] = np.where(lowest == highest, lowest, UNKNOWN)
    longest = log.values["longest_ns"][records]
    most = np.maximum.reduceat(longest, begins)
    table["longest_ns"][row, columns] = most
    offsets = log.first[records] - first[at] + log.values["longest_offset"][records].astype(np.int64)
    is_most = longest == np.repeat(most, np.diff([*begins, len(at)]))
    table["longest_offset"][row, columns] = np.maximum.reduceat(np.where(is_most, offsets, 0), begins)


def _copy(table: Mapping[str, Values], row: int, log: RankSteps, records: Ints, columns: Ints) -> None:
    """Write records of which each has its own column: as most are, this is much faster."""
    for name in COLUMNS:
        values = log.values[name][records]
        if name in MEANS:
            values[values == UNKNOWN] = np.nan
        table[name][row, columns] = values
