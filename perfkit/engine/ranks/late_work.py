"""Name why a late rank's work takes longer: it does more, or the same more slowly (metrics.md section 5).

The time of each kernel (without a device: operator) is runs * size of a run * pace, the time that a unit of size takes.
By the logarithmic means of both sides, what a rank takes longer is the sum of what each factor explains:

    t - t' = L ln(runs / runs') + L ln(size / size') + L ln(pace / pace'),   L = (t - t') / ln(t / t')
"""

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import takewhile
from statistics import fmean, median
from typing import Final, NamedTuple

from msgspec.structs import replace

from perfkit.engine.attribution.classes import UNNAMED, named_classes, operator_classes
from perfkit.engine.ranks.delay import MOST_OF_LAG
from perfkit.records.aggregate import MAJORITY
from perfkit.records.cross_rank import LateFactor, LateGroup, LateWork, Straggler
from perfkit.records.per_rank.work import KERNEL_CLASSES
from perfkit.records.rank import OTHER_NAMES, RankReport

_EXPLAINED: Final = 0.75
"""Share of the longer time from which more runs are the reason for it."""
_NEGLIGIBLE: Final = 0.1
"""Share of it up to which a factor does not count, and of the lag up to which launches do not."""
_MISFIT: Final = 0.25
"""Share of the longer time by which one ratio for a group of kernels may miss it."""
_PARTS: Final = re.compile(r"[0-9A-Za-z]+|[^0-9A-Za-z]+")
_FEW: Final = 3
"""Kernels that are named together: the forward and the two backward passes of an operator."""
_ALIKE: Final = 0.9
"""Lags of the ranks of a host, smallest to largest, from which they are one."""
_BOUND: Final[Mapping[str, LateGroup]] = {
    **dict.fromkeys(("gemm", "attention", "convolution"), "compute_bound"),
    **dict.fromkeys(("normalisation", "embedding", "reduction", "elementwise", "optimizer", "copy"), "memory_bound"),
}


class Work(NamedTuple):
    """Runs, size and time (ns) of kernels or operators per step; the size is None if it is not known of each."""

    runs: float = 0.0
    size: float | None = 0.0
    ns: float = 0.0

    def and_also(self, other: "Work") -> "Work":
        size = None if self.size is None or other.size is None else self.size + other.size
        return Work(self.runs + other.runs, size, self.ns + other.ns)


_Works = Mapping[str, Work]
"""By name."""


class _Part(NamedTuple):
    """What each factor explains of the longer time of one kernel or operator (ns per step)."""

    usual_ns: float
    """What it takes on the others."""
    runs: float = 0.0
    size: float = 0.0
    pace: float = 0.0
    time: float = 0.0
    """In place of size and pace, where the size is not known."""


def find_work(
    row: Straggler,
    rank: RankReport,
    on_time: Sequence[RankReport],
    mean: Callable[[tuple[int | None, ...]], Mapping[str, Work]],
) -> LateWork | None:
    """Return why a rank that is late in every step computes or launches for longer; None if that is not known.

    Args:
        row: what it is late in.
        rank: its report.
        on_time: those of the ranks that it is compared with.
        mean: returns the mean work of ranks by their numbers.
    """
    on_time = [other for other in on_time if not other.light]
    if rank.light or not on_time or row.every > 1 or row.steps_late < row.steps:
        return None
    if row.category == "compute":
        others = tuple(other.rank for other in on_time)
        return _of_compute(row, mean((row.rank,)), mean(others), rank.device == "gpu")
    return _of_launches(row, rank, on_time) if row.category == "overhead" else None


def name_hosts(stragglers: Sequence[Straggler], ranks: Sequence[RankReport]) -> list[Straggler]:
    """Return the stragglers; if they are all ranks of one host of several, late in the same, each with this host."""
    host_of = {rank.rank: rank.host for rank in ranks}
    hosts = {host_of.get(row.rank) for row in stragglers}
    late, alike = {row.rank for row in stragglers}, {(row.category, row.every, row.in_turns) for row in stragglers}
    host = next(iter(hosts), None)
    there = {rank for rank, where in host_of.items() if where == host}
    lags_ns = [row.lag_ns for row in stragglers]
    if host is None or len(hosts) > 1 or len(late) == 1 or late != there or len(host_of) == len(late):
        return list(stragglers)
    if len(alike) > 1 or min(lags_ns) < _ALIKE * max(lags_ns):
        return list(stragglers)
    return [replace(row, host=host) for row in stragglers]


# ---- what it computes ------------------------------------------------------------------------------------------------


