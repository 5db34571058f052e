"""A subject: which operators of a rank ever took longer than a millisecond, what they took in all, and what to do."""

from collections.abc import Iterator
from typing import Any

from perfkit import RunReport, Subject
from perfkit.engine.losses import Loss, LossContext, Rules, fact
from perfkit.engine.run_context import RunContext
from perfkit.engine.trace_context import TraceContext
from perfkit.tables.specification import Table, make_table, name, number

_LONG_NS = 1_000_000


def of_trace(trace: TraceContext) -> dict[str, int]:
    """Return the summed time (ns) by operator, of those that ever took long."""
    return {row.name: row.total_ns for row in trace.operators if row.max_ns > _LONG_NS}


def of_run(run: RunContext) -> dict[str, int]:
    """Return the same over all ranks and traces."""
    sums: dict[str, int] = {}
    for rank in run.ranks:
        for found in rank.subjects.get("long-operators", []):
            for operator, total_ns in found.items():
                sums[operator] = sums.get(operator, 0) + total_ns
    return sums


def tables(run: RunReport, top: int) -> Iterator[Table | None]:
    """Yield the operators by time, the longest first."""
    rows: list[Any] = sorted(run.subjects.get("long-operators", {}).items(), key=lambda row: -row[1])
    columns = (name("operator", lambda row: row[0]), number("total ms", lambda row: f"{row[1] / 1e6:,.3g}"))
    yield make_table("Operators that took more than 1 ms", rows, columns, top=top)


def longest(context: LossContext) -> Loss | None:
    """Report the operator that takes most, if it takes a step's half; None if none does."""
    sums: dict[str, int] = context.run.subjects.get("long-operators", {})
    name = max(sums, key=lambda one: sums[one], default=None)
    per_step_ns = sums[name] / context.rank_steps if name else 0.0
    if context.share(per_step_ns) < 0.5:
        return None
    return Loss(
        cause="long_operator",
        code=name,
        facts=(fact("long_operator", operator=name, ns=per_step_ns),),
        remedy=(fact("divide"),),
        per_step_ns=per_step_ns,
    )


LOSSES: Rules = {"long_operator": longest}
WORDS = {"long_operator": "{operator} takes {ns:duration} per step", "divide": "divide it over more ranks"}
SUBJECT = Subject(
    rank={"long_operators": of_trace},
    run={"long_operators": of_run},
    losses="perfkit_example.long_operators:LOSSES",
    words=WORDS,
    tables="perfkit_example.long_operators:tables",
)
