"""`--fail-on`: conditions on the metrics of a comparison that make it fail.

::

    expression = metric operator limit
    metric     = step_time | profiled_step | samples_per_s | tokens_per_s | mfu | load.median | load.max | a category
               | efficiency.FACTOR, such as efficiency.transfer
    operator   = > | >= | < | <=
    limit      = 12ms | 1.5s | 800us | 90ns      a time
               | 30%                             of the step for a category, otherwise 0.3
               | 0.8                             a plain number
               | +5% | -3%                       a change relative to the runs before

A gate on a change is decided by the rule of the comparison (`changes.py`): an outcome that takes a change to be real
needs a significant one. A gate that cannot be evaluated (a missing metric, a limit of the wrong kind, a change that
cannot be told from noise) neither passes nor fails.
"""

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import Any, Final, NamedTuple

from perfkit.base.statistics.bootstrap import FEWEST_RUNS, ratio_interval
from perfkit.errors import UsageError
from perfkit.records.common import CATEGORIES, Observation, Severity
from perfkit.records.comparison import Change, GateResult, GateState
from perfkit.records.facts import Fact, Statement, fact, statement
from perfkit.records.run import RunReport
from perfkit.subjects.comparison.changes import few_runs
from perfkit.subjects.comparison.metrics import category_share

OPERATORS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_UNITS: Final = {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9, "": 1.0}
TIMES: Final = frozenset(_UNITS) - {""}
_EXPRESSION: Final = re.compile(
    r"\s*(?P<metric>[a-z_]+(?:\.[a-z_]+)?|[a-z_][a-z0-9_]*\.[a-z][a-z0-9_]*)\s*(?P<operator>>=|<=|>|<)\s*"
    r"(?P<sign>[+-]?)(?P<number>\d{1,15}(?:\.\d{1,15})?)\s*(?P<unit>ns|us|µs|ms|s|%)?\s*",
    re.ASCII,
)
_INCOMPLETE: Final = frozenset(
    {"run_failed", "run_unfinished", "no_traces", "missing_traces", "unreadable_trace", "damaged_trace", "worker_lost"}
)
_KINDS: Final = ("run", "category", "idle", "loading", "efficiency")
"""The kinds of metrics that gates can name."""


class Gate(NamedTuple):
    """A parsed condition."""

    expression: str
    metric: str
    operator: str
    limit: float
    """Nanoseconds for a time, a fraction for a percentage."""
    unit: str
    relative: bool


class Decision(NamedTuple):
    """What a gate compares with its limit, or why there is no such value."""

    value: float | None
    """None if the gate cannot be evaluated."""
    message: Statement


def parse_gate(text: str) -> Gate:
    """Parse an expression.

    Raises:
        UsageError: the expression is invalid.
    """
    match = _EXPRESSION.fullmatch(text)
    if match is None:
        raise UsageError(
            f"--fail-on {text!r}: expected METRIC > LIMIT, such as 'step_time > +5%', 'communication > 30%' "
            "or 'load.median >= 2ms'"
        )
    unit, sign = match["unit"] or "", match["sign"]
    if sign and unit != "%":
        raise UsageError(f"--fail-on {text!r}: a limit with a sign is a relative change and needs %, such as +5%")
    number = float(f"{sign}{match['number']}")
    # Divided, because 35 * 0.01 is more than 0.35.
    limit = number / 100 if unit == "%" else number * _UNITS[unit]
    return Gate(text, match["metric"], match["operator"], limit, unit, bool(sign))


def check_gates(
    gates: Sequence[Gate], changes: Sequence[Change], before: Sequence[RunReport], after: Sequence[RunReport]
) -> list[GateResult]:
    """Evaluate every gate; none if a run of either side is incomplete, because the missing part may be the slow one."""
    known = {change.name: change for change in changes if change.kind in _KINDS}
    lost = _lost(before, after)
    few = fact("noise_of_few_runs", before=len(before), after=len(after)) if few_runs(before, after) else None
    return [result(gate, Decision(None, lost) if lost else _decide(gate, known, after, few)) for gate in gates]


