"""Summarise matched collectives: waiting per rank, transfer times and bandwidths (metrics.md section 5)."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from perfkit.engine.communication.collective_metadata import CollectiveKey, flagged
from perfkit.engine.communication.message_batches import EXCHANGE, RECEIVE, SEND
from perfkit.engine.ranks.bandwidth import GroupKey, bus_factor, fits, group_key
from perfkit.engine.ranks.delay import RankDelay
from perfkit.engine.ranks.early_ranks import find_early_ranks
from perfkit.engine.ranks.findings import suspect_matches
from perfkit.engine.ranks.last_arrivals import find_last_arrivals
from perfkit.engine.ranks.late_causes import name_causes
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
from perfkit.records.cross_rank import (
    FEWEST_COMPARED_STEPS,
    CrossRankSummary,
    HostClock,
    MatchedCollectiveStat,
    OneOffStraggler,
    RankWait,
)
from perfkit.records.manifest import MeshDimension
from perfkit.records.rank import RankReport
from perfkit.trace.intervals import Ints


class Compared(NamedTuple):
    """What the comparison of ranks has found."""

    summary: CrossRankSummary
    late: Sequence[RankDelay]
    """The delays of its stragglers."""
    single: Sequence[RankDelay]
    """Those of single steps that it lists."""


def summarize_cross_rank(
    matched: MatchedCollectives,
    ranks: Sequence[RankReport],
    clocks: list[HostClock],
    world_size: int | None,
    mesh: Sequence[MeshDimension],
    graphs: Sequence[StepGraph],
) -> Compared:
    """Sum matched collectives by kind and by rank, and find stragglers.

    Args:
        matched: the collectives of all ranks.
        ranks: their reports.
        clocks: the hosts' clocks.
        world_size: as the run's manifest or headers have it; None if they do not.
        mesh: the run's mesh; empty if unknown.
        graphs: of its steps, whose replay tells what late ranks cost; empty if there is none.
    """
    collectives = list(_shared(matched, world_size))
    collectives.sort(key=lambda row: -row.count * ((row.wait_ns or 0) + (row.transfer_ns or 0)))
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
    once = _one_off(of_groups, stage_of, late)
    single = [RankDelay(rank, {one.step: 1.0}) for one in once for rank in (one.rank, *one.with_ranks)]
    gains = None
    if graphs and (late.ranks or once) and not suspect_matches(matched, clocks):
        gains = replayed_gains(graphs, late.delays, single, compared, ranks)
    rows = [replace(row, gain_ns=gains.of_each.get(row.rank)) for row in late.ranks] if gains else late.ranks
    summary = CrossRankSummary(
        collectives=collectives,
        rank_waits=_waits(matched),
        matched=int((matched.collective >= 0).sum()),
        unmatched=int((~matched.alone & (matched.collective < 0)).sum()),
        compared_steps=len(times.steps) if times else 0,
        compared=compared,
        stragglers=name_causes(name_delayed(rows, groups), ranks, stage_of),
        stragglers_gain_ns=gains.of_all if gains and late.ranks else None,
        one_off_stragglers=name_delayed(once, groups),
        one_off_gain_ns=gains.of_single if gains and once else None,
        early_ranks=find_early_ranks(parts[0], late.ranks) if _is_whole(parts, world_size) else [],
        last_arrivals=find_last_arrivals(matched, times, ranks) if too_few and times else None,
        clocks=clocks,
        bandwidth_fits=fits(collectives, _incomplete_groups(matched)),
    )
    return Compared(summary, late.delays, single)


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


def _of_groups(times: OwnTimes, groups: Sequence[list[int]], meetings: Meetings) -> Iterator[OwnTimes]:
    for group, together in zip(groups, steps_together(meetings, groups), strict=True):
        yield times.among(group)._replace(together=together)


def _one_off(of_groups: Sequence[OwnTimes], stage_of: Mapping[int, int], late: Stragglers) -> list[OneOffStraggler]:
    found = [one for times in of_groups for one in find_one_off_stragglers(level_stages(times, stage_of), late)]
    return sorted(found, key=lambda one: -one.lag_ns)[:MOST_ONE_OFF]


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
