"""Summarise matched collectives: waiting per rank, transfer times and bandwidths (metrics.md section 5)."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import median

import numpy as np
from msgspec.structs import replace

from perfkit.engine.communication.collective_metadata import CollectiveKey, flagged
from perfkit.engine.communication.message_batches import EXCHANGE, RECEIVE, SEND
from perfkit.engine.ranks.bandwidth import GroupKey, bus_factor, fits, group_key
from perfkit.engine.ranks.early_ranks import find_early_ranks
from perfkit.engine.ranks.findings import suspect_matches
from perfkit.engine.ranks.last_arrivals import find_last_arrivals
from perfkit.engine.ranks.late_code import name_code
from perfkit.engine.ranks.late_loading import name_load_causes
from perfkit.engine.ranks.late_phase import name_phases
from perfkit.engine.ranks.late_work import name_hosts, name_work
from perfkit.engine.ranks.lateness import OwnTimes, own_times
from perfkit.engine.ranks.linked_ranks import Meetings, find_meetings, linked_ranks, name_delayed, steps_together
from perfkit.engine.ranks.matching import MatchedCollectives, may_lack_ranks, numbered
from perfkit.engine.ranks.stages import comparable_parts, find_stages, level_stages
from perfkit.engine.ranks.stragglers import (
    MOST_ONE_OFF,
    Stragglers,
    find_all_stragglers,
    find_one_off_stragglers,
)
from perfkit.engine.step_graph.graph import StepGraph
from perfkit.engine.whatif.late_ranks import replayed_gains
from perfkit.engine.whatif.unexplained import least_saving_ns
from perfkit.records.cross_rank import (
    FEWEST_COMPARED_STEPS,
    CrossRankSummary,
    HostClock,
    MatchedCollectiveStat,
    OneOffStraggler,
    RankWait,
    Straggler,
    all_ranks,
)
from perfkit.records.manifest import MeshDimension
from perfkit.records.rank import RankReport
from perfkit.trace.intervals import Ints


def summarize_cross_rank(
    matched: MatchedCollectives,
    ranks: Sequence[RankReport],
    clocks: list[HostClock],
    world_size: int | None = None,
    mesh: Sequence[MeshDimension] = (),
    graphs: Sequence[StepGraph] = (),
) -> CrossRankSummary:
    """Sum matched collectives by kind and by rank, and find stragglers.

    Args:
        matched: the collectives of all ranks.
        ranks: their reports.
        clocks: the hosts' clocks.
        world_size: as the run's manifest or headers have it; None if they do not.
        mesh: the run's mesh; empty if unknown.
        graphs: of its steps, whose replay tells what late ranks cost; empty if there is none.
    """
    rows = list(_shared(matched, world_size))
    rows.sort(key=lambda row: -row.count * ((row.wait_ns or 0) + (row.transfer_ns or 0)))
    comparable = len({rank.device for rank in ranks}) == 1
    times = _with_waits(own_times(ranks), matched) if comparable else None
    if times is not None and ranks[0].device != "cpu":
        times = _with_transfers(times, matched, world_size)
    stage_of = find_stages(mesh, matched.kinds)
    too_few = times is not None and len(times.steps) < FEWEST_COMPARED_STEPS and not stage_of
    meetings = find_meetings(matched, times.ranks, times.steps) if times else None
    groups = linked_ranks(matched, meetings, world_size) if meetings else []
    of_groups = list(_of_groups(times, groups, meetings)) if times and meetings else []
    parts = [part for one in of_groups for part in comparable_parts(one, stage_of)]
    late = find_all_stragglers(parts)
    compared = [part.ranks for part in parts] if len(parts) > 1 else []
    if graphs and late.ranks and not suspect_matches(matched, clocks):
        late = _replayed(late, graphs, ranks, compared)
    once = _one_off(of_groups, stage_of, late)
    return CrossRankSummary(
        collectives=rows,
        rank_waits=_waits(matched),
        matched=int((matched.collective >= 0).sum()),
        unmatched=int((~matched.alone & (matched.collective < 0)).sum()),
        compared_steps=len(times.steps) if times else 0,
        compared=compared,
        stragglers=_with_causes(name_delayed(late.ranks, groups), ranks, stage_of),
        stragglers_gain_ns=late.gain_ns,
        one_off_stragglers=name_delayed(once[:MOST_ONE_OFF], groups),
        one_off_gain_ns=replayed_gains(graphs, all_ranks(once[:MOST_ONE_OFF]), compared).of_all
        if graphs and once and not late.gain_ns and not suspect_matches(matched, clocks)
        else None,
        one_off_steps=len(once),
        early_ranks=find_early_ranks(parts[0], late.ranks) if _is_whole(parts, world_size) else [],
        last_arrivals=find_last_arrivals(matched, times, ranks) if too_few and times else None,
        clocks=clocks,
        bandwidth_fits=fits(rows, _incomplete_groups(matched)),
    )


def _with_causes(late: list[Straggler], ranks: Sequence[RankReport], stage_of: Mapping[int, int]) -> list[Straggler]:
    late = name_work(name_hosts(late, ranks), ranks, stage_of)
    return name_code(name_load_causes(name_phases(late, ranks, stage_of), ranks), ranks)


def _with_waits(times: OwnTimes | None, matched: MatchedCollectives) -> OwnTimes | None:
    """Return own times with the exposed waits, and what receives of known waiting take exposed without waiting.

    Not sends: a program may let one stay open until the end of the step, while it waits for something else.
    """
    if times is None:
        return None
    received = np.flatnonzero(matched.paired & matched.transfer_known)
    messages_ns = _by_step(times, matched, received, matched.exposed_ns - matched.exposed_wait_ns)
    waits_ns = _by_step(times, matched, np.flatnonzero(matched.splits), matched.exposed_wait_ns)
    return times._replace(messages_ns=messages_ns if len(received) else None, waits_ns=waits_ns)


def _with_transfers(times: OwnTimes, matched: MatchedCollectives, world_size: int | None) -> OwnTimes:
    """Return own times with the longest possible waiting, and with what is surely none.

    Waiting is known in matched collectives of which all ranks have traces; all other exposed communication may be
    waiting. Not for ranks without a device: a busy machine records the ends of gloo's collectives late, and their waits
    are too short. Of a transfer counts what is exposed longer than on the member on which it is least: what all members
    expose is the network's, and no delay of a rank.
    """
    known = np.flatnonzero(matched.splits & ~may_lack_ranks(matched, partial=len(times.ranks) != world_size))
    exposed_ns = _by_step(times, matched, known, matched.exposed_ns)
    in_others_ns = times.of("communication") - exposed_ns
    transfer_ns = matched.exposed_ns - matched.exposed_wait_ns
    least_ns = np.full(int(matched.collective.max(initial=-1)) + 2, np.iinfo(np.int64).max)
    np.minimum.at(least_ns, matched.collective[known], transfer_ns[known])
    return times._replace(
        may_wait_ns=np.asarray(in_others_ns + _by_step(times, matched, known, matched.wait_ns)),
        transfers_ns=_by_step(times, matched, known, transfer_ns - least_ns[matched.collective]),
    )


def _by_step(times: OwnTimes, matched: MatchedCollectives, rows: Ints, values_ns: Ints) -> Ints:
    """Return the sums of some collectives' values by rank and step, shape (ranks, steps)."""
    places, numbers = ({key: place for place, key in enumerate(keys)} for keys in (times.ranks, times.steps))
    place = np.array([places.get(rank, -1) for rank in matched.rank[rows].tolist()], np.int64)
    number = np.array([numbers.get(step, -1) for step in matched.step[rows].tolist()], np.int64)
    known = (place >= 0) & (number >= 0)
    sums = np.zeros((len(times.ranks), len(times.steps)), np.int64)
    np.add.at(sums, (place[known], number[known]), values_ns[rows[known]])
    return sums


