"""A rank's collectives in compact columns, as input of the cross-rank analysis.

Besides its kind, each collective has the rank's progress when it joined and while it was blocked: the time since the
first window without exposed communication, but with pauses, because others wait for these, too (metrics.md section 6).
Only `ended_ns` is an instant of the rank's own clock, and it is used only to align clocks.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Final

import numpy as np
from msgspec import Struct

from perfkit.engine.breakdown import Activity
from perfkit.engine.communication.collective_metadata import AT_ONCE, CollectiveKey
from perfkit.engine.communication.collectives import Collectives
from perfkit.engine.steps.windows import Steps
from perfkit.trace.intervals import Coverage, Ints, merge

COLUMNS: Final = (
    "kind",
    "step",
    "sequence",
    "duration_ns",
    "exposed_ns",
    "joined_ns",
    "blocked_ns",
    "ended_ns",
)
NO_STEP: Final = -1


class CollectiveCalls(Struct, frozen=True, kw_only=True):
    """The collectives of one trace, in issue order."""

    kinds: list[CollectiveKey]
    columns: bytearray
    """int64, `COLUMNS` concatenated, each of shape (c,). `kind` is an index into `kinds`; `step` the step number, or
    -1; `sequence` the number in the group, or -1; `joined_ns` the rank's progress at its start; `blocked_ns` the
    progress at its end if the rank waits for that, or -1; `ended_ns` its absolute end, by the clock of its host."""
    progress_ns: int
    """The rank's progress at the end of its last window."""

    def column(self, name: str) -> Ints:
        """Return a column by name, shape (c,)."""
        return np.asarray(_rows(self.columns)[COLUMNS.index(name)])


def _rows(columns: bytearray) -> Ints:
    return np.frombuffer(columns, np.int64).reshape(len(COLUMNS), -1)


def collect_calls(collectives: Collectives, activity: Activity, steps: Steps) -> CollectiveCalls:
    """Return the collectives of a trace in issue order."""
    step_number = np.array([NO_STEP if step is None else step for step in steps.number], np.int64)
    both, compute = Coverage(merge(activity.compute, activity.communication)), Coverage(activity.compute)
    begin_ns, end_ns = steps.bounds[:1], steps.bounds[-1]

    def progress(instant: Ints) -> Ints:
        """Return the time from the first window to each instant, without exposed communication: P_r(x)."""
        instant = np.clip(instant, begin_ns, end_ns)
        exposed = (both.until(instant) - both.until(begin_ns)) - (compute.until(instant) - compute.until(begin_ns))
        return np.asarray(instant - begin_ns - exposed)

    order = np.argsort(collectives.issued, kind="stable")
    table = bytearray(len(COLUMNS) * order.nbytes)
    for begin in range(0, len(order), AT_ONCE):
        part = order[begin : begin + AT_ONCE]
        start, end, blocked = collectives.start[part], collectives.end[part], collectives.blocked[part]
        _rows(table)[:, begin : begin + len(part)] = (
            collectives.kind[part],
            step_number[collectives.step[part]],
            collectives.sequence[part],
            end - start,
            collectives.exposed[part],
            progress(start),
            np.where(blocked >= 0, progress(np.maximum(blocked, 0)), -1),
            end,
        )
    return CollectiveCalls(kinds=collectives.kinds, columns=table, progress_ns=int(progress(steps.bounds[-1:])[0]))


def concatenate_cycles(cycles: Sequence[CollectiveCalls]) -> CollectiveCalls:
    """Concatenate the collectives of a rank's cycles, in order; progress continues from one to the next."""
    if len(cycles) == 1:
        return cycles[0]
    kinds = list(dict.fromkeys(kind for cycle in cycles for kind in cycle.kinds))
    before = [0, *accumulate(cycle.progress_ns for cycle in cycles)]
    tables = [_shifted(cycle, kinds, offset) for cycle, offset in zip(cycles, before, strict=False)]
    return CollectiveCalls(kinds=kinds, columns=bytearray(np.hstack(tables)), progress_ns=before[-1])


def _shifted(cycle: CollectiveCalls, kinds: list[CollectiveKey], offset_ns: int) -> Ints:
    number = np.array([kinds.index(kind) for kind in cycle.kinds] or [0], np.int64)
    table = _rows(cycle.columns).copy()
    kind, joined, blocked = (COLUMNS.index(name) for name in ("kind", "joined_ns", "blocked_ns"))
    table[kind] = number[table[kind]]
    table[joined] += offset_ns
    table[blocked] = np.where(table[blocked] >= 0, table[blocked] + offset_ns, -1)
    return table
