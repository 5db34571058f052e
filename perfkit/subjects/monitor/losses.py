"""Losses that are not a number."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.records.common import Observation
from perfkit.records.monitor import LOSS_GIVEN


class BadLosses(NamedTuple):
    """The steps of a rank whose loss is not a number, of those with a known one."""

    first_step: int
    steps: int
    lasting: bool
    """Whether `first_step` begins a stretch up to the last known loss; otherwise a number follows at some step."""
    rolled_up: bool
    """Whether steps are logged together with others, whose mean is then not a number either."""
    or_before: bool
    """Whether it may have begun before `first_step`: nothing is known of the loss of the step before."""


def find_bad_losses(records: NDArray[np.void]) -> BadLosses | None:
    """Return the steps of a rank's log whose loss is not a number; None if all known losses are numbers."""
    rows = np.flatnonzero(records["flags"] & LOSS_GIVEN)
    known = records[rows]
    bad = ~np.isfinite(known["loss"])
    if not bad.any():
        return None
    lasting = bool(bad[-1])
    if lasting:
        bad[: np.flatnonzero(np.append(True, ~bad))[-1]] = False  # what is followed by a number
    found, row = known[bad], int(rows[bad][0])
    is_unknown = row - 1 not in rows if row else records["step"][0] > 0
    return BadLosses(
        first_step=int(found["step"][0]),
        steps=int(found["steps"].sum()),
        lasting=lasting,
        rolled_up=bool((found["steps"] > 1).any()),
        or_before=lasting and bool(is_unknown),
    )


def not_a_number(found: Mapping[int, BadLosses], ranks: int) -> Observation:
    """Return since when losses are not a number, or in how many steps; those up to the last known one count first.

    Args:
        found: What `find_bad_losses` has found, by rank, of at least one.
        ranks: Ranks with a log.
    """
    chosen = {rank: one for rank, one in found.items() if one.lasting} or found
    first = min(chosen.values(), key=lambda one: one.first_step)
    who = [rank for rank, one in chosen.items() if one.first_step == first.first_step]
    return Observation("loss_not_a_number", first._asdict() | {"ranks": [] if len(who) == ranks else who})
