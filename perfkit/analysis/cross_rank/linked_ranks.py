"""Which ranks can wait for each other: only those that collectives link, directly or through others."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeVar

import numpy as np
from msgspec.structs import replace

from perfkit.analysis.cross_rank.lateness import Bools
from perfkit.analysis.cross_rank.matching import MatchedCollectives
from perfkit.schema.cross_rank import OneOffStraggler, Straggler
from perfkit.trace.intervals import Ints

_USUAL: Final = 0.25
"""Share of the steps in which two ranks must meet: a log or a checkpoint of all ranks now and then links nobody, but
gradients that are reduced in every fourth step do. A late rank is one for a quarter of whose delay the others wait."""


def linked_ranks(
    matched: MatchedCollectives, ranks: Sequence[int], steps: Sequence[int], world_size: int | None
) -> list[list[int]]:
    """Return the ranks in groups that no collective links in a quarter of the steps; one group if that is not known.

    Args:
        matched: the collectives, sends and receives of all ranks.
        ranks: the ranks that are compared.
        steps: the steps that they are compared in.
        world_size: number of ranks; None if unknown: ranks without a trace may link others.
    """
    if len(ranks) != world_size or _may_link(matched):
        return [sorted(ranks)]
    groups = connected(ranks, _meet_usually(matched, steps))
    # Ranks that meet every few steps only (local SGD) wait for each other all the same.
    return groups if all(len(group) > 1 for group in groups) else [sorted(ranks)]


def _may_link(matched: MatchedCollectives) -> bool:
    """Return whether there is a kind of collective of which nothing is matched, so that it may link any ranks."""
    known = set(matched.kind[matched.collective >= 0].tolist())
    return bool(set(matched.kind[~matched.alone].tolist()) - known)


def steps_together(matched: MatchedCollectives, groups: Sequence[Sequence[int]], steps: Sequence[int]) -> list[Bools]:
    """Return for each group in which steps collectives or messages link all its ranks, or may, each of shape (steps,).

    Args:
        matched: those of all ranks.
        groups: groups of ranks that nothing links with each other.
        steps: the steps, in order.
    """
    unknown = np.isin(np.array(steps), np.unique(matched.step[(matched.collective < 0) & ~matched.alone]))
    first, second, number = _meetings(matched, steps)
    return [unknown | _linked_in(group, first, second, number, len(steps)) for group in groups]


def _linked_in(group: Sequence[int], first: Ints, second: Ints, number: Ints, steps: int) -> Bools:
    """Return in which of so many steps pairs of ranks, each of a step by its number, link a group, shape (steps,)."""
    own, linked = np.flatnonzero(np.isin(first, np.array(group))), np.zeros(steps, np.bool_)
    own = own[np.argsort(number[own], kind="stable")]
    pairs, number = np.stack([first[own], second[own]], axis=1), number[own]
    alike: dict[bytes, bool] = {}
    for met in np.split(np.arange(len(number)), np.flatnonzero(np.diff(number)) + 1) if len(number) else ():
        key = pairs[met].tobytes()
        if key not in alike:
            alike[key] = len(connected(group, map(tuple, pairs[met].tolist()))) == 1
        linked[number[met[0]]] = alike[key]
    return linked


def _meet_usually(matched: MatchedCollectives, steps: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield pairs of ranks that often take part in one collective, among them those that link each group."""
    first, second, _ = _meetings(matched, steps)
    pairs, count = np.unique(np.stack([first, second], axis=1), axis=0, return_counts=True)
    yield from map(tuple, pairs[count >= _USUAL * len(steps)].tolist())


def _meetings(matched: MatchedCollectives, steps: Sequence[int]) -> tuple[Ints, Ints, Ints]:
    """Return the lowest rank and each rank of what links them, and the place of the step, each once."""
    rows = np.flatnonzero((matched.collective >= 0) & np.isin(matched.step, np.array(steps)))
    rows = rows[np.argsort(matched.collective[rows], kind="stable")]
    rank, first = matched.rank[rows], np.flatnonzero(np.diff(matched.collective[rows], prepend=-1))
    lowest = np.repeat(np.minimum.reduceat(rank, first), np.diff(np.append(first, len(rows))))
    # One number for each pair and step: thousands of ranks have millions of collectives.
    ranks, number = int(rank.max(initial=0)) + 1, np.searchsorted(np.sort(steps), matched.step[rows])
    meetings = np.unique((lowest * ranks + rank) * len(steps) + number)
    return meetings // len(steps) // ranks, meetings // len(steps) % ranks, meetings % len(steps)


Late = TypeVar("Late", Straggler, OneOffStraggler)


def name_delayed(late: Iterable[Late], groups: Sequence[list[int]]) -> list[Late]:
    """Return late ranks, each with the ranks that it can delay, if these are not all others."""
    if len(groups) < 2:
        return list(late)
    of_rank = {rank: group for group in groups for rank in group}
    return [replace(one, delays=[rank for rank in of_rank[one.rank] if rank not in _late_with(one)]) for one in late]


def _late_with(one: Straggler | OneOffStraggler) -> set[int]:
    return {one.rank, *(one.with_ranks if isinstance(one, OneOffStraggler) else ())}


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
