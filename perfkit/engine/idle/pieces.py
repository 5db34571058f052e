"""Pieces of idle time, each with one cause, and the texts that name what ran."""

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.steps.annotations import names_without_part
from perfkit.records.per_rank import idle as words
from perfkit.records.per_rank.idle import CAUSES, Cause
from perfkit.trace.events import Events, PythonFrames
from perfkit.trace.intervals import Ints, rows_of

INDEX: Final[Mapping[Cause, int]] = {cause: index for index, cause in enumerate(CAUSES)}
"""Of each cause in `Pieces.cause`."""

FIXED: Final = (
    "between operators",
    "from launch to start",
    "queued behind work of the same stream",
    words.QUEUED_FOR_ANOTHER,
    words.QUEUED_FOR_NOTHING,
    words.IN_GRAPH,
    "between two steps",
    words.NO_LAUNCH,
    words.NOTHING_RECORDED,
    words.SILENT_THREAD,
)
"""Details that are no name of the trace."""
(
    BETWEEN_OPERATORS,
    LAUNCH_LATENCY,
    SAME_STREAM,
    OTHER_STREAM,
    QUEUED_FOR_NOTHING,
    IN_GRAPH,
    BETWEEN_STEPS,
    NO_LAUNCH,
    NOTHING_RECORDED,
    SILENT_THREAD,
) = range(len(FIXED))
"""Places in `FIXED`."""


class Pieces(NamedTuple):
    """Disjoint pieces of idle time; columns of shape (p,)."""

    start: Ints
    end: Ints
    cause: NDArray[np.int8]
    detail: Ints
    """Number of a text."""
    context: Ints
    """Number of a text, or -1."""
    annotation: Ints
    """Number of the name of the innermost annotation of the host, or -1."""


_NONE: Final = np.zeros(0, np.int64)
EMPTY: Final = Pieces(_NONE, _NONE, np.zeros(0, np.int8), _NONE, _NONE, _NONE)


def merge_neighbours(found: Pieces, gap_start: Ints) -> Pieces:
    """Join neighbouring pieces that differ in time only, within a gap.

    Args:
        found: pieces in order of time.
        gap_start: starts of the gaps that they lie in, ascending.
    """
    if not len(found.start):
        return found
    place = np.minimum(np.searchsorted(gap_start, found.start), len(gap_start) - 1)
    fresh = gap_start[place] == found.start
    fresh[1:] |= found.start[1:] != found.end[:-1]
    for column in found[2:]:
        fresh[1:] |= column[1:] != column[:-1]
    fresh[0] = True
    last = np.append(fresh[1:], True)
    return rows_of(found, fresh)._replace(end=found.end[last])


def fixed_pieces(start: Ints, end: Ints, cause: int, detail: Ints) -> Pieces:
    """Return pieces of one cause, without context."""
    none = np.full(len(start), -1, np.int64)
    return Pieces(start, end, np.full(len(start), cause, np.int8), detail, none, none)


class Texts:
    """Numbers of texts: `FIXED`, then the names of events, then those of Python frames.

    Annotations that differ only in their micro-batch or layer share a number: that of one of them, whose text is then
    the name without it (`PP:1F`, `FSDP::all_gather`).
    """

    def __init__(self, events: Events, frames: PythonFrames) -> None:
        self.events = events
        self.frames = frames
        self._shared, self._renamed = _share_names(events)

    def of_event_name(self, name: Ints) -> Ints:
        """Return the number of each event's name; -1 stays -1."""
        return np.where(name >= 0, self._shared[name] + len(FIXED), -1)

    def of_frame_name(self, name: Ints) -> Ints:
        """Return the number of each frame's name; -1 stays -1."""
        return np.where(name >= 0, name + len(FIXED) + len(self.events.names), -1)

    def is_function(self, number: Ints) -> NDArray[np.bool_]:
        """Return whether each number is that of a Python frame."""
        return np.asarray(number >= len(FIXED) + len(self.events.names))

    def text(self, number: int) -> str | None:
        """Return the text of a number; None for -1."""
        if number < 0:
            return None
        if number in self._renamed:
            return self._renamed[number]
        for texts in (FIXED, self.events.names, self.frames.names):
            if number < len(texts):
                return texts[number]
            number -= len(texts)
        raise IndexError(number)

    def all_of(self, numbers: Ints) -> list[str]:
        """Return the texts of numbers, ascending and none of them -1."""
        found: list[str] = []
        rest = numbers
        for texts in (FIXED, self.events.names, self.frames.names):
            own = rest[: np.searchsorted(rest, len(texts))]
            found += map(texts.__getitem__, own.tolist())
            rest = rest[len(own) :] - len(texts)
        for place in np.flatnonzero(np.isin(numbers, list(self._renamed))).tolist():
            found[place] = self._renamed[int(numbers[place])]
        return found

    def __len__(self) -> int:
        return len(FIXED) + len(self.events.names) + len(self.frames.names)


def _share_names(events: Events) -> tuple[Ints, dict[int, str]]:
    """Return the index that stands for each name of an event, and the texts of the numbers that stand for several."""
    shared = np.arange(len(events.names) + 1)  # the last one is where -1 points to
    without = names_without_part(events)
    first: dict[str, int] = {}
    if wanted := set(without.values()):
        first = {name: key for key, name in enumerate(events.names) if name in wanted}
    for key, name in without.items():
        shared[key] = first.setdefault(name, key)
    return shared, {key + len(FIXED): name for name, key in first.items()}
