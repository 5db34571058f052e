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
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Final, NamedTuple

from perfkit.errors import UsageError
from perfkit.records.common import CATEGORIES
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
    if change.significant is None:
        return undecided(measured, few or fact("noise_unbounded"))
    if claims_a_change(gate, relative) and not change.significant:
        return undecided(measured, fact("within_assumed_noise" if few else "within_run_variation"))
    above_noise = few and change.significant
    return Decision(relative, statement("above_noise", measured=measured) if above_noise else Statement(measured))


def claims_a_change(gate: Gate, relative: float) -> bool:
    """Return whether a gate has another outcome for a change than for none."""
    compare = OPERATORS[gate.operator]
    return compare(relative, gate.limit) != compare(0.0, gate.limit)


def undecided(measured: Fact, why: Fact) -> Decision:
    """Return that noise may be what decides a gate on a change."""
    return Decision(None, statement("undecided", measured=measured, why=why))
