"""What must be known of a comparison of ranks before it is trusted, and what stands out in it."""

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final

import numpy as np

from perfkit.analysis.cross_rank.clock_alignment import align_ranks
from perfkit.analysis.cross_rank.matching import MatchedCollectives
from perfkit.analysis.cross_rank.stragglers import slow_in, straggler_sentence
from perfkit.schema.common import Finding, Severity
from perfkit.schema.cross_rank import CrossRankSummary, HostClock
from perfkit.schema.run import Efficiency
from perfkit.util.formatting import duration

_CAP_MATTERS: Final = 1.01
"""Beyond this ratio of the replay to what was measured, the ranks' timelines do not agree (metrics.md section 6)."""
_APART_NS: Final = 1_000_000
"""Network time keeps hosts within about so much of each other; traces further apart do not fit side by side."""
_SKEW: Final = 3.0
"""The first collective's waiting is start-up skew from so many times the others' median on."""


def cross_rank_findings(
    matched: MatchedCollectives, found: CrossRankSummary, efficiency: Efficiency | None
) -> Iterator[Finding]:
    """Yield what must be known of the comparison before it is trusted."""
    if found.straggler:
        severity: Severity = "warning" if found.straggler.delays_others else "info"
        message = straggler_sentence(found.straggler)
        yield Finding(code="straggler", severity=severity, message=message, rank=found.straggler.rank)
    for late in found.one_off_stragglers:
        message = (
            f"the other ranks waited {duration(late.lag_ns)} for it in step {late.step} ({slow_in(late)}); "
            "in the others by far less"
        )
        yield Finding(code="one_off_straggler", severity="info", message=message, rank=late.rank)
    yield from _partial(matched)
    yield from _apart(matched, found.clocks)
    yield from _clocks(found.clocks)
    lost = found.unmatched
    if lost:
        message = (
            f"{lost} of {found.matched + lost} collectives have no counterpart on another rank: they count as transfer"
        )
        yield Finding(code="collectives_unmatched", severity="info", message=message)
    yield from _skew(matched)
    if efficiency and efficiency.replayed_ns > _CAP_MATTERS * efficiency.t_ns:
        message = (
            f"the ranks' timelines do not agree: replayed without transfers the run would take "
            f"{duration(efficiency.replayed_ns)}, longer than it did ({duration(efficiency.t_ns)})"
        )
        yield Finding(code="timelines_disagree", severity="warning", message=message)


def _partial(matched: MatchedCollectives) -> list[Finding]:
    """Say what cannot be known where ranks of a group are missing."""
    rows = np.flatnonzero(matched.splits)
    size = np.array([kind.group_size or 0 for kind in matched.kinds] or [0], np.int64)[matched.kind[rows]]
    here = np.unique(matched.collective[rows], return_counts=True)[1]
    whole = size[np.flatnonzero(np.diff(matched.collective[rows], prepend=-1))]
    short = here < whole
    if not short.any():
        return []
    message = (
        f"{int(short.sum())} of {len(here)} matched collectives are of groups of up to {int(whole[short].max())} "
        f"ranks, of which at most {int(here[short].max())} are here: what all of these waited for the others counts as "
        "transfer, so transfers are upper and bandwidths lower bounds, and one that is not here may be the last"
    )
    return [Finding(code="groups_incomplete", severity="info", message=message)]


def _apart(matched: MatchedCollectives, clocks: Sequence[HostClock]) -> list[Finding]:
    """Say so where matches by order contradict the clocks: nobody leaves an n-to-n collective before the last joins."""
    rows = np.flatnonzero(matched.splits)
    if not len(rows):
        return []
    end_ns = align_ranks(clocks, matched.rank[rows], matched.ended_ns[rows])
    first = np.flatnonzero(np.diff(matched.collective[rows], prepend=-1))
    first_left = np.minimum.reduceat(end_ns, first)
    last_joined = np.maximum.reduceat(end_ns - matched.duration_ns[rows], first)
    unsure_ns = min(3 * max((clock.residual_ns or 0 for clock in clocks), default=0), _APART_NS)
    apart = int((last_joined - first_left > unsure_ns).sum())
    if not apart:
        return []
    message = (
        f"{apart} of {len(first)} matched collectives were over on one rank before another joined: the traces do not "
        "hold the same collectives in the same order, and waiting is not to be trusted here"
    )
    return [Finding(code="suspect_matches", severity="warning", message=message)]


def _clocks(clocks: Sequence[HostClock]) -> list[Finding]:
    """Say how far the hosts' clocks are apart, where one would see it in a timeline."""
    apart = [clock for clock in clocks if clock.offset_ns and abs(clock.offset_ns) > _APART_NS]
    if not apart:
        return []
    most = max(apart, key=lambda clock: abs(clock.offset_ns or 0))
    where = f"of host {most.host}" if most.host else f"of rank {most.ranks[0]}"
    ahead = "ahead of" if (most.offset_ns or 0) < 0 else "behind"
    message = (
        f"{len(apart)} of {len(clocks)} clocks differ from that of rank {clocks[0].ranks[0]}: the one {where} is "
        f"{duration(abs(most.offset_ns or 0))} {ahead} it (± {duration(most.residual_ns)}); no figure compares clocks"
    )
    return [Finding(code="clocks_differ", severity="info", message=message)]


def _skew(matched: MatchedCollectives) -> list[Finding]:
    """Say so where the first collective holds the ranks' start-up skew."""
    waits = _longest_waits(matched)
    if len(waits) < 3 or waits[0] <= max(_SKEW * median(waits[1:]), 1_000_000):
        return []
    message = (
        f"in the first matched collective a rank waits {duration(waits[0])}, in the others "
        f"{duration(median(waits[1:]))} in the median: it holds the skew with which the ranks began to record"
    )
    return [Finding(code="start_skew", severity="info", message=message)]


def _longest_waits(matched: MatchedCollectives) -> Sequence[int]:
    """Return the longest waiting in each collective that splits, in order."""
    rows = np.flatnonzero(matched.splits)
    if not len(rows):
        return []
    first = np.flatnonzero(np.diff(matched.collective[rows], prepend=-1))
    longest: list[int] = np.maximum.reduceat(matched.wait_ns[rows], first).tolist()
    return longest
