"""Which ranks are last in a step, by how much, and in what: what delays that are not in every step are found by."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from perfkit.analysis.cross_rank.lateness import COLUMN, OWN, Bools, Floats, OwnTimes, excess, waited_ns
from perfkit.schema.common import Category
from perfkit.trace.intervals import Ints


class LastRanks(NamedTuple):
    """The ranks that each step was waiting for, by their own time."""

    place: Ints
    """Index of the last rank, shape (steps,)."""
    among: Bools
    """Whether a rank is one of those that are late in a step, shape (ranks, steps)."""
    lag_ns: Floats
    """By how much all of them are later than all others, as far as these wait, shape (steps,)."""


def last_ranks(times: OwnTimes) -> LastRanks:
    """Return in each step the ranks above the largest gap between own times: half of all, or fewer."""
    own, waited = times.own_ns, waited_ns(times)
    ranks, steps = own.shape
    order = np.argsort(-own, axis=0, kind="stable")
    ordered = np.take_along_axis(own, order, axis=0).astype(np.float64)
    gaps = ordered[: ranks // 2] - ordered[1 : ranks // 2 + 1]
    count = gaps.argmax(axis=0) + 1
    ahead = np.arange(ranks)[:, None] < count
    least_waited = np.where(ahead, np.take_along_axis(waited, order, axis=0), np.inf).min(axis=0)
    lag = np.minimum(gaps[count - 1, np.arange(steps)], least_waited)
    among = np.zeros(own.shape, np.bool_)
    np.put_along_axis(among, order, ahead, axis=0)
    return LastRanks(order[0], among, lag)


def may_be_early(times: OwnTimes, among: Bools) -> Bools:
    """Return in which steps it is rather the rest that takes less than usual, if the late ranks are half of all.

    Args:
        times: own times.
        among: the ranks that are late, shape (ranks, steps).

    Returns:
        Shape (steps,).
    """
    beyond = times.own_ns - np.median(times.own_ns, axis=1, keepdims=True)
    return np.asarray((2 * among.sum(axis=0) == len(among)) & (beyond.sum(axis=0) < 0))


def slow_categories(times: OwnTimes, places: Sequence[int], step: int) -> list[tuple[Category, int]]:
    """Return for each of these ranks the category in which it is longest beyond the others in one step, and by what."""
    beyond = excess(times.exposed_ns[:, step])
    most: list[Category] = [max(OWN, key=lambda name: beyond[place, COLUMN[name]]) for place in places]
    return [(name, round(float(beyond[place, COLUMN[name]]))) for place, name in zip(places, most, strict=True)]
