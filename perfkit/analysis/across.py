"""What matched collectives tell: who waits, how long a transfer takes, how fast it is (METRICS section 5)."""

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final

import numpy as np

from perfkit.analysis.collectives import Description
from perfkit.analysis.matching import N_TO_N, Matched
from perfkit.model import Across, Efficiency, Finding, RankWait, SharedCollective
from perfkit.trace.intervals import Ints
from perfkit.units import duration

_CAP_MATTERS: Final = 1.01
"""Beyond this ratio of the replay to what was measured, the ranks' timelines do not agree (METRICS section 6)."""
_SKEW: Final = 3.0
"""The first collective's waiting is start-up skew from so many times the others' median on."""


def across(matched: Matched) -> Across:
    """Sum what was matched, by kind of collective and by rank."""
    return Across(
        collectives=sorted(
            _shared(matched), key=lambda row: -row.count * ((row.wait_ns or 0) + (row.transfer_ns or 0))
        ),
        waits=_waits(matched),
        matched=int((matched.collective >= 0).sum()),
        unmatched=int((matched.collective < 0).sum()),
    )


def _waits(matched: Matched) -> list[RankWait]:
    ranks, number = np.unique(matched.rank, return_inverse=True)
    wait, exposed = (np.zeros(len(ranks), np.int64) for _ in range(2))
    np.add.at(wait, number, matched.wait_ns)
    np.add.at(exposed, number, matched.exposed_wait_ns)
    columns = zip(ranks.tolist(), wait.tolist(), exposed.tolist(), strict=True)
    return [RankWait(rank=rank, wait_ns=ns, exposed_wait_ns=exposed_ns) for rank, ns, exposed_ns in columns]


def _shared(matched: Matched) -> Iterator[SharedCollective]:
    rows = np.flatnonzero(matched.collective >= 0)
    rows = rows[np.argsort(matched.kind[rows], kind="stable")]
    cuts = np.flatnonzero(np.diff(matched.kind[rows])) + 1
    for alike in np.split(rows, cuts) if len(rows) else ():
        yield _shared_row(matched, alike)


def _shared_row(matched: Matched, rows: Ints) -> SharedCollective:
    """Sum the matched collectives of one kind."""
    described = matched.kinds[matched.kind[rows[0]]]
    _, first = np.unique(matched.collective[rows], return_index=True)
    splits = described.operator in N_TO_N
    transfer_ns = median(matched.transfer_ns[rows[first]].tolist()) if splits else None
    algbw = described.bytes * 1e9 / transfer_ns if transfer_ns and described.bytes else None
    factor = bus_factor(described)
    return SharedCollective(
        **described._asdict(),
        count=len(first),
        wait_ns=float(matched.wait_ns[rows].mean()) if splits else None,
        transfer_ns=transfer_ns,
        algbw=algbw,
        busbw=algbw * factor if algbw is not None and factor is not None else None,
    )


def bus_factor(described: Description) -> float | None:
    """Return busbw / algbw as nccl-tests has it; None where the group's size is not known."""
    size = described.group_size
    if described.operator in ("broadcast", "reduce", "send", "recv"):
        return 1.0
    if not size:
        return None
    share = (size - 1) / size
    return 2 * share if described.operator == "all_reduce" else share


def across_findings(matched: Matched, efficiency: Efficiency | None) -> Iterator[Finding]:
    """Yield what must be known of the comparison before it is trusted."""
    lost = int((matched.collective < 0).sum())
    if lost:
        message = (
            f"{lost} of {len(matched.rank)} collectives have no counterpart on another rank: they count as transfer"
        )
        yield Finding(code="collectives_unmatched", severity="info", message=message)
    yield from _skew(matched)
    if efficiency and efficiency.replayed_ns > _CAP_MATTERS * efficiency.t_ns:
        message = (
            f"the ranks' timelines do not agree: replayed without transfers the run would take "
            f"{duration(efficiency.replayed_ns)}, longer than it did ({duration(efficiency.t_ns)})"
        )
        yield Finding(code="timelines_disagree", severity="warning", message=message)


def _skew(matched: Matched) -> list[Finding]:
    """Say so where the first collective holds the ranks' start-up skew."""
    waits = _longest_waits(matched)
    if len(waits) < 3 or waits[0] <= max(_SKEW * median(waits[1:]), 1_000_000):
        return []
    message = (
        f"in the first matched collective a rank waits {duration(waits[0])}, in the others "
        f"{duration(median(waits[1:]))} in the median: it holds the skew with which the ranks began to record"
    )
    return [Finding(code="start_skew", severity="info", message=message)]


def _longest_waits(matched: Matched) -> Sequence[int]:
    """Return the longest waiting in each collective that splits, in order."""
    rows = np.flatnonzero(matched.splits)
    if not len(rows):
        return []
    first = np.flatnonzero(np.diff(matched.collective[rows], prepend=-1))
    longest: list[int] = np.maximum.reduceat(matched.wait_ns[rows], first).tolist()
    return longest
