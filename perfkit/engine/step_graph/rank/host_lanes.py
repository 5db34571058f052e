"""Threads of the host as lanes: cut where something else depends on them, or they on something else."""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.trace.intervals import EMPTY, Ints, Segments, Union, complement, concatenated, distinct, union

_NONE: Final = -1


@dataclass(kw_only=True)
class HostLane:
    """One thread from `begin` to `end`: between two cuts it works, or waits for what ends at the second.

    First cuts are collected, then `freeze` numbers the nodes: one per interval between two cuts. A wait is one node.
    """

    thread: int
    begin: int
    end: int
    segments: Segments
    """What it ran; owners are rows of the innermost operators or calls."""
    cuts: list[Ints] = field(default_factory=list)
    marks: list[Ints] = field(default_factory=list)
    waits: list[Union] = field(default_factory=list)
    waiting: Union = EMPTY
    """Since when and until when it waits, each sorted."""
    bounds: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    first_node: int = _NONE

    @property
    def gaps(self) -> Union:
        """Maximal spans in which no operator or call runs."""
        return complement(union(self.segments.start, self.segments.end), self.begin, self.end)

    def contains(self, instants: Ints) -> NDArray[np.bool_]:
        """Return which instants the lane covers, its begin and end included."""
        return np.asarray((instants >= self.begin) & (instants <= self.end))

    def cut(self, instants: Ints) -> None:
        """Cut the lane at instants at which the thread does something; those outside are ignored."""
        self.cuts.append(instants[self.contains(instants)])

    def mark(self, instants: Ints) -> None:
        """Cut the lane at instants at which the thread may be waiting; those outside are ignored."""
        self.marks.append(instants[self.contains(instants)])

    def wait(self, since: Ints, until: Ints) -> None:
        """Have the lane wait until instants, each for something that ends then, at least from another instant on."""
        inside = (until > self.begin) & (until <= self.end)
        self.waits.append(Union(np.maximum(since[inside], self.begin), until[inside]))

    def freeze(self, first_node: int) -> int:
        """Number the nodes from `first_node`, and return the next free number.

        A wait begins after the last that the thread does before it ends.
        """
        known = distinct(np.concatenate((np.array([self.begin], np.int64), *self.cuts)))
        since, until = concatenated([EMPTY, *self.waits])
        since = np.maximum(since, known[np.maximum(np.searchsorted(known, until) - 1, 0)])
        self.waiting = Union(np.sort(since), np.sort(until))
        bounds = distinct(np.concatenate((known, np.array([self.end]), since, until, *self.marks)))
        begun, ended = np.searchsorted(self.waiting.start, bounds), np.searchsorted(self.waiting.end, bounds, "right")
        self.bounds = bounds[begun <= ended]
        self.first_node = first_node
        return first_node + max(0, len(self.bounds) - 1)

    @property
    def spans(self) -> tuple[Ints, Ints]:
        """Start and end of each node: both the end, where the lane waits."""
        start, end = self.bounds[:-1], self.bounds[1:]
        begun, ended = (np.searchsorted(instants, start, "right") for instants in self.waiting)
        return np.where(begun > ended, end, start), end

    def ending_at(self, instants: Ints) -> Ints:
        """Return the node that ends at each cut; the origin (0) for the lane's begin."""
        place = np.searchsorted(self.bounds, instants) - 1
        return np.where(place >= 0, self.first_node + place, 0)


class Pieces(NamedTuple):
    """A lane's time, cut at its nodes' bounds and where what runs changes; columns of shape (p,)."""

    start: Ints
    end: Ints
    node: Ints
    row: Ints
    """Row of what runs; -1 between operators and calls."""


def pieces_of(lane: HostLane, further_cuts: Ints) -> Pieces:
    """Return the pieces of a lane's nodes; its waits have none.

    Args:
        further_cuts: instants at which to cut as well.
    """
    seg = lane.segments
    edges = np.concatenate((seg.start, seg.end, lane.bounds, further_cuts))
    edges = distinct(edges[(edges >= lane.begin) & (edges <= lane.end)])
    start, end = edges[:-1], edges[1:]
    last = np.searchsorted(seg.start, start, side="right") - 1
    row = np.full(len(start), _NONE, np.int64)
    inside = last >= 0
    inside[inside] = seg.end[last[inside]] > start[inside]
    row[inside] = seg.owner[last[inside]]
    place = np.searchsorted(lane.bounds, start, side="right") - 1
    node_start, node_end = lane.spans
    works = (node_end > node_start)[place]
    return Pieces(start[works], end[works], lane.first_node + place[works], row[works])
