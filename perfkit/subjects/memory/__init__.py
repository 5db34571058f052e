"""What memory is allocated for."""

from typing import Final

from perfkit.engine.subject import Subject
from perfkit.engine.trace_context import TraceContext
from perfkit.records.rank import MemoryUse


def _memory(trace: TraceContext) -> list[MemoryUse]:
    if not trace.trace.memory:
        return []
    from perfkit.subjects.memory.tabulate import tabulate_memory

    return tabulate_memory(trace.trace, trace.names, trace.activity, trace.steps, trace.step_marker, trace.passes)


SUBJECT: Final = Subject(
    tables="perfkit.subjects.memory.tables:tables",
    charts="perfkit.subjects.memory.charts:CHARTS",
    rank={"memory": _memory},
)
