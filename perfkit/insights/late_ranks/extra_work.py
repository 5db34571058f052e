"""What late ranks compute more than the others: more operators, or the same ones for longer."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from perfkit.analysis.cross_rank.straggler_sentences import name_ranks
from perfkit.insights.late_ranks.sides import count_steps, divide, mean_lag_ns
from perfkit.insights.run_context import RunContext
from perfkit.schema.cross_rank import Straggler
from perfkit.schema.rank import RankReport
from perfkit.util.formatting import escape_unprintable

_MAJORITY: Final = 0.5
_NEARLY_ALL: Final = 0.75
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


def extra_work(context: RunContext, late: Sequence[Straggler]) -> ExtraWork | None:
    """Return why late ranks compute for longer than the others; None where neither reason explains it.

    More runs of an operator take what a run takes on the others, or, if only the late ranks run it, on these.

    Args:
        context: the run.
        late: the late ranks.
    """
    own, others = divide(context, late)
    if not own or not others:
        return None
    here, there = _work(own), _work(others)
    total_ns = sum(one.ns for one in here.values()) - sum(one.ns for one in there.values())
    if total_ns < _MAJORITY * mean_lag_ns(late):
        return None
    runs_ns = {name: _of_more_runs(here.get(name, _Work()), there.get(name, _Work())) for name in here | there}
    kind = "kernel" if own[0].device == "gpu" else "operator"
    more_ns = sum(runs_ns.values())
    if more_ns >= _NEARLY_ALL * total_ns:
        return _more_runs(here, there, runs_ns, kind, name_ranks(late))
    if sum(map(abs, runs_ns.values())) > _NEGLIGIBLE * total_ns:
        return None
    times = sum(one.ns for one in here.values()) / sum(one.ns for one in there.values())
    clause = f"as many {kind}s as on the others, which take {times:.3g} times as long"
    return ExtraWork(clause, f"check for larger inputs, a slower device or a shared one on {name_ranks(late)}")


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
    usual = there if there.runs else here
    return (here.runs - there.runs) * usual.ns / usual.runs if usual.runs else 0.0


def _more_runs(
    here: dict[str, _Work], there: dict[str, _Work], runs_ns: dict[str, float], kind: str, who: str
) -> ExtraWork | None:
    """Return what runs more often; None where others run instead, as kernels for inputs of another size do."""
    more = {name: here.get(name, _Work()).runs - there.get(name, _Work()).runs for name in runs_ns}
    if sum(more.values()) < _MAJORITY * sum(runs for runs in more.values() if runs > 0):
        return None
    most = max(runs_ns, key=lambda name: runs_ns[name])
    if runs_ns[most] >= _MAJORITY * sum(runs_ns.values()):
        name = escape_unprintable(most)
        clause = f"{here[most].runs:,.3g} {name} per step, {there.get(most, _Work()).runs:,.3g} on the others"
        return ExtraWork(clause, f"find why {name} runs more often on {who}")
    own, other = (sum(one.runs for one in side.values()) for side in (here, there))
    clause = f"{own:,.3g} {kind}s per step, {other:,.3g} on the others"
    return ExtraWork(clause, f"find what else is computed on {who}")
