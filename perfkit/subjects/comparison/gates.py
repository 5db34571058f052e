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

from perfkit.base.formatting import format_percent, format_value
from perfkit.errors import UsageError
from perfkit.records.common import CATEGORIES
from perfkit.records.comparison import Change, GateResult, GateState
from perfkit.records.run import RunReport
from perfkit.subjects.comparison.changes import few_runs
from perfkit.subjects.comparison.metrics import category_share

_OPERATORS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_UNITS: Final = {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9, "": 1.0}
_TIMES: Final = frozenset({"ns", "us", "µs", "ms", "s"})
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
    """The value that a gate compares, or why it has none."""

    value: float | None
    """None if the gate cannot be evaluated."""
    message: str


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
    few = few_runs(before, after)
    return [_result(gate, Decision(None, lost) if lost else _decide(gate, known, after, few)) for gate in gates]


def _lost(before: Sequence[RunReport], after: Sequence[RunReport]) -> str | None:
    """Return what is missing from the runs that a metric may depend on; None if they are complete."""
    for run in (*before, *after):
        for finding in run.findings:
            if finding.code in _INCOMPLETE and finding.severity != "info":
                return f"{run.run}: {finding.message}"
    ranks = [{rank.rank for run in side for rank in run.ranks} for side in (before, after)]
    short = any(finding.code == "ranks_missing" for run in (*before, *after) for finding in run.findings)
    if short and ranks[0] != ranks[1]:
        return "the traces before and after are from different ranks, and some ranks have none"
    return None


def _result(gate: Gate, decision: Decision) -> GateResult:
    state: GateState = "not_evaluated"
    if decision.value is not None:
        state = "failed" if _OPERATORS[gate.operator](decision.value, gate.limit) else "passed"
    return GateResult(expression=gate.expression, state=state, message=decision.message)


def _decide(gate: Gate, known: Mapping[str, Change], after: Sequence[RunReport], few: str | None) -> Decision:
    change = known.get(gate.metric)
    if change is None:
        meant = " (all idle time is `overhead`)" if gate.metric == "idle" else ""
        available = ", ".join(sorted(known)) or "none"
        return Decision(None, f"no metric {gate.metric} in these runs{meant}; available: {available}")
    if gate.relative:
        return _relative(gate, change, few)
    if change.after is None:
        return Decision(None, f"{gate.metric} is unknown for the runs after")
    if gate.unit == "%" and gate.metric in CATEGORIES:
        shares = [part for run in after if (part := category_share(run, gate.metric)) is not None]
        return Decision(median(shares), f"{format_percent(median(shares))} of the step")
    if gate.unit == "%" and change.unit == "1/s":
        return Decision(None, f"{gate.metric} needs a number, or a relative change (-5%)")
    wants_time = gate.unit in _TIMES
    if wants_time != (change.unit == "ns"):
        expected = (
            "a time (12ms), or a relative change (+5%)"
            if change.unit == "ns"
            else "a number, or a relative change (+5%)"
        )
        expected += ", or a share of the step (30%)" if gate.metric in CATEGORIES else ""
        return Decision(None, f"{gate.metric} needs {expected}")
    return Decision(change.after, format_value(change.after, change.unit))


def _relative(gate: Gate, change: Change, few: str | None) -> Decision:
    if change.ratio is None:
        missing = "before" if not change.before else "after"
        return Decision(None, f"{change.name} has no value {missing}, so its change is undefined")
    # From the two values rather than ratio - 1: 105 against 100 is 5 %, not 5.000000000000004 %.
    relative = ((change.after or 0) - (change.before or 0)) / (change.before or 1)
    values = f"{format_value(change.before, change.unit)} before, {format_value(change.after, change.unit)} after"
    measured = f"{100 * relative:+.1f} % ({values})"
    if reason := _why_undecided(gate, relative, change, few):
        return Decision(None, f"{measured} {reason}")
    return Decision(relative, f"{measured}, beyond the assumed noise" if few and change.significant else measured)


def _why_undecided(gate: Gate, relative: float, change: Change, few: str | None) -> str | None:
    """Return why noise may be what decides a gate on a change; None if it cannot."""
    if change.significant is None:
        if few:
            return f"cannot be told from noise with {few}: repeat the runs, or state the noise (--assume-noise 3%)"
        return "cannot be told from noise: the interval of the ratio is unbounded, because the value before may be 0"
    compare = _OPERATORS[gate.operator]
    claims_a_change = compare(relative, gate.limit) != compare(0.0, gate.limit)
    if not claims_a_change or change.significant:
        return None
    return "is not more than the assumed noise" if few else "is within run-to-run variation"
