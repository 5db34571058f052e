"""Ranks compared with each other: who waits, who is late, and how efficient the run is."""

from typing import Final

from perfkit.engine.subject import Subject
from perfkit.engine.trace_context import TraceContext
from perfkit.records.samples import CodeTime


def _code(trace: TraceContext) -> list[CodeTime]:
    if trace.samples is None or not len(trace.samples):
        return []
    from perfkit.engine.samples import tabulate_code

    return tabulate_code(trace.samples, trace.activity, trace.steps, trace.has_device)


SUBJECT: Final = Subject(
    tables="perfkit.subjects.ranks.tables:tables",
    charts="perfkit.subjects.ranks.charts:CHARTS",
    losses="perfkit.subjects.ranks.losses:LOSSES",
    needs=("critical-path", "input", "phases"),
    rank={"code": _code},
    run={
        "cross_rank": lambda run: run.cross_rank,
        "efficiency": lambda run: run.efficiency,
    },
)
