"""Whether a rank has left a collective out: what it issued at the same point of its earlier steps.

Of two ranks that wait for each other in different groups, one has left a collective out, or they use the groups in a
different order. The last collective that a rank issued before the one it waits in marks the point; if the one that the
others wait in followed that every time before, the rank has left it out.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from perfkit.diagnosis.places import program_frame
from perfkit.schema.hang.rank_state import IssuedCollective

_FEWEST: Final = 2
"""Earlier occasions that are needed."""

_Site = tuple[str, str, str, int]
"""Group, operator, and where the program issues it."""


def times_before(calls: Sequence[IssuedCollective], waits_in: IssuedCollective, expected: IssuedCollective) -> int:
    """Return how often a rank issued `expected` where it now waits in another collective; 0 if not always.

    Args:
        calls: All collectives of the rank.
        waits_in: The one of them that it waits in.
        expected: The one that the other ranks wait in.
    """
    ordered = sorted((call for call in calls if call.ns <= waits_in.ns), key=lambda call: call.ns)
    sites = [_site(call) for call in ordered]
    if len(sites) < 2 or None in (sites[-2], _site(expected)):
        return 0
    followers = [after for before, after in pairwise(sites[:-1]) if before == sites[-2]]
    always = len(followers) >= _FEWEST and set(followers) == {_site(expected)}
    return len(followers) if always else 0


def _site(call: IssuedCollective) -> _Site | None:
    frame = program_frame(call.frames)
    return None if frame is None else (call.group, call.op, frame.file, frame.line)
