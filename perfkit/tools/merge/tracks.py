"""Tracks of one rank, slices and counters, independent of the output format, and the order and names of ranks."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from perfkit.trace.intervals import Ints
from perfkit.trace.lanes import assign_lanes


class Track(NamedTuple):
    """Slices of one thread or stream, or perfkit's own; columns of shape (n,). They may overlap without nesting."""

    name: str
    start_ns: Ints
    end_ns: Ints
    label: Ints
    """Index into `RankTracks.labels`."""
    category: Ints
    """Index into `RankTracks.categories`."""
    launch: Ints
    """Number of the arrow from a launch to its kernel, 0 for none; unique across ranks."""
    collective: Ints
    """Number of the arrow through a collective on its ranks, 0 for none."""
    argument: Ints
    """Index into `RankTracks.labels` of what viewers show of a slice besides its name; -1 for nothing."""
    argument_name: str = ""
    """What it is called."""


class Counter(NamedTuple):
    """A count of bytes over time; columns of shape (m,)."""

    name: str
    time_ns: Ints
    value: Ints


class RankTracks(NamedTuple):
    """One trace of one rank."""

    place: int
    """Index of the rank among the merged ones, from 0."""
    name: str
    labels: Sequence[str]
    categories: Sequence[str]
    tracks: list[Track | Counter]
    """In display order."""
    arrow_ends: dict[int, tuple[int, int]]
    """First and last place of each arrow through a collective."""
    out_of_range: int
    """Number of events (perfkit's own included) that are skipped because their times are outside the timeline."""


FIRST_PROCESS: Final = 1_000_000
"""Process id of the first rank. Thread ids count from 1: one equal to its process id would be the main thread."""


class Threads:
    """Assigns thread ids to tracks, from 1 in each process, in order of appearance."""

    def __init__(self) -> None:
        self._numbers: dict[int, dict[str, int]] = {}

    def number(self, place: int, name: str) -> tuple[int, bool]:
        """Return the id of a thread of a rank, and whether it is new."""
        ids = self._numbers.setdefault(place, {})
        new = name not in ids
        return ids.setdefault(name, len(ids) + 1), new


def lanes(track: Track) -> Iterator[tuple[int, Track]]:
    """Split the slices of a track into lanes, from 0, on each of which they nest or are disjoint.

    Slices that need more lanes than allowed are skipped.
    """
    columns: dict[str, Any] = {
        name: column for name, column in track._asdict().items() if isinstance(column, np.ndarray)
    }
    lane = assign_lanes(np.zeros(len(track.start_ns), np.int8), track.start_ns, track.end_ns)
    for number in range(int(lane.max(initial=-1)) + 1):
        own = {name: column[lane == number] for name, column in columns.items()}
        yield number, track._replace(**own)


def lane_name(name: str, lane: int) -> str:
    return f"{name} ({lane + 1})" if lane else name


_INNERMOST: Final = ("pp", "tp")
"""Dimensions that vary fastest down the timeline: the stages of a pipeline below each other, and in each the ranks that
share its tensors."""


_MOST_DIMENSIONS: Final = 16
"""A mesh with more is damage, and its product a number of any length."""


def coordinate(rank: int, mesh: Mapping[str, int]) -> dict[str, int]:
    """Return a rank's position in each dimension that has several, in the order of the timeline; empty if unknown."""
    sizes = list(mesh.values())
    if not 0 < len(sizes) <= _MOST_DIMENSIONS or any(size < 1 for size in sizes) or not 0 <= rank < math.prod(sizes):
        return {}
    found: dict[str, int] = {}
    for name, size in reversed(list(mesh.items())):
        rank, found[name] = divmod(rank, size)
    outer = [name for name in mesh if name not in _INNERMOST]
    return {name: found[name] for name in (*outer, *_INNERMOST) if mesh.get(name, 1) > 1}


def rank_name(rank: int, mesh: Mapping[str, int]) -> str:
    """Return the display name of a rank: `rank 5`, or with its coordinate `dp0 pp1 tp1 (rank 5)`.

    One of data-parallel ranks alone is its number.
    """
    found = coordinate(rank, mesh)
    if set(found) <= {"dp"}:
        return f"rank {rank}"
    return f"{' '.join(f'{name}{position}' for name, position in found.items())} (rank {rank})"
