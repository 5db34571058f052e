"""Brings the step logs of a run's ranks together in one table, also where they were rolled up differently."""

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.records.monitor import UNKNOWN
from perfkit.subjects.monitor.table import Ints, StepTable, Values

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
