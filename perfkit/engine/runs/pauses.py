"""Sum a run's checkpoints, evaluations and logging, and what other ranks wait for them (metrics.md section 23)."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from perfkit.engine.communication.collective_calls import CollectiveCalls
from perfkit.engine.ranks.clock_alignment import align_ranks
from perfkit.engine.steps.pauses import TracedPause
from perfkit.records.cross_rank import HostClock
from perfkit.records.facts import Facts, fact
from perfkit.records.manifest import RunManifest
from perfkit.records.per_run.pauses import PAUSE_PHASES, EarlierPauses, PausePhase, RankPauses, RecordedPause
from perfkit.records.rank import RankReport
from perfkit.trace.intervals import Ints, Union, difference, measure, union

_Listed = tuple[Sequence[RecordedPause], Sequence[EarlierPauses]]
"""What a rank's record has: its last pauses, and the sums of those before."""


def summarize_pauses(
    traced: Mapping[int | None, Sequence[TracedPause]],
    calls: Mapping[int, CollectiveCalls],
    clocks: Sequence[HostClock],
    manifest: RunManifest | None,
) -> list[RankPauses]:
    """Return a row for each phase and rank, in this order; what is between the same two steps counts once.

    Args:
        manifest: the run's, which has the pauses outside of recorded steps, too; None for foreign traces.
    """
    records = manifest.ranks if manifest else ()
    listed: dict[int | None, _Listed] = {
        one.rank: (one.pauses, one.earlier_pauses) for one in records if one.pauses or one.earlier_pauses
    }
    # A capture has the pauses of the run so far, and the steps from the one before the first recorded on.
    before = manifest.capture.first_step - 1 if manifest and manifest.capture else 0
    steps: dict[int | None, int] = {one.rank: before + len(one.step_wall_ns) for one in records}
    waits = _Waits(traced, calls, clocks)
    ranks = sorted({*traced, *listed}, key=lambda rank: -1 if rank is None else rank)
    return [
        row
        for phase in PAUSE_PHASES
        for rank in ranks
        if (row := _row(phase, rank, traced.get(rank, ()), listed.get(rank, ((), ())), waits, steps.get(rank)))
    ]


def _row(
    phase: PausePhase,
    rank: int | None,
    traced: Sequence[TracedPause],
    listed: "_Listed",
    waits: "_Waits",
    steps: int | None,
) -> RankPauses | None:
    seen = [one for one in traced if one.phase == phase]
    noted = [one for one in listed[0] if one.phase == phase]
    earlier = [one for one in listed[1] if one.phase == phase]
    together: dict[int, list[RecordedPause | TracedPause]] = defaultdict(list)
    for pause in noted:
        together[pause.step].append(pause)
    for found in () if noted or earlier else seen:
        together[found.window_ns].append(found)
    lengths = [sum(one.end_ns - one.begin_ns for one in several) for several in together.values()]
    if not lengths and not earlier:
        return None
    sizes = [*(one.bytes for one in noted), *(one.bytes for one in earlier)]
    known = [size for size in sizes if size is not None]
    recorded = [one for one in seen if one.step_ns]
    called = max((one for one in noted if one.caller), key=lambda one: one.end_ns - one.begin_ns, default=None)
    return RankPauses(
        phase=phase,
        rank=rank,
        count=len(lengths) + sum(one.count for one in earlier),
        total_ns=sum(lengths) + sum(one.total_ns for one in earlier),
        max_ns=max([*lengths, *(one.max_ns for one in earlier)]),
        bytes=sum(known) if known else None,
        asynchronous=sum(
            all(isinstance(one, RecordedPause) and one.asynchronous for one in several) for several in together.values()
        )
        + sum(one.asynchronous for one in earlier),
        steps=steps if noted or earlier else None,
        caller=called.caller if called else None,
        recorded=len({one.window_ns for one in recorded}),
        recorded_ns=sum(one.step_ns for one in recorded),
        waited_ns=waits.for_pauses(rank, recorded) if rank is not None else None,
    )