def _of_compute(row: Straggler, own: _Works, others: _Works, on_device: bool) -> LateWork | None:
    here, there = _renamed(own, others, on_device=on_device)
    (of_own, of_others), names = map(_sum, (here, there)), sorted(here.keys() | there.keys())
    longer_ns = of_own.ns - of_others.ns
    if not of_others.ns or not MAJORITY * row.lag_ns <= longer_ns <= MOST_OF_LAG * row.lag_ns:
        return None
    parts = {name: _split(here.get(name, Work()), there.get(name, Work())) for name in names}
    found = _factor(parts, longer_ns, on_device=on_device)
    if found is None or (found[0] != "runs" and abs(of_own.runs - of_others.runs) > _NEGLIGIBLE * of_others.runs):
        return None
    factor, of, group = found
    compared = [name for name in group if factor != "size" or not parts[name].time]
    own_part, usual = (_sum({name: side[name] for name in compared if name in side}) for side in (here, there))
    values = [{"runs": one.runs, "size": one.size or 0.0}.get(factor, one.ns) for one in (own_part, usual)]
    name = _begin(list(group)) + "*" * (len(group) > 1) if of == "few" else None
    return LateWork(factor=factor, of=of, name=name, on_device=on_device, own=values[0], usual=values[1])


def mean_work(ranks: Sequence[RankReport]) -> dict[str, Work]:
    """Return the computing kernels, or operators, per step and rank."""
    steps, found = sum(len(rank.steps) for rank in ranks), dict[str, Work]()
    for rank in ranks:
        for row in rank.operators:
            if row.category == "compute":
                one = Work(row.count / steps, None if row.size is None else row.size / steps, row.total_ns / steps)
                found[row.name] = found.get(row.name, Work()).and_also(one)
    return found


def _renamed(here: _Works, there: _Works, *, on_device: bool) -> tuple[_Works, _Works]:
    """Return kernels with those of a class that either side alone runs as one: other sizes have other kernels.

    Of these it is not known how much each works on: their blocks differ.
    """
    alone = [sorted(side.keys() - other.keys()) for side, other in ((here, there), (there, here))]
    classes = [dict(zip(names, named_classes(names).tolist(), strict=True)) for names in alone]
    shared = set(classes[0].values()) & set(classes[1].values()) - {UNNAMED} if on_device else set()

    def pooled(side: _Works, of: Mapping[str, int]) -> _Works:
        found = {name: one for name, one in side.items() if of.get(name) not in shared}
        for name, place in of.items():
            if place in shared:
                key = f"({KERNEL_CLASSES[place]})"
                found[key] = found.get(key, Work()).and_also(side[name]._replace(size=None))
        return found

    return pooled(here, classes[0]), pooled(there, classes[1])


def _sum(works: _Works) -> Work:
    """Return all work together, the size of those of which it is known."""
    found = Work()
    for one in works.values():
        found = found.and_also(one if one.size is not None else one._replace(size=0.0))
    return found


def _split(own: Work, usual: Work) -> _Part:
    """Return what each factor explains of what one kernel or operator takes longer."""
    longer_ns = own.ns - usual.ns
    if not min(own.runs, usual.runs, own.ns, usual.ns):
        return _Part(usual.ns, runs=longer_ns)
    whole = math.log(own.ns / usual.ns)
    mean_ns = longer_ns / whole if whole else own.ns
    runs_ns = mean_ns * math.log(own.runs / usual.runs)
    if not own.size or not usual.size:
        return _Part(usual.ns, runs=runs_ns, time=longer_ns - runs_ns)
    size_ns = mean_ns * math.log(own.size / own.runs / (usual.size / usual.runs))
    return _Part(usual.ns, runs_ns, size_ns, longer_ns - runs_ns - size_ns)


def _factor(
    parts: Mapping[str, _Part], longer_ns: float, *, on_device: bool
) -> tuple[LateFactor, LateGroup, Collection[str]] | None:
    """Return the factor that explains the longer time, and what it is true of; None if none does."""
    runs, size, pace, time = (
        [getattr(part, name) for part in parts.values()] for name in ("runs", "size", "pace", "time")
    )
    little_ns = _NEGLIGIBLE * longer_ns
    if sum(runs) >= _EXPLAINED * longer_ns:
        if -sum(ns for ns in runs if ns < 0) > _NEGLIGIBLE * sum(runs):  # others run instead
            return None
        return "runs", *_of_few(parts, "runs")
    if sum(map(abs, runs)) > little_ns:
        return None
    if sum(size) >= max(little_ns, MAJORITY * (sum(size) + sum(pace))):
        return "size", *_of_few(parts, "size")
    is_same = sum(map(abs, size)) <= little_ns and sum(map(abs, time)) <= little_ns
    found = _slow_group(parts, on_device=on_device) if is_same else None
    return ("pace", *found) if found else ("time", "all", parts)


