"""Choose the steps of a trace whose graph is built."""

from typing import Final

import numpy as np

from perfkit.engine.steps.windows import Steps
from perfkit.trace.events import Events

MOST_EVENTS: Final = 100_000
"""Events of a trace whose graph is built: building takes about a third as long as all other analysis of them."""
_MOST_OF_A_RUN: Final = 4_000_000
"""Events of all ranks, whose graphs are in memory together: about 100 bytes for each."""


def most_graph_events(world_size: int | None) -> int:
    """Return how many events of each of a run's traces the graph has at most."""
    return min(MOST_EVENTS, _MOST_OF_A_RUN // max(world_size or 1, 1))


def select_steps(events: Events, steps: Steps, most_events: int) -> tuple[int, int]:
    """Return the range `[first, last)` of steps around the middle one that together have at most so many events.

    All steps if they are few enough, otherwise an odd number of them: so the ranges of ranks with a little more or less
    events contain each other. Of steps with pauses between them only the longest row without any counts, the first of
    equals, because the graph has no pauses; if all have pauses, that is the first step.
    """
    begin, end = _without_pauses(steps)
    before = np.searchsorted(np.sort(events.start_ns), steps.bounds)
    if before[end] - before[begin] <= most_events:
        return begin, end
    middle = (begin + end) // 2
    first, last = middle, middle + 1
    while first > begin and last < end and before[last + 1] - before[first - 1] <= most_events:
        first, last = first - 1, last + 1
    return first, last


def _without_pauses(steps: Steps) -> tuple[int, int]:
    """Return the range of the longest row of steps without pauses."""
    count = len(steps.number)
    if not steps.pauses.found:
        return 0, count
    cuts = np.concatenate(([-1], np.flatnonzero(steps.paused_ns), [count]))
    row = int(np.argmax(np.diff(cuts)))
    first, last = int(cuts[row]) + 1, int(cuts[row + 1])
    return (first, last) if last > first else (0, 1)