class _Waits:
    """What the other ranks wait for one that pauses."""

    def __init__(
        self,
        traced: Mapping[int | None, Sequence[TracedPause]],
        calls: Mapping[int, CollectiveCalls],
        clocks: Sequence[HostClock],
    ) -> None:
        self._clocks = clocks
        self._unknown = {rank for clock in clocks if clock.offset_ns is None for rank in clock.ranks}
        self._calls = calls
        self._waiting: dict[int, Union] = {}
        if any(traced.values()) and len(calls) > 1:
            self._waiting = {rank: self._exposed(rank, own, traced.get(rank, ())) for rank, own in calls.items()}

    def for_pauses(self, rank: int, pauses: Sequence[TracedPause]) -> int | None:
        """Return how long the rank that waits most waits for each pause, in sum; None if unknown.

        The others go on until they need the rank: they wait for a part of the pause, or all of it, once it has ended.
        """
        others = [other for other in self._waiting if other != rank and other not in self._unknown]
        if not others or rank in self._unknown or not pauses:
            return None
        start, end = self._aligned(rank, [one.begin_ns for one in pauses], [one.end_ns for one in pauses])
        (until,) = self._aligned(rank, self._caught_up_ns(rank, [one.end_ns for one in pauses]))
        during = np.stack([measure(self._waiting[other], start, end) for other in others])
        usual = np.array([[_usual_ns(self._calls[other])] for other in others])
        whole = np.stack([measure(self._waiting[other], start, until) for other in others]) - usual
        return int(np.maximum(during, np.minimum(whole, end - start)).max(axis=0).sum())

    def _caught_up_ns(self, rank: int, ended_ns: Sequence[int]) -> list[int]:
        """Return the end of the collectives of the step in which a rank, after each pause, first meets the others."""
        ends, steps = self._calls[rank].column("ended_ns"), self._calls[rank].column("step")
        if not len(ends):
            return list(ended_ns)
        _, number = np.unique(steps, return_inverse=True)
        last_ns = np.full(int(number.max()) + 1, ends.min())
        np.maximum.at(last_ns, number, ends)
        order = np.argsort(ends, kind="stable")
        following = np.searchsorted(ends[order], ended_ns, side="right")
        met_ns = last_ns[number[order[np.minimum(following, len(ends) - 1)]]]
        return list(np.where(following < len(ends), met_ns, ended_ns).tolist())

    def _aligned(self, rank: int, *columns: Sequence[int]) -> tuple[Ints, ...]:
        """Return times of a rank by the reference clock."""
        ranks = np.full(len(columns[0]), rank)
        return tuple(align_ranks(self._clocks, ranks, np.array(times, np.int64)) for times in columns)

    def _exposed(self, rank: int, calls: CollectiveCalls, pauses: Sequence[TracedPause]) -> Union:
        """Return when a rank was in collectives that none of its own work overlaps, by the reference clock."""
        exposed = calls.column("exposed_ns")
        # Of a partly hidden collective the exposed part comes last: computation went on until then.
        ended = align_ranks(self._clocks, np.full(len(exposed), rank), calls.column("ended_ns").copy())
        waiting = union(ended - exposed, ended)
        if not pauses:
            return waiting
        begun, over = self._aligned(rank, [one.begin_ns for one in pauses], [one.end_ns for one in pauses])
        return difference(waiting, union(begun, over))


def _usual_ns(calls: CollectiveCalls) -> int:
    """Return the exposed communication of a rank in the median of the steps in which it has any."""
    step, number = np.unique(calls.column("step"), return_inverse=True)
    exposed = np.bincount(number, weights=calls.column("exposed_ns"), minlength=len(step))
    return int(np.median(exposed)) if len(exposed) else 0


def called_by(row: RankPauses) -> Facts:
    """Return the function that pauses; empty if unknown."""
    return (fact("called_by", caller=row.caller),) if row.caller else ()


class PauseCost(NamedTuple):
    """What the pauses of one phase on one rank take."""

    row: RankPauses
    pauses: int
    steps: int
    total_ns: int
    share: float
    """Share of the time of these steps and of the pauses."""


def costliest(rows: Iterable[RankPauses], ranks: Sequence[RankReport]) -> PauseCost | None:
    """Return the pauses of one phase and rank that take the largest share of the time; None without any."""
    costs = (cost for row in rows if (cost := _cost(row, ranks)))
    return max(costs, key=lambda cost: cost.share, default=None)


def _cost(row: RankPauses, ranks: Sequence[RankReport]) -> PauseCost | None:
    """Return what the pauses take: in the whole run, if it listed them, else in the recorded steps.

    None if there are too few to tell how often there is one.
    """
    steps = [step for rank in ranks if rank.rank == row.rank for step in rank.steps]
    if not steps:
        return None
    wall_ns = sum(step.wall_ns for step in steps)
    if row.steps and row.count > 1:
        whole_ns = row.total_ns + wall_ns * row.steps / len(steps)
        return PauseCost(row, row.count, row.steps, row.total_ns, row.total_ns / whole_ns)
    if row.recorded < 2:
        return None
    whole_ns = wall_ns + sum(step.paused_ns for step in steps)
    return PauseCost(row, row.recorded, len(steps), row.recorded_ns, row.recorded_ns / whole_ns if whole_ns else 0.0)