def _few(parts: Mapping[str, _Part], factor: str) -> Iterator[list[str]]:
    """Yield the one, two and three that take most time longer by a factor, if the begin of their names is theirs alone.

    Of names that are not listed, it is unknown what is more.
    """
    largest = sorted(parts, key=lambda name: -getattr(parts[name], factor))
    most = max(1, min(_FEW, len(parts) - 1)) if OTHER_NAMES not in parts else 0
    for count in range(1, most + 1):
        names = largest[:count]
        if sum(name.startswith(_begin(names)) for name in parts) == count or count == 1:
            yield names


def _begin(names: Sequence[str]) -> str:
    """Return how all names begin, up to the end of a word."""
    if len(names) == 1:
        return names[0]
    parts = zip(*(_PARTS.findall(name) for name in names), strict=False)
    return "".join(several[0] for several in takewhile(lambda several: len(set(several)) == 1, parts))


def _of_few(parts: Mapping[str, _Part], factor: str) -> tuple[LateGroup, Collection[str]]:
    """Return the few that nearly all of what a factor explains is in, while it hardly is more in others; else all."""
    for names in _few(parts, factor):
        (few_ns, of_ns), (rest_ns, of_rest_ns) = (
            [
                sum(getattr(part, what) for name, part in parts.items() if (name in names) == inside)
                for what in (factor, "usual_ns")
            ]
            for inside in (True, False)
        )
        if rest_ns <= _NEGLIGIBLE * few_ns and rest_ns * of_ns <= _NEGLIGIBLE * few_ns * of_rest_ns:
            return "few", names
    return "all", parts


def _slow_group(parts: Mapping[str, _Part], *, on_device: bool) -> tuple[LateGroup, Collection[str]] | None:
    """Return which of the work is slower by one ratio, while the rest is not: of several answers the nearest."""
    names = list(parts)
    classes = (named_classes if on_device else operator_classes)(names).tolist()
    bound = [_BOUND.get(KERNEL_CLASSES[place]) if place != UNNAMED else None for place in classes]
    groups: list[tuple[LateGroup, Collection[str]]] = [
        ("all", names),
        ("compute_bound", [name for name, one in zip(names, bound, strict=True) if one == "compute_bound"]),
        ("memory_bound", [name for name, one in zip(names, bound, strict=True) if one == "memory_bound"]),
        *(("few", some) for some in _few(parts, "pace")),
    ]
    misses = [_miss_ns(parts, set(group)) for _, group in groups]
    best = min(range(len(groups)), key=misses.__getitem__)
    return groups[best] if misses[best] <= _MISFIT * sum(abs(part.pace) for part in parts.values()) else None


def _miss_ns(parts: Mapping[str, _Part], group: Collection[str]) -> float:
    """Return by how much it misses what each takes longer, if all of a group are slower by one ratio and no other."""
    usual_ns = sum(parts[name].usual_ns for name in group)
    ratio = sum(parts[name].pace for name in group) / usual_ns if usual_ns else 0.0
    return sum(abs(part.pace - ratio * part.usual_ns * (name in group)) for name, part in parts.items())


# ---- what it launches ------------------------------------------------------------------------------------------------


def _of_launches(row: Straggler, own: RankReport, others: Sequence[RankReport]) -> LateWork | None:
    """Return whether it launches more, or as much more slowly; None if that is not a part of its lag."""
    sides = [[rank for rank in side if rank.launches is not None] for side in ([own], others)]
    if not all(sides):
        return None
    runs = [fmean(rank.launches.count / len(rank.steps) for rank in side if rank.launches) for side in sides]
    call_ns = [median(rank.launches.call_median_ns for rank in side if rank.launches) for side in sides]
    whole = [count * ns for count, ns in zip(runs, call_ns, strict=True)]
    if not min(whole) or whole[0] - whole[1] < _MISFIT * row.lag_ns:
        return None
    more = math.log(runs[0] / runs[1]) / math.log(whole[0] / whole[1])
    if more >= _EXPLAINED:
        return LateWork(factor="runs", of="launches", on_device=False, own=runs[0], usual=runs[1])
    if abs(more) > 1 - _EXPLAINED:
        return None
    return LateWork(factor="pace", of="launches", on_device=False, own=call_ns[0], usual=call_ns[1])