def _lost(before: Sequence[RunReport], after: Sequence[RunReport]) -> Statement | None:
    """Return what is missing from the runs that a metric may depend on; None if they are complete."""
    for run in (*before, *after):
        for finding in run.findings:
            if finding.code in _INCOMPLETE and finding.severity != "info":
                return statement("in_run", run=run.run, message=finding.message)
    ranks = [{rank.rank for run in side for rank in run.ranks} for side in (before, after)]
    short = any(finding.code == "ranks_missing" for run in (*before, *after) for finding in run.findings)
    if short and ranks[0] != ranks[1]:
        return statement("other_ranks_traced")
    return None


def result(gate: Gate, decision: Decision) -> GateResult:
    """Return the outcome of a gate."""
    state: GateState = "not_evaluated"
    if decision.value is not None:
        state = "failed" if OPERATORS[gate.operator](decision.value, gate.limit) else "passed"
    return GateResult(expression=gate.expression, state=state, message=decision.message)


def _decide(gate: Gate, known: Mapping[str, Change], after: Sequence[RunReport], few: Fact | None) -> Decision:
    change = known.get(gate.metric)
    if change is None:
        return Decision(None, statement("no_metric", metric=gate.metric, available=sorted(known)))
    if gate.relative:
        return _relative(gate, change, few)
    if change.after is None:
        return Decision(None, statement("unknown_after", metric=gate.metric))
    if gate.unit == "%" and gate.metric in CATEGORIES:
        shares = [part for run in after if (part := category_share(run, gate.metric)) is not None]
        return Decision(median(shares), statement("share_of_step", share=median(shares)))
    is_time = change.unit == "ns"
    if (gate.unit in TIMES) != is_time or (gate.unit == "%" and change.unit == "1/s"):
        limit, example = ("a time (12ms)", "+5%") if is_time else ("a number", "-5%" if change.unit == "1/s" else "+5%")
        of_step = gate.metric in CATEGORIES
        return Decision(
            None, statement("limit_needed", metric=gate.metric, limit=limit, example=example, of_step=of_step)
        )
    return Decision(change.after, statement("figure", value=change.after, unit=change.unit))


def _relative(gate: Gate, change: Change, few: Fact | None) -> Decision:
    if change.ratio is None:
        return Decision(None, statement("no_ratio", metric=change.name, side="after" if change.before else "before"))
    # From the two values rather than ratio - 1: 105 against 100 is 5 %, not 5.000000000000004 %.
    relative = ((change.after or 0) - (change.before or 0)) / (change.before or 1)
    old, new = (fact("figure", value=value, unit=change.unit) for value in (change.before, change.after))
    measured = fact("changed_by", relative=relative, before=old, after=new, what=None)
    unbounded, within = few or fact("noise_unbounded"), fact("within_assumed_noise" if few else "within_run_variation")
    decision = _judged(gate, relative, change.significant, measured, (unbounded, within))
    above_noise = few and change.significant
    return decision._replace(message=statement("above_noise", measured=measured)) if above_noise else decision


def _judged(gate: Gate, relative: float, significant: bool | None, measured: Fact, why: tuple[Fact, Fact]) -> Decision:
    """Return the decision on a change; noise may decide it, `why` if nothing tells, and if the change is within it."""
    compare = OPERATORS[gate.operator]
    claims_a_change = compare(relative, gate.limit) != compare(0.0, gate.limit)
    if significant or (significant is False and not claims_a_change):
        return Decision(relative, Statement(measured))
    return Decision(None, statement("undecided", measured=measured, why=why[significant is False]))


# ---- on benchmarks ----------------------------------------------------------------------------------------


# A condition names a metric that several quantities may have: it holds if it holds for any of them. The intervals are
# over repeats; with fewer than three on a side a change cannot be told from noise.


class Kind(NamedTuple):
    """What a metric is."""

    noun: str
    """'bandwidth': what a quantity without a value does not have."""
    limit: str
    """An absolute limit in words: 'a number of GB/s'."""
    change: str
    """An example of a relative one."""
    is_time: bool
    scale: float
    """What a value is divided by before it is compared with a number."""
    show: Callable[[float], str]


class Quantity(NamedTuple):
    """What a condition compares."""

    what: str
    """What was measured."""
    value: float | None
    """None if it has no such value."""
    before: float | None
    """None if it is not in the earlier file."""
    significant: bool | None
    repeats: int
    """The smaller number of repeats of both sides."""


