"""What late ranks compute more than the others: more operators, or the same ones for longer."""

from collections import defaultdict
from collections.abc import Iterable
from statistics import fmean
from typing import Final, NamedTuple

from perfkit.insights.late_ranks.sides import Sides, count_steps
from perfkit.schema.rank import OTHER_NAMES, RankReport
from perfkit.util.formatting import escape_unprintable, figures

_MAJORITY: Final = 0.5
_EXPLAINED: Final = 0.75
"""Share of the longer time from which more runs are the reason for it."""
_NEGLIGIBLE: Final = 0.1
"""Share of the lag up to which it does not count that some operators run more or less often."""


class ExtraWork(NamedTuple):
    """Why ranks compute for longer."""

    clause: str
    """Such as `42 aten::mm per step, 12 on the others`."""
    advice: str


class _Work(NamedTuple):
    """Runs and time of one operator or kernel, per step (ns)."""

    runs: float = 0.0
    ns: float = 0.0


def extra_work(sides: Sides, who: str) -> ExtraWork | None:
    """Return why late ranks compute for longer than the others; None where neither reason explains it.

    More runs of an operator take the mean of what a run takes on both sides, or, if only one side runs it, on that.

    Args:
        sides: the ranks.
        who: the late ones in words.
    """
    here, there = _work(sides.own), _work(sides.others)
    own, other = _total(here), _total(there)
    longer_ns = own.ns - other.ns
    if longer_ns < _MAJORITY * sides.lag_ns:
        return None
    runs_ns = {name: _of_more_runs(here.get(name, _Work()), there.get(name, _Work())) for name in here | there}
    kind = "kernel" if sides.own[0].device == "gpu" else "operator"
    if sum(runs_ns.values()) >= _EXPLAINED * longer_ns:
        return _more_runs(here, there, runs_ns, kind, f"on {sides.whom}", who)
    if sum(map(abs, runs_ns.values())) > _NEGLIGIBLE * longer_ns or not other.ns:
        return None
    if abs(own.runs - other.runs) > _NEGLIGIBLE * other.runs:  # so short that their time is alike
        return None
    clause = f"as many {kind}s as on {sides.whom}, in {own.ns / other.ns:.3g} times the time"
    return ExtraWork(clause, f"check for larger inputs, a slower device or a shared one on {who}")


def _work(ranks: Iterable[RankReport]) -> dict[str, _Work]:
    steps = count_steps(ranks := list(ranks))
    found: defaultdict[str, _Work] = defaultdict(_Work)
    for rank in ranks:
        for row in rank.operators:
            if row.category == "compute":
                runs, ns = found[row.name]
                found[row.name] = _Work(runs + row.count / steps, ns + row.total_ns / steps)
    return dict(found)


def _of_more_runs(here: _Work, there: _Work) -> float:
    run_ns = [side.ns / side.runs for side in (here, there) if side.runs]
    return (here.runs - there.runs) * fmean(run_ns) if run_ns else 0.0


def _total(work: dict[str, _Work]) -> _Work:
    return _Work(sum(one.runs for one in work.values()), sum(one.ns for one in work.values()))


def _more_runs(
    here: dict[str, _Work], there: dict[str, _Work], runs_ns: dict[str, float], kind: str, elsewhere: str, who: str
) -> ExtraWork | None:
    """Return what runs more often; None where others run instead, as kernels for inputs of another size do."""
    more = {name: here.get(name, _Work()).runs - there.get(name, _Work()).runs for name in runs_ns}
    more_ns, fewer_ns = sum(runs_ns.values()), -sum(ns for ns in runs_ns.values() if ns < 0)
    if sum(more.values()) < _MAJORITY * sum(runs for runs in more.values() if runs > 0):
        return None
    if fewer_ns > _NEGLIGIBLE * more_ns:
        return None
    most = max(runs_ns, key=lambda name: runs_ns[name])
    # Of names that are not listed, it is unknown how often each runs.
    if runs_ns[most] >= _MAJORITY * more_ns and OTHER_NAMES not in runs_ns:
        name = escape_unprintable(most)
        clause = f"{figures(here[most].runs)} {name} per step, {figures(there.get(most, _Work()).runs)} {elsewhere}"
        return ExtraWork(clause, f"find why {name} runs more often on {who}")
    clause = f"{figures(_total(here).runs)} {kind}s per step, {figures(_total(there).runs)} {elsewhere}"
    return ExtraWork(clause, f"find what else is computed on {who}")
