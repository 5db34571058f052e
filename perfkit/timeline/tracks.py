"""What is written of one rank: tracks of slices and counters, in whatever format."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from perfkit.trace.intervals import Ints
from perfkit.trace.lanes import assign_lanes


class Track(NamedTuple):
    """Slices of one thread, stream, or of perfkit's own; columns of shape (n,). They may cross."""

    name: str
    start_ns: Ints
    end_ns: Ints
    label: Ints
    """Index into the part's `labels`."""
    category: Ints
    """Index into the part's `categories`."""
    launch: Ints
    """Number of the arrow from a launch to what it launched; 0 where there is none. No two ranks share one."""
    collective: Ints
    """Number of the arrow through a collective on its ranks; 0 where there is none."""


class Counter(NamedTuple):
    """A count of bytes over time; columns of shape (m,)."""

    name: str
    time_ns: Ints
    value: Ints


class RankTracks(NamedTuple):
    """One trace of one rank."""

    place: int
    """Of the rank among those that are merged, from 0."""
    name: str
    """What to call the rank."""
    labels: Sequence[str]
    categories: Sequence[str]
    tracks: list[Track | Counter]
    """In the order in which they are to be seen."""
    arrow_ends: dict[int, tuple[int, int]]
    """Of each arrow through a collective: the first and the last place it touches."""
    out_of_range: int
    """How many events, perfkit's own among them, are left out because their times are off the timeline."""


FIRST_PROCESS: Final = 1_000_000
"""Number of the first rank's process. Threads count from 1: one with its process's number would be its main one."""


class Threads:
    """Numbers the threads that tracks are written as, from 1 in each process, in the order in which they come."""

    def __init__(self) -> None:
        self._numbers: dict[int, dict[str, int]] = {}

    def number(self, place: int, name: str) -> tuple[int, bool]:
        """Return the number of a thread of a rank, and whether it is new."""
        known = self._numbers.setdefault(place, {})
        new = name not in known
        return known.setdefault(name, len(known) + 1), new


class Writer(Protocol):
    """Writes parts to a file."""

    def write(self, part: RankTracks) -> int:
        """Write one part, and return of how many slices; those of one rank follow one another."""

    def close(self) -> None:
        """Write what is left."""


def lanes(track: Track) -> Iterator[tuple[int, Track]]:
    """Yield the slices of a track in as many lanes, from 0, as it takes for none to cross another.

    What crosses more others at once than there are lanes is left out.
    """
    lane = assign_lanes(np.zeros(len(track.start_ns), np.int8), track.start_ns, track.end_ns)
    for number in range(int(lane.max(initial=-1)) + 1):
        yield number, chosen(track, lane == number)


def chosen(track: Track, which: NDArray[np.bool_]) -> Track:
    """Return some of a track's slices."""
    return Track(track.name, *(column[which] for column in track[1:]))


def lane_name(name: str, lane: int) -> str:
    """Return what a lane of a track is called."""
    return f"{name} ({lane + 1})" if lane else name
