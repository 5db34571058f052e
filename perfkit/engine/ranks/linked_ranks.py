"""Which ranks can wait for each other: only those that collectives link, directly or through others."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from msgspec.structs import replace

from perfkit.engine.ranks.delay import QUARTER
from perfkit.engine.ranks.lateness import Bools
from perfkit.engine.ranks.matching import MatchedCollectives
from perfkit.records.cross_rank import OneOffStraggler, Straggler
from perfkit.trace.intervals import Ints


class Meetings(NamedTuple):
    """Which ranks collectives and messages link in which steps: the lowest of each with each other, once a step."""

    ranks: list[int]
    """The ranks that are compared, in order."""
    steps: int
    """Number of steps that they are compared in."""
    lowest: Ints
    """Place of the lowest rank, shape (m,)."""
    other: Ints
    """Place of the other rank."""
    step: Ints
    """Place of the step."""
    unknown: Bools
    """Whether there is something in a step that has a counterpart, but none was found, shape (steps,)."""


def find_meetings(matched: MatchedCollectives, ranks: Sequence[int], steps: Sequence[int]) -> Meetings:
    """Return which ranks meet.

    Args:
        matched: the collectives, sends and receives of all ranks.
        ranks: the ranks that are compared.
        steps: the steps that they are compared in, in order.
    """
    known, numbers = np.sort(np.array(ranks, np.int64)), np.array(steps, np.int64)
    there = np.isin(matched.step, numbers) & np.isin(matched.rank, known)
    rows, first = matched.opening(np.flatnonzero(there & (matched.collective >= 0)))
    rank = np.searchsorted(known, matched.rank[rows])
    lowest = np.repeat(np.minimum.reduceat(rank, first), np.diff(np.append(first, len(rows))))
    # One number for each pair and step: thousands of ranks have millions of collectives.
    pair = lowest * len(known) + rank
    met = np.unique((pair * len(steps) + np.searchsorted(numbers, matched.step[rows]))[lowest != rank])
    unknown = np.isin(numbers, matched.step[(matched.collective < 0) & ~matched.alone])
    pair, step = np.divmod(met, len(steps))
    return Meetings(known.tolist(), len(steps), *np.divmod(pair, len(known)), step, unknown)


def linked_ranks(matched: MatchedCollectives, meetings: Meetings, world_size: int | None) -> list[list[int]]:
    """Return the ranks in groups that no collective links in a quarter of the steps; one group if that is not known.

    Args:
        matched: the collectives, sends and receives of all ranks.
        meetings: those of the ranks that are compared.
        world_size: number of ranks; None if unknown: ranks without a trace may link others.
    """
    ranks = meetings.ranks
    if len(ranks) != world_size or _may_link(matched):
        return [ranks]
    groups = connected(ranks, _meet_usually(meetings))
    # Ranks that meet every few steps only (local SGD) wait for each other all the same.
    return groups if all(len(group) > 1 for group in groups) else [ranks]


def _may_link(matched: MatchedCollectives) -> bool:
    """Return whether there is a kind of collective of which nothing is matched, so that it may link any ranks."""
    matches, others = (
        np.bincount(matched.kind[which], minlength=len(matched.kinds)) > 0
        for which in (matched.collective >= 0, ~matched.alone)
    )
    return bool((others & ~matches).any())


def _meet_usually(meetings: Meetings) -> Iterator[tuple[int, int]]:
    """Yield pairs of ranks that often take part in one collective, among them those that link each group."""
    ranks = np.array(meetings.ranks)
    pairs, count = np.unique(meetings.lowest * len(ranks) + meetings.other, return_counts=True)
    # A log of all ranks now and then links nobody, but gradients that are reduced in every fourth step do.
    lowest, other = np.divmod(pairs[count >= QUARTER * meetings.steps], len(ranks))
    yield from zip(ranks[lowest].tolist(), ranks[other].tolist(), strict=True)


def steps_together(meetings: Meetings, groups: Sequence[Sequence[int]]) -> list[Bools]:
    """Return for each group in which steps collectives or messages link all its ranks, or may, each of shape (steps,).

    They may do so through ranks of other groups: who waits for these waits for whom these wait for.

    Args:
        meetings: those of all ranks.
        groups: groups of ranks that are seldom linked with each other.
    """
    lines = _lines(meetings).reshape(meetings.steps, len(meetings.ranks))
    own = [lines[:, np.searchsorted(meetings.ranks, group)] for group in groups]
    return [meetings.unknown | (line == line[:, :1]).all(axis=1) for line in own]


def _lines(meetings: Meetings) -> Ints:
    """Return a number for each rank in each step, the same for all ranks that are linked in it; shape (steps * ranks,).

    Of two numbers that are linked the larger becomes the smaller, until all that are linked have the smallest: all
    steps at once, of which there may be thousands.
    """
    line = np.arange(meetings.steps * len(meetings.ranks))
    start = meetings.step * len(meetings.ranks)
    one, other = start + meetings.lowest, start + meetings.other
    while True:
        first, second = line[one], line[other]
        apart = first != second
        if not apart.any():
            return line
        np.minimum.at(line, np.maximum(first, second)[apart], np.minimum(first, second)[apart])
        while (line[line] != line).any():
            line = line[line]


Late = TypeVar("Late", Straggler, OneOffStraggler)


def name_delayed(late: Iterable[Late], groups: Sequence[list[int]]) -> list[Late]:
    """Return late ranks, each with the ranks that it can delay, if these are not all others."""
    if len(groups) < 2:
        return list(late)
    of_rank = {rank: group for group in groups for rank in group}

    def delayed(late: Late) -> list[int]:
        late_too = (late.rank, *(late.with_ranks if isinstance(late, OneOffStraggler) else ()))
        return [rank for rank in of_rank[late.rank] if rank not in late_too]

    return [replace(one, delays=delayed(one)) for one in late]


def connected(ranks: Iterable[int], pairs: Iterable[tuple[int, int | None]]) -> list[list[int]]:
    """Return the ranks in groups of those that pairs connect, each in order."""
    line_of = {rank: [rank] for rank in ranks}
    for one, other in pairs:
        if other is None:
            continue
        line_of.setdefault(one, [one])
        line_of.setdefault(other, [other])
        if line_of[one] is not line_of[other]:
            joined = line_of[one] + line_of[other]
            line_of.update(dict.fromkeys(joined, joined))
    return sorted(sorted(line) for line in {id(line): line for line in line_of.values()}.values())
