"""Ranks that are late in steps without a period: in turns, or in single steps that are many."""

from collections.abc import Sequence

import numpy as np

from perfkit.base.statistics.distributions import chance_of_at_least
from perfkit.engine.ranks.delay import FAR_LAGS, LONGEST, MANY, NEARLY_ALL, PARTLY, QUARTER, RARE, Delay
from perfkit.engine.ranks.lateness import OWN, Bools, Floats, LastRanks, OwnTimes, excess, last_ranks
from perfkit.records.cross_rank import FEWEST_COMPARED_STEPS
from perfkit.trace.intervals import Ints


def far_ranks(times: OwnTimes, last: LastRanks, usual_ns: float) -> LastRanks:
    """Return the ranks that are late in a step by far more than usual; not where rather the other half is early."""
    rest = times.own_ns - np.median(times.own_ns, axis=1, keepdims=True)
    early = (2 * last.among.sum(axis=0) == len(last.among)) & (rest.sum(axis=0) < 0)
    far = (last.lag_ns >= max(QUARTER * times.wall_ns, FAR_LAGS * usual_ns)) & ~early
    return last._replace(among=last.among & far)


def in_order(times: OwnTimes) -> list[Delay]:
    """Return ranks that take turns without a period: who is late in a step tells who is late in the next, or later."""
    last = last_ranks(times)
    far = last.lag_ns >= PARTLY * times.wall_ns
    if not far.any():
        return []
    sets = np.full(len(far), -1, np.int64)  # several ranks may be late together
    sets[far] = np.unique(last.among[:, far], axis=1, return_inverse=True)[1].reshape(-1)
    usual = np.flatnonzero(np.bincount(sets[far]) >= max(FEWEST_COMPARED_STEPS, PARTLY * len(far)))
    late = np.isin(sets, usual)
    if len(usual) < 2 or not _is_ordered(sets, len(times.ranks)):
        return []
    delay = min(float(np.median(last.lag_ns[sets == one])) for one in usual)
    if not late.all() and np.mean(last.lag_ns[~late] <= QUARTER * delay) < NEARLY_ALL:
        return []
    rows = np.flatnonzero((last.among & late).any(axis=1)).tolist()
    turns = [_named(times, row, last.among[row] & late) for row in rows]
    return [one._replace(in_turns=True) for one in turns if one] if all(turns) else []


def _is_ordered(sets: Ints, ranks: int) -> bool:
    """Return whether the same ranks are late again at some distance more often than chance would choose them."""
    count = np.bincount(sets[sets >= 0])
    rate = max(1 / ranks, float((count**2).sum()) / float(count.sum()) ** 2)
    longest = min(LONGEST, len(sets) // 2)
    for distance in range(1, longest + 1):
        first, second = sets[:-distance], sets[distance:]
        both = (first >= 0) & (second >= 0)
        again = int((both & (first == second)).sum())
        accepted = RARE / 2 / (1 if distance == 1 else longest - 1)
        if again and chance_of_at_least(again, int(both.sum()), rate) <= accepted:
            return True
    return False


def often_late(times: OwnTimes, found: Sequence[Delay]) -> list[Delay]:
    """Return the rank that is late in many single steps: more often than chance would choose the same one."""
    last = last_ranks(times)
    others = ~np.any([one.late for one in found], axis=0) if found else np.ones(len(times.steps), np.bool_)
    far = far_ranks(times, last, float(np.median(last.lag_ns[others if others.any() else slice(None)]))).among
    alone = far & (far.sum(axis=0) == 1)
    count = alone.sum(axis=1)
    row = int(count.argmax())
    if not late_often(count, min(PARTLY * len(times.steps), MANY), times.compared)[row]:
        return []
    one = _named(times, row, alone[row])
    return [one] if one else []


def late_often(count: Ints, least: float | Floats, compared: int) -> Bools:
    """Return which ranks stand out in many single steps: more often than chance would choose the same one.

    Args:
        count: number of steps in which each rank stands out, shape (ranks,).
        least: fewest such steps.
        compared: number of ranks that are compared in the run.
    """
    often = (count >= least) & (count > 0)
    total, rate = int(count.sum()), 1 / len(count)
    often[often] = [compared * chance_of_at_least(one, total, rate) <= RARE for one in count[often].tolist()]
    return np.asarray(often)


def _named(times: OwnTimes, row: int, late: Bools) -> Delay | None:
    """Return a rank's delay in one category; None if its delays are of several kinds."""
    own = np.stack([excess(times.of(name))[row, late] for name in OWN])
    category = int(np.median(own, axis=1).argmax())
    return Delay(row, OWN[category], 1, late) if (own.argmax(axis=0) == category).mean() >= NEARLY_ALL else None