def _is_whole(parts: Sequence[OwnTimes], *sizes: int | None) -> bool:
    """Return whether ranks wait for each other only: not for other stages of a pipeline, or ranks without a trace."""
    return len(parts) == 1 and all(len(parts[0].ranks) == size for size in sizes)


def _replayed(
    late: Stragglers, graphs: Sequence[StepGraph], ranks: Sequence[RankReport], compared: Sequence[Sequence[int]]
) -> Stragglers:
    """Return late ranks with what the replay tells that they cost; not that it is nothing, if it lacks what waits."""
    numbers = [row.rank for row in late.ranks]
    gains = replayed_gains(graphs, numbers, compared)
    lacks = not set(numbers) <= set(graphs[0].ranks) or least_saving_ns(graphs[0], ranks, len(ranks))
    if not gains.of_all and lacks:
        return late
    return Stragglers([replace(row, gain_ns=gains.of_each.get(row.rank)) for row in late.ranks], gains.of_all)


def _of_groups(times: OwnTimes, groups: Sequence[list[int]], meetings: Meetings) -> Iterator[OwnTimes]:
    for group, together in zip(groups, steps_together(meetings, groups), strict=True):
        yield times.among(group)._replace(together=together)


def _one_off(of_groups: Sequence[OwnTimes], stage_of: Mapping[int, int], late: Stragglers) -> list[OneOffStraggler]:
    found = [one for times in of_groups for one in find_one_off_stragglers(level_stages(times, stage_of), late)]
    return sorted(found, key=lambda one: -one.lag_ns)


