"""Where a series loses efficiency: its steps' ledgers against the step that ideal scaling would have.

The rows of a ledger add up to the mean step, so the differences add up to what is lost (metrics.md section 7).
"""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Final

from perfkit.records.facts import Statement, statement
from perfkit.records.per_run.ledger import LedgerCause
from perfkit.records.run import RunReport
from perfkit.records.scaling import ScalingPart, ScalingPoint
from perfkit.subjects.scaling.series import Group

PLAUSIBLE_EFFICIENCY: Final = 1.1
LEAST_POINTS: Final = 1.0
"""Percentage points that are worth a name: the report gives efficiencies to as much."""
_MOST_NAMED: Final = 2


def parts(group: Group) -> dict[int, list[ScalingPart]]:
    """Return the parts of the mean step by world size, means over repeats; empty unless every run has a ledger."""
    rows = {size: _rows(runs) for size, runs in group.points.items()}
    if not all(rows.values()):
        return {}
    least = min(rows)
    found = {}
    for size, of_size in rows.items():
        whole = sum(of_size.values())
        ideal = least / size if group.kind == "strong" else 1.0
        causes = dict.fromkeys((*of_size, *rows[least]))
        found[size] = [
            ScalingPart(
                cause=cause,
                ranks=_late(group.points[size]) if cause == "late_ranks" else [],
                ns=of_size.get(cause, 0.0),
                lost=100 * (of_size.get(cause, 0.0) - ideal * rows[least].get(cause, 0.0)) / whole,
            )
            for cause in causes
        ]
    return found


def _rows(runs: Sequence[RunReport]) -> Mapping[LedgerCause, float]:
    """Return the rows of the mean ledger of repeats, in ns; empty without all of them."""
    ledgers = [run.ledger for run in runs if run.ledger and run.ledger.step_ns]
    if len(ledgers) != len(runs):
        return {}
    causes = dict.fromkeys(row.cause for ledger in ledgers for row in ledger.rows)
    return {cause: fmean(sum(row.ns for row in one.rows if row.cause == cause) for one in ledgers) for cause in causes}


def _late(runs: Sequence[RunReport]) -> list[int]:
    """Return the late ranks, if they are the same in all runs."""
    rows = [[row for row in run.ledger.rows if row.cause == "late_ranks"] if run.ledger else [] for run in runs]
    named = [sorted({rank for row in late for rank in row.ranks}) for late in rows]
    return named[0] if all(ranks == named[0] for ranks in named) else []


def is_known(points: Sequence[ScalingPoint]) -> bool:
    """Return whether the last point without shared cores shows how a series scales: it may be faster than ideal."""
    counted = [point for point in points[1:] if not point.oversubscribed]
    return bool(counted) and counted[-1].efficiency.value <= PLAUSIBLE_EFFICIENCY


def answer(kind: str, points: Sequence[ScalingPoint]) -> Statement:
    """Return how well the series scales, and to what it loses most; what is no scaling is called what it is."""
    first, *others = points
    counted = [point for point in others if not point.oversubscribed]
    if not counted:
        return statement("scales_not_shown", kind=kind, ranks=others[-1].world_size, shared=others[-1].oversubscribed)
    last = counted[-1]
    known = {"kind": kind, "ranks": last.world_size, "efficiency": last.efficiency.value, "reference": first.world_size}
    if last.efficiency.value > PLAUSIBLE_EFFICIENCY:
        return statement("scales_above_ideal", **known)
    named = _largest(last.parts) if last.efficiency.value < 1 else []
    return statement("scales", lost=[(part.cause, part.ranks, part.lost) for part in named], **known)


def _largest(parts: Sequence[ScalingPart]) -> list[ScalingPart]:
    """Return the parts to which most is lost; together they are no more than what is lost.

    What is gained elsewhere, in steps that were not recorded for example, would else make too much of a cause.
    """
    left = sum(part.lost for part in parts) + LEAST_POINTS
    named = []
    for part in sorted(parts, key=lambda part: -part.lost)[:_MOST_NAMED]:
        if not LEAST_POINTS <= part.lost <= left:
            break
        left -= part.lost
        named.append(part)
    return named
