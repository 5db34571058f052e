"""Data-quality and anomaly findings of the cross-rank analysis."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from perfkit.engine.ranks.clock_alignment import align_ranks
from perfkit.engine.ranks.matching import MatchedCollectives, may_lack_ranks
from perfkit.records.aggregate import MAJORITY
from perfkit.records.common import Observation
from perfkit.records.cross_rank import FEWEST_COMPARED_STEPS, CrossRankSummary, HostClock
from perfkit.records.run import Efficiency
from perfkit.trace.intervals import Ints

_MAX_REPLAY_RATIO: Final = 1.01
"""Ratio of replayed to measured time from which the ranks' timelines are inconsistent (metrics.md section 6)."""
_CLOCK_TOLERANCE_NS: Final = 1_000_000
"""NTP keeps hosts within about this much of each other; traces further apart do not line up in a timeline."""
_MIN_SKEW_RATIO: Final = 3.0
"""Ratio of the first collective's waiting to the usual one from which it is start-up skew."""


def cross_rank_findings(
    matched: MatchedCollectives,
    summary: CrossRankSummary,
    efficiency: Efficiency | None,
    begun_ns: Mapping[int, int],
    *,
    partial: bool = False,
    profiler_ns: int = 0,
    busy: bool = False,
) -> Iterator[Observation]:
    """Yield the stragglers, and whatever limits the trust in the cross-rank comparison.

    Args:
        matched: the collectives of all ranks.
        summary: what their comparison has found.
        efficiency: of the run; None if unknown.
        begun_ns: when the first window of each rank begins, by its own clock.
        partial: whether ranks of the run have no trace, or may have none.
        profiler_ns: what the profiler adds to a step; 0 if that is not measurable.
        busy: whether other processes kept the cores busy: a rank that is late may have waited for a core.
    """
    if not busy:
        yield from _late_and_early(summary, profiler_ns, partial)
    for slow in () if busy else summary.slow_transfers:
        yield Observation("slow_transfers", {"slow": slow})
    yield from _incomplete_groups(matched, partial)
    yield from suspect_matches(matched, summary.clocks)
    yield from _clock_offsets(summary.clocks)
    yield from _unmatched(matched)
    yield from _start_skew(matched, begun_ns)
    if efficiency and efficiency.replayed_ns > _MAX_REPLAY_RATIO * efficiency.t_ns:
        values = {"replayed_ns": efficiency.replayed_ns, "measured_ns": efficiency.t_ns}
        yield Observation("timelines_disagree", values)


def _late_and_early(summary: CrossRankSummary, profiler_ns: int, partial: bool) -> Iterator[Observation]:
    yield from _stragglers(summary, profiler_ns, partial)
    if early := summary.early_ranks:
        rank = early[0].rank if len(early) == 1 else None
        yield Observation("early_ranks", {"early": early, "besides_late": bool(summary.stragglers)}, rank=rank)
    for late in summary.one_off_stragglers:
        yield Observation("one_off_straggler", {"late": late}, rank=None if late.with_ranks else late.rank)


def _unmatched(matched: MatchedCollectives) -> Iterator[Observation]:
    """Yield what no match was found for."""
    lost, paired = ~matched.alone & (matched.collective < 0), matched.paired
    if calls := int((lost & ~paired).sum()):
        yield Observation("collectives_unmatched", {"calls": calls, "of": int((~matched.alone & ~paired).sum())})
    if calls := int((lost & paired).sum()):
        yield Observation("collectives_unmatched", {"calls": calls, "of": int(paired.sum())}, "messages")


def _stragglers(summary: CrossRankSummary, profiler_ns: int, partial: bool) -> Iterator[Observation]:
    """Yield one finding about all late ranks; a warning if their delays cost time."""
    late = summary.stragglers
    if not late:
        return
    gain_ns = summary.stragglers_gain_ns
    yield Observation(
        "straggler",
        {"stragglers": late, "gain_ns": gain_ns, "profiler_ns": profiler_ns, "partial": partial},
        severity="warning" if gain_ns else "info",
        rank=late[0].rank if len(late) == 1 else None,
    )