class RatioChange(NamedTuple):
    """Relative change of a time between two benchmarks."""

    ratio: float
    interval: tuple[float, float] | None
    significant: bool | None


def change_of(
    before: Sequence[float], after: Sequence[float], middles: tuple[float, float], assumed: float | None
) -> RatioChange:
    """Return the change between two sets of samples.

    Args:
        before: Samples of each repeat.
        after: The same.
        middles: Their medians.
        assumed: Relative change up to which a change counts as noise.
    """
    enough = min(len(before), len(after)) >= FEWEST_RUNS
    interval = ratio_interval(before, after) if enough else None
    ratio = middles[1] / middles[0]
    significant = None if interval is None else not interval[0] <= 1 <= interval[1]
    if assumed is not None:
        significant = significant is not False and abs(ratio - 1) > assumed
    return RatioChange(ratio, interval, significant)


def evaluate(gate: Gate, kind: Kind, quantities: Sequence[Quantity]) -> GateResult:
    """Return the worst outcome of a condition over `quantities`, of which there is at least one."""
    outcomes = [result(gate, _decide_of_benchmark(gate, kind, one)) for one in quantities]
    return next(one for state in ("failed", "not_evaluated", "passed") for one in outcomes if one.state == state)


def unknown_metric(gate: Gate, available: Sequence[str]) -> GateResult:
    """Return the outcome of a condition on a metric that the benchmark does not have."""
    return result(gate, Decision(None, statement("no_metric", metric=gate.metric, available=available)))


def _decide_of_benchmark(gate: Gate, kind: Kind, one: Quantity) -> Decision:
    if one.value is None:
        return Decision(None, statement("no_value", what=one.what, noun=kind.noun))
    if gate.relative:
        return _relative_of_benchmark(gate, kind, one, one.value)
    if (gate.unit not in TIMES) if kind.is_time else gate.unit:
        needed = {"limit": kind.limit, "example": kind.change, "of_step": False}
        return Decision(None, statement("limit_needed", metric=gate.metric, **needed))
    return Decision(one.value / kind.scale, statement("measured", value=kind.show(one.value), what=one.what))


def _relative_of_benchmark(gate: Gate, kind: Kind, one: Quantity, value: float) -> Decision:
    if not one.before:
        return Decision(None, statement("not_before", what=one.what))
    relative = (value - one.before) / one.before
    shown = {"before": kind.show(one.before), "after": kind.show(value)}
    measured = fact("changed_by", relative=relative, **shown, what=one.what)
    few = fact("noise_of_few_repeats", repeats=one.repeats, fewest=FEWEST_RUNS)
    return _judged(gate, relative, one.significant, measured, (few, fact("within_repeats")))


def find_few_repeats(repeats: int) -> Iterator[Observation]:
    """Yield a finding if so many repeats do not show how much times vary."""
    if repeats < FEWEST_RUNS:
        yield Observation("too_few_repeats", {"fewest": FEWEST_RUNS}, "benchmark", "info")


def find_shared_cores(hosts: Sequence[str], cores: Sequence[int | None]) -> Iterator[Observation]:
    """Yield a finding per host with more ranks than cores.

    Args:
        hosts: Host of each rank.
        cores: Cores of its host, of each rank; None if unknown.
    """
    for host, count in dict(zip(hosts, cores, strict=True)).items():
        ranks = hosts.count(host)
        if count is not None and ranks > count:
            yield Observation("oversubscribed", {"ranks": ranks, "host": host, "cores": count}, "benchmark")


def find_other_settings(before: Any, after: Any, names: Sequence[str], severity: Severity) -> Iterator[Observation]:
    """Yield a finding if fields of these names differ between two benchmarks."""
    values = {name: (getattr(before, name), getattr(after, name)) for name in names}
    if differing := {name: (old, new) for name, (old, new) in values.items() if old != new}:
        yield Observation("configurations_differ", {"settings": differing}, "benchmark", severity)


def find_other_versions(before: dict[str, str], after: dict[str, str]) -> Iterator[Observation]:
    """Yield a finding if software that both benchmarks used differs."""
    versions = {name: (old, after[name]) for name, old in before.items() if after.get(name, old) != old}
    if versions:
        yield Observation("versions_differ", {"versions": versions}, "benchmark")
