"""Which transfers the network makes slow: those of a group, between two hosts, of a host, or in some steps.

The logarithm of a transfer is that of comparable ones (`perfkit.engine.communication.transfers`), an effect of what is
slow, and noise. Of everything that could be slow, that explains most which leaves the least absolute deviations. It is
slow if its effect stands out from those of the others of its kind, moderated by what healthy networks differ by (Smyth,
2004), and from how much its own varies over the steps. Then its effect is taken off, and the next one is looked for.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final, NamedTuple

import numpy as np
from msgspec.structs import replace

from perfkit.base.statistics.distributions import upper_quantile
from perfkit.base.statistics.series import OF_MAD
from perfkit.engine.communication.transfers import Bools, Floats, Transfers, Unit, find_transfers, medians
from perfkit.engine.ranks.matching import MatchedCollectives
from perfkit.records.cross_rank import FEWEST_COMPARED_STEPS, SlowTransfers
from perfkit.trace.intervals import Ints

_USUAL: Final = 0.1
"""What healthy transfers that are comparable differ by, as a standard deviation of logarithms."""
_WEIGHT: Final = 10
"""Number of others that this counts as."""
_CHANCE: Final = 0.01
"""That anything is found in a healthy run."""
_MOST: Final = 3
"""Causes that are looked for."""
_TRIED: Final = 32
"""Of each kind, those with the largest deviations."""


class SlowNetwork(NamedTuple):
    """What is slow."""

    causes: list[SlowTransfers]
    """Largest ratio first."""
    factors: Floats | None
    """How many times as long as without each cause each collective's transfer takes, shape (causes, collectives + 1);
    None if nothing is slow."""


_Members = dict[tuple[tuple[int, ...], tuple[str, ...]], list[int]]
"""Units by ranks and hosts of what they have in common."""


class _Suspect(NamedTuple):
    """Units that have in common what may be slow."""

    cause: SlowTransfers
    units: Ints


def find_slow_network(matched: MatchedCollectives, hosts: Mapping[int | None, str | None]) -> SlowNetwork:
    """Return what is slow about the network, largest effect first.

    Args:
        matched: the collectives and messages of all ranks.
        hosts: host of each rank; None if unknown.
    """
    transfers = find_transfers(matched, hosts)
    count = int(matched.collective.max(initial=-1)) + 1
    if len(np.unique(transfers.step)) < FEWEST_COMPARED_STEPS:
        return SlowNetwork([], None)
    found = [one for find in (find_in_all_steps, find_in_steps) for one in find(transfers)]
    found.sort(key=lambda one: -one[0].ratio)
    factors = np.ones((len(found), count))
    for factor, (cause, slow, _) in zip(factors, found, strict=True):
        factor[transfers.collective[slow]] = cause.ratio
    return SlowNetwork([cause for cause, *_ in found], factors if found else None)


_Found = tuple[SlowTransfers, Bools, float]


# ---- in all steps --------------------------------------------------------------------------------------------------


class _Usual(NamedTuple):
    """What units usually take for comparable transfers; columns of one length."""

    log_ns: Floats
    cell: Ints
    unit: Ints

    def deviations(self) -> Floats:
        """Return the differences from the median of their cells."""
        return self.log_ns - medians(self.log_ns, self.cell, int(self.cell.max()) + 1)[self.cell]


def find_in_all_steps(transfers: Transfers) -> Iterator[_Found]:
    """Yield what is slow in all steps."""
    key = transfers.cell * len(transfers.units) + transfers.unit
    keys, of = np.unique(key, return_inverse=True)
    cell, unit = np.divmod(keys, max(1, len(transfers.units)))
    usual = _Usual(medians(transfers.log_ns, of, len(keys)), cell, unit)
    suspects = _suspects(transfers.units, usual) if len(keys) else []
    for _ in range(_MOST):
        best = _largest(usual, suspects)
        if best is None:
            return
        suspect, effect = best
        inside = np.isin(usual.unit, suspect.units)
        rest = usual._replace(log_ns=usual.log_ns - effect * inside)
        alike = [one for one in suspects if _kind(one) == _kind(suspect) and one is not suspect]
        others = np.array([_effect(rest, np.isin(rest.unit, one.units)) for one in alike])
        slow = np.isin(transfers.unit, suspect.units)
        if not _stands_out(effect, others, _by_step(transfers, slow), len(suspects)):
            return
        yield _sized(suspect.cause, effect), slow, effect
        usual = rest


def _kind(suspect: _Suspect) -> tuple[int, int]:
    return len(suspect.cause.hosts), len(suspect.cause.ranks)


def _suspects(units: Sequence[Unit], usual: _Usual) -> list[_Suspect]:
    """Return what may be slow: of what is about the same transfers, the most specific."""
    deviation = medians(usual.deviations(), usual.unit, len(units))
    between = [(number, unit) for number, unit in enumerate(units) if len(unit.hosts) > 1]
    of_groups: _Members = {(unit.ranks, ()): [number] for number, unit in enumerate(units)}
    of_links, of_ranks, of_hosts = _Members(), _Members(), _Members()
    for number, unit in between:
        for pair in combinations(sorted(unit.hosts), 2):
            of_links.setdefault(((), pair), []).append(number)
        for rank in unit.ranks:
            of_ranks.setdefault(((rank,), ()), []).append(number)
        for host in unit.hosts:
            of_hosts.setdefault(((), (host,)), []).append(number)
    suspects = dict[tuple[int, ...], _Suspect]()
    for found in (of_groups, of_links, of_ranks, of_hosts):
        for (ranks, hosts), own in sorted(found.items(), key=lambda one: -np.median(deviation[one[1]]))[:_TRIED]:
            cause = SlowTransfers(ranks=list(ranks), hosts=list(hosts), ratio=1.0)
            suspects.setdefault(tuple(own), _Suspect(cause, np.array(own, np.int64)))
    return list(suspects.values())


def _largest(usual: _Usual, suspects: Sequence[_Suspect]) -> tuple[_Suspect, float] | None:
    """Return the suspect that explains most of the deviations, of several the first, and its effect."""
    best, least = None, float(np.abs(usual.deviations()).sum())
    for suspect in suspects:
        inside = np.isin(usual.unit, suspect.units)
        effect = _effect(usual, inside)
        if effect > 0:
            left = float(np.abs(usual._replace(log_ns=usual.log_ns - effect * inside).deviations()).sum())
            if left < least * (1 - 1e-9):
                best, least = (suspect, effect), left
    return best


def _effect(usual: _Usual, inside: Bools) -> float:
    """Return by how much transfers are longer than comparable others; NaN if there are none."""
    others = medians(usual.log_ns[~inside], usual.cell[~inside], int(usual.cell.max()) + 1)
    longer = (usual.log_ns - others[usual.cell])[inside]
    longer = longer[~np.isnan(longer)]
    return float(np.median(longer)) if len(longer) else float("nan")


def _by_step(transfers: Transfers, slow: Bools) -> Floats:
    """Return the effect in each step."""
    found = []
    for step in np.unique(transfers.step[slow]).tolist():
        own = transfers.step == step
        found.append(_effect(_Usual(transfers.log_ns[own], transfers.cell[own], transfers.unit[own]), slow[own]))
    return np.array(found)


def _stands_out(effect: float, others: Floats, by_step: Floats, tried: int) -> bool:
    """Return whether an effect is beyond chance."""
    others, by_step = others[~np.isnan(others)], by_step[~np.isnan(by_step)]
    if len(by_step) < FEWEST_COMPARED_STEPS:
        return False
    own = float(np.var(by_step, ddof=1)) / len(by_step)
    return effect > _least(others, _USUAL, tried, own)


def _least(others: Floats, usual: float, tried: int, own: float = 0.0) -> float:
    """Return from which effect on one is beyond chance.

    Args:
        others: effects of what is healthy.
        usual: what such effects are usually, as a standard deviation.
        tried: number of effects of which the largest is tested.
        own: the variance of its mean.
    """
    weight = _WEIGHT + len(others)
    variance = (_WEIGHT * usual**2 + len(others) * _spread(others) ** 2) / weight + own
    return upper_quantile(_CHANCE / tried, weight) * float(variance**0.5)


def _spread(values: Floats) -> float:
    """Return the standard deviation of values around 0, by their median."""
    return OF_MAD * float(np.median(np.abs(values))) if len(values) else 0.0


# ---- in some steps -------------------------------------------------------------------------------------------------


def find_in_steps(transfers: Transfers) -> Iterator[_Found]:
    """Yield the steps in which what is between hosts is slow, and what is within them is not."""
    crosses = transfers.crosses
    if not crosses.any():
        return
    key = transfers.cell * len(transfers.units) + transfers.unit
    longer = transfers.log_ns - medians(transfers.log_ns, key, int(key.max()) + 1)[key]
    steps, place = np.unique(transfers.step, return_inverse=True)
    effects = medians(longer[crosses], place[crosses], len(steps))
    inside = np.nan_to_num(medians(longer[~crosses], place[~crosses], len(steps)))
    effects = np.nan_to_num(effects - np.maximum(inside, 0))
    order = np.argsort(-effects, kind="stable")
    # Where calls vary, as on busy hosts, so do steps.
    usual = max(_USUAL, _spread(longer[crosses] - effects[place[crosses]]))
    for count in range((len(steps) - 1) // 2, 0, -1):
        chosen, others = effects[order[:count]], effects[order[count:]]
        least = _least(others - np.median(others), usual, len(steps))
        if chosen.min() - others.max() > least:
            slow = crosses & np.isin(place, order[:count])
            effect = float(np.median(chosen))
            cause = SlowTransfers(steps=sorted(steps[order[:count]].tolist()), ratio=1.0)
            yield _sized(cause, effect), slow, effect
            return


def _sized(cause: SlowTransfers, effect: float) -> SlowTransfers:
    return replace(cause, ratio=float(np.exp(effect)))
