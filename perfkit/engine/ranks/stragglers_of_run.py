"""The late ranks of a run: those of each stage of its pipelines, without the delays that their bubbles absorb."""

from collections.abc import Sequence, Set

from msgspec.structs import replace

from perfkit.engine.ranks.lateness import OwnTimes
from perfkit.engine.ranks.stragglers import Stragglers, find_stragglers
from perfkit.records.cross_rank import Straggler
from perfkit.records.per_run.pipeline import Pipeline


def find_all_stragglers(parts: Sequence[OwnTimes], pipelines: Sequence[Pipeline] = ()) -> Stragglers:
    """Return the stragglers of a run, each found among the ranks that it can be compared with.

    Args:
        parts: own times of the ranks, those of each stage of a pipeline apart. Delays of several pipelines hide each
            other, so fixing all is counted as gaining no more than fixing those of one.
        pipelines: those of the run, whose bubbles have room for a part of a delay.
    """
    found = [find_stragglers(part) for part in parts]
    late = {row.rank for one in found for row in one.ranks}
    found = [_less_absorbed(one, late, pipelines) for one in found]
    rows = sorted((row for one in found for row in one.ranks), key=lambda row: (-row.lag_ns, row.rank))
    gain_ns = max((one.gain_ns for one in found), default=0)
    return Stragglers(rows, max(gain_ns, _one_after_another_ns(parts, rows, pipelines)))


def _one_after_another_ns(parts: Sequence[OwnTimes], late: Sequence[Straggler], pipelines: Sequence[Pipeline]) -> int:
    """Return what late ranks of one pipeline cost together, per step, as far as each rank on time communicates so long.

    A micro-batch goes through all of them. The bubble of pipelines on time, by the replay, is no waiting for them.
    """
    own_ns = {row.rank: row.gain_ns for row in late}
    together = [[own_ns[row.rank] for row in one.ranks if row.rank in own_ns] for one in pipelines]
    bubble_ns = _bubbles_on_time_ns(pipelines, own_ns.keys())
    waits_ns = [
        float(mean_ns) - bubble_ns.get(rank, 0.0)
        for part in parts
        for rank, mean_ns in zip(part.ranks, part.of("communication").mean(axis=1), strict=True)
        if rank not in own_ns
    ]
    several = max((sum(gains) for gains in together if len(gains) > 1), default=0)
    return max(0, round(min([several, *waits_ns])))


def _bubbles_on_time_ns(pipelines: Sequence[Pipeline], late: Set[int]) -> dict[int, float]:
    """Return the bubble per step, by replay, of each rank in a pipeline that has no late rank."""
    return {
        row.rank: (row.ideal_ns + row.imbalance_ns) / one.steps
        for one in pipelines
        if late.isdisjoint(row.rank for row in one.ranks)
        for row in one.ranks
        if row.ideal_ns is not None and row.imbalance_ns is not None
    }


def _less_absorbed(found: Stragglers, late: Set[int], pipelines: Sequence[Pipeline]) -> Stragglers:
    """Return the stragglers of a stage with gains without what their own bubbles absorb: that delays nobody."""
    absorbed_ns = {row.rank: _absorbed_ns(row.rank, late, pipelines) for row in found.ranks}
    if not any(absorbed_ns.values()):
        return found
    rows = [replace(row, gain_ns=max(0, row.gain_ns - absorbed_ns[row.rank])) for row in found.ranks]
    return Stragglers(rows, max(0, found.gain_ns - min(absorbed_ns.values())))


def _absorbed_ns(rank: int, late: Set[int], pipelines: Sequence[Pipeline]) -> int:
    """Return by how much a rank's bubble is shorter, per step, than the replay gives those on time at its stage.

    What those are measured to wait is no measure: they may wait for the late rank. 0 where each pipeline has a late
    rank, which makes bubbles longer.
    """
    own = next(((row, one.steps) for one in pipelines for row in one.ranks if row.rank == rank), None)
    if own is None:
        return 0
    stage = {row.rank for one in pipelines for row in one.ranks if row.stages == own[0].stages}
    replayed_ns = [ns for other, ns in _bubbles_on_time_ns(pipelines, late).items() if other in stage]
    return max(0, round(min(replayed_ns, default=0.0) - own[0].bubble_ns / own[1]))