def _incomplete_groups(matched: MatchedCollectives, partial: bool) -> Iterator[Observation]:
    """Yield what process groups include ranks without a trace, or may because their size is unknown."""
    rows, first = matched.split_rows
    short = may_lack_ranks(matched, partial)[rows[first]]
    size = np.array([kind.group_size or 0 for kind in matched.kinds] or [0], np.int64)[matched.kind[rows[first]]]
    present = np.diff(np.append(first, len(rows)))
    stated, unknown = short & (size > 0), short & (size == 0)
    if stated.any():
        largest, most = int(size[stated].max()), int(present[stated].max())
        values = {"short": int(stated.sum()), "of": len(first), "size": largest, "present": most}
        yield Observation("groups_incomplete", values)
    if unknown.any():
        yield Observation("groups_incomplete", {"short": int(unknown.sum()), "of": len(first)}, "unknown_size")


def suspect_matches(matched: MatchedCollectives, clocks: Sequence[HostClock]) -> list[Observation]:
    """Return a finding if matches contradict the clocks: no rank leaves an n-to-n collective before the last joins."""
    rows, first = matched.split_rows
    if not len(rows):
        return []
    end_ns = align_ranks(clocks, matched.rank[rows], matched.ended_ns[rows])
    first_left = np.minimum.reduceat(end_ns, first)
    last_joined = np.maximum.reduceat(end_ns - matched.duration_ns[rows], first)
    unsure_ns = min(3 * max((clock.residual_ns or 0 for clock in clocks), default=0), _CLOCK_TOLERANCE_NS)
    apart = int((last_joined - first_left > unsure_ns).sum())
    return [Observation("suspect_matches", {"apart": apart, "of": len(first)})] if apart else []


def _clock_offsets(clocks: Sequence[HostClock]) -> list[Observation]:
    """Return a finding if the hosts' clocks are so far apart that a timeline would show it."""
    apart = [clock for clock in clocks if clock.offset_ns and abs(clock.offset_ns) > _CLOCK_TOLERANCE_NS]
    if not apart:
        return []
    most = max(apart, key=lambda clock: abs(clock.offset_ns or 0))
    values = {"apart": len(apart), "clocks": len(clocks), "first_rank": clocks[0].ranks[0], "most": most}
    return [Observation("clocks_differ", values)]


def _start_skew(matched: MatchedCollectives, begun_ns: Mapping[int, int]) -> list[Observation]:
    """Return a finding if ranks wait in the first collective as they do in no later step, or in no other collective.

    A rank that is late in each step makes the others wait in each step, too, often in one collective of several. One
    that takes longer in its first window is late as well, but has not begun to record later.
    """
    waits, steps = _longest_waits(matched)
    if len(waits) < FEWEST_COMPARED_STEPS:
        return []
    _, number = np.unique(steps, return_inverse=True)
    by_step = np.zeros(int(number.max()) + 1, np.int64)
    np.maximum.at(by_step, number, waits)
    later = np.delete(by_step, number[0])
    usual_ns = float(np.median(later if len(later) else waits[1:]))
    if (
        waits[0] <= max(_MIN_SKEW_RATIO * usual_ns, _CLOCK_TOLERANCE_NS)
        or _skew_ns(matched, begun_ns) < MAJORITY * waits[0]
    ):
        return []
    return [Observation("start_skew", {"first_ns": int(waits[0]), "usual_ns": usual_ns, "has_later": bool(len(later))})]


def _skew_ns(matched: MatchedCollectives, begun_ns: Mapping[int, int]) -> int:
    """Return how far apart the ranks of the first collective began to record: all leave it together."""
    rows = np.flatnonzero(matched.splits)
    rows = rows[matched.collective[rows] == matched.collective[rows[0]]]
    begun = np.array([begun_ns[rank] for rank in matched.rank[rows].tolist()], np.int64)
    return int(np.ptp(matched.ended_ns[rows] - begun))


def _longest_waits(matched: MatchedCollectives) -> tuple[Ints, Ints]:
    """Return the longest waiting time in each n-to-n collective, in order, and the step of each."""
    rows, first = matched.split_rows
    if not len(rows):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    return np.maximum.reduceat(matched.wait_ns[rows], first), matched.step[rows][first]