def _incomplete_groups(matched: MatchedCollectives) -> set[GroupKey]:
    """Return the groups of known size of which a matched collective lacks ranks."""
    lacking = np.unique(matched.kind[may_lack_ranks(matched, partial=False)])
    return {group_key(matched.kinds[kind]) for kind in lacking.tolist()}


def _waits(matched: MatchedCollectives) -> list[RankWait]:
    ranks, number = np.unique(matched.rank, return_inverse=True)
    columns = (matched.wait_ns, matched.exposed_wait_ns, matched.transfer_ns)
    sums = np.zeros((len(columns), len(ranks)), np.int64)
    for total, column in zip(sums, columns, strict=True):
        np.add.at(total, number, column)
    return [
        RankWait(rank=rank, wait_ns=wait_ns, exposed_wait_ns=exposed_ns, transfer_ns=transfer_ns)
        for rank, wait_ns, exposed_ns, transfer_ns in zip(ranks.tolist(), *sums.tolist(), strict=True)
    ]


def _shared(matched: MatchedCollectives, world_size: int | None) -> Iterator[MatchedCollectiveStat]:
    rows = np.flatnonzero(matched.collective >= 0)
    rows = rows[np.lexsort((matched.rank[rows], matched.collective[rows]))]
    # Described by the lowest rank: in an all_to_all sizes may differ between ranks.
    first = np.flatnonzero(np.diff(matched.collective[rows], prepend=-1))
    members = np.diff(np.append(first, len(rows)))
    kinds = [_as_one(kind) for kind in matched.kinds]
    keys = [(*kind.as_columns().values(), kind is not own) for kind, own in zip(kinds, matched.kinds, strict=True)]
    described = matched.kind[rows[first]]
    # A group of unknown size is the world if all its ranks take part.
    is_world = flagged(kinds, described, lambda one: one.group_size is None)
    is_world &= members == (world_size or -1)
    kind = np.repeat(2 * numbered(keys)[described] + is_world, members)
    by = np.argsort(kind, kind="stable")
    whole, cuts = np.repeat(is_world, members)[by], np.flatnonzero(np.diff(kind[by])) + 1
    for part, world in zip(np.split(rows[by], cuts), np.split(whole, cuts), strict=True) if len(rows) else ():
        one = kinds[matched.kind[part[0]]]
        yield _shared_row(matched, part, one._replace(group_size=world_size) if world[0] else one)


def _as_one(kind: CollectiveKey) -> CollectiveKey:
    """Return what a matched collective is shown as: a send and its receive are one."""
    return kind._replace(operator=EXCHANGE) if kind.operator in (SEND, RECEIVE) else kind


def _shared_row(matched: MatchedCollectives, rows: Ints, described: CollectiveKey) -> MatchedCollectiveStat:
    """Sum the matched collectives of one kind."""
    count = len(np.unique(matched.collective[rows]))
    known = rows[matched.transfer_known[rows]]
    _, first = np.unique(matched.collective[known], return_index=True)
    # Of a message, one of the two ends waits.
    wait_ns = matched.wait_ns[rows if described.operator == EXCHANGE else known]
    transfer_ns = median(matched.transfer_ns[known[first]].tolist()) if len(known) else None
    algbw = described.bytes * 1e9 / transfer_ns if transfer_ns and described.bytes else None
    factor = bus_factor(described)
    return MatchedCollectiveStat(
        **described.as_columns(),
        count=count,
        wait_ns=float(wait_ns.sum()) / len(known) if len(known) else None,
        transfer_ns=transfer_ns,
        algbw=algbw,
        busbw=algbw * factor if algbw is not None and factor is not None else None,
    )
